"""The decisions that no person asks for. Pure and level-triggered: only the state and the time are looked at.

So it may be evaluated at any moment, any number of times, by any number of replicas: after a crash it simply is
evaluated again, and what has been decided is not decided twice because it shows in the state.
"""

from valet_protocol.events import facts
from valet_protocol.events.envelope import Data

from valet_session_ledger.react_family import completed, errands, told_of_children
from valet_session_ledger.react_questions import answered, late_prompts
from valet_session_ledger.react_sandbox import sandbox, wants_sandbox, wind_up
from valet_session_ledger.react_turns import dispatch_due, dispatched, interrupt, interrupted, silent_due, steered
from valet_session_ledger.state import BOOTING, ENDED, SessionState


def react(state: SessionState, now_ms: int, seen_ms: int = 0) -> list[Data]:
    """The facts that are due now, in the order in which they are to be appended. Empty at rest.

    `seen_ms`: since when the log is seen without a break (ms since 1970); what nobody could hear is no silence.
    """
    if state.leaving:
        return [facts.ParticipantRemoved(user=one.user, by=one.by) for one in state.leaving]
    if state.phase in ENDED:
        return wind_up(state, "The session was ended." if state.phase == "terminated" else state.detail)
    if state.import_due_ms is not None:
        return _import_given_up() if state.import_due_ms <= now_ms else []
    if state.failure is not None:
        return [facts.SessionFailed(code=state.failure.code, detail=state.failure.detail)]
    end = completed(state)
    if end is not None:
        return [end]
    decided: list[Data] = []
    over = interrupted(state, now_ms)
    if over is not None:
        decided.append(over)
    else:
        decided += answered(state, now_ms)
        stop = interrupt(state, now_ms, seen_ms)
        decided += [stop] if stop is not None else steered(state)
    decided += late_prompts(state)
    decided += told_of_children(state)
    decided += _timed_out(state, now_ms)
    wanted = sandbox(state, now_ms, seen_ms)
    if wanted is not None:
        decided.append(wanted)
    turn = dispatched(state, now_ms)
    if turn is not None:
        decided.append(turn)
    return decided


def next_due(state: SessionState, seen_ms: int = 0) -> int | None:
    """When `react` is to be evaluated although nothing happens (ms since 1970); none when only an event counts."""
    if state.phase in ENDED:
        return None
    if state.import_due_ms is not None:
        return state.import_due_ms
    due = [question.due_ms for question in state.questions]
    due += [command.due_ms for command in state.commands]
    if state.phase in BOOTING and state.boot_deadline_ms is not None:
        due.append(state.boot_deadline_ms)
    if state.hold_until_ms is not None and wants_sandbox(state):
        due.append(state.hold_until_ms)
    if state.turn is not None and state.turn.interrupt_due_ms is not None:
        due.append(state.turn.interrupt_due_ms)
    due += [moment for moment in (silent_due(state, seen_ms), dispatch_due(state)) if moment is not None]
    return min(due, default=None)


def is_at_rest(state: SessionState) -> bool:
    """Whether neither time nor anything left undone by a crash can make `react` decide something, and nothing is to be
    done in another session's log."""
    return next_due(state) is None and not react(state, 0) and not errands(state)


def _timed_out(state: SessionState, now_ms: int) -> list[facts.CommandTimedOut]:
    why = "The sandbox did not answer in time." if state.phase == "ready" else "The sandbox did not come up in time."
    return [
        facts.CommandTimedOut(request_id=command.request_id, detail=f"{why} Ask for it again.")
        for command in state.commands
        if command.due_ms <= now_ms
    ]


def _import_given_up() -> list[Data]:
    return [
        facts.SessionFailed(
            code="import_incomplete",
            detail="The import of this session was not finished in time; import it again into a new session.",
        )
    ]
