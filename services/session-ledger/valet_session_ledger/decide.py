"""Commands: what a person or a runner asks for, decided on the session's state. Pure; refusals are raised.

A command that has taken effect before gives no facts and the same reply: every command may be sent again.
"""

import msgspec
from valet_protocol.errors import Conflict, Unprocessable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.events.facts import Role
from valet_protocol.ids import derived_id
from valet_protocol.requests import (
    AbortTurn,
    Accepted,
    AddParticipant,
    AnswerQuestion,
    Attached,
    AttachRunner,
    ChangePolicy,
    CreateSession,
    CreateShareLink,
    EditPrompt,
    JoinSession,
    NoteParentTold,
    RemoveParticipant,
    RenameSession,
    ReorderQueue,
    ReportChild,
    Request,
    RequestChild,
    RequestCommand,
    RequestCompletion,
    RevokeShareLink,
    SubmitPrompt,
    TerminateSession,
    WithdrawPrompt,
)

from valet_session_ledger import decide_commands, decide_family, decide_prompts, decide_questions, decide_sharing
from valet_session_ledger.decide_commands import Target
from valet_session_ledger.digests import session_digest
from valet_session_ledger.state import BOOTING, CommandReceipt, Receipt, SessionState


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the read model adds to the state, where a decision needs it."""

    prompt: Receipt | None = None
    """The receipt of a prompt too old for the state to remember."""
    prompts: frozenset[str] = frozenset()
    """Prompts, of those a command names, that were given to the session before the state remembers."""
    took_part: bool = False
    """Whether whom a command names has ever taken part."""
    command: CommandReceipt | None = None
    """As `prompt`, of a command."""
    target: Target | None = None
    """The message a command is about."""
    role: Role | None = None
    """Of whoever asks, in a session above this one."""
    living: int = 0
    """Sessions of the tree that have not ended."""


NOTHING = Known()


_LEAST: dict[type[Request], Role] = {
    RemoveParticipant: "viewer",
    TerminateSession: "owner",
    ChangePolicy: "owner",
    AddParticipant: "owner",
    CreateShareLink: "owner",
    RevokeShareLink: "owner",
}
"""The least role a person's command takes, where it is not collaborator."""


def decide(state: SessionState | None, command: Request, *, now_ms: int, known: Known = NOTHING) -> list[Data]:
    """The facts a command makes, usually one; none if it has taken effect before. Raises `Refused`."""
    match command:
        case CreateSession():
            return _create(state, command)
        case AttachRunner():
            return _attach(state, command)
        case JoinSession():
            return decide_sharing.join(state, command, now_ms)
        case RequestChild() | ReportChild() | NoteParentTold() | RequestCompletion():
            if state is None:
                raise decide_sharing.not_found()
            return _of_a_session(state, command, known)
        case _:
            user: str = getattr(command, "user", "")
            present = decide_sharing.permitted(state, user, _LEAST.get(type(command), "collaborator"), known.role)
            return _of_a_participant(present, command, now_ms, known)


def _of_a_session(
    state: SessionState, command: RequestChild | ReportChild | NoteParentTold | RequestCompletion, known: Known
) -> list[Data]:
    """What its own agent asks, or the ledger of a session next to it."""
    match command:
        case RequestChild():
            return decide_family.request_child(state, command, known.living)
        case ReportChild():
            return decide_family.report_child(state, command)
        case NoteParentTold():
            return decide_family.note_parent_told(state, command)
        case RequestCompletion():
            return decide_family.request_completion(state, command)


def _of_a_participant(state: SessionState, command: Request, now_ms: int, known: Known) -> list[Data]:
    match command:
        case SubmitPrompt():
            return decide_prompts.submit(state, command, known.prompt)
        case EditPrompt():
            return decide_prompts.edit(state, command, known.prompt)
        case WithdrawPrompt():
            return decide_prompts.withdraw(state, command, known.prompt)
        case ReorderQueue():
            return decide_prompts.reorder(state, command, known.prompts)
        case AnswerQuestion():
            return decide_questions.answer(state, command)
        case ChangePolicy():
            return decide_questions.change_policy(state, command)
        case AbortTurn():
            return _abort(state, command)
        case RequestCommand():
            return decide_commands.request(state, command, now_ms, known.command, known.target)
        case RenameSession():
            return _rename(state, command)
        case TerminateSession():
            return _terminate(state, command)
        case AddParticipant():
            return decide_sharing.add(state, command)
        case RemoveParticipant():
            return decide_sharing.remove(state, command, known.took_part)
        case CreateShareLink():
            return decide_sharing.create_link(state, command)
        case RevokeShareLink():
            return decide_sharing.revoke_link(state, command)
        case _:
            raise TypeError(f"{type(command).__name__} is no command of the ledger")


def _create(state: SessionState | None, command: CreateSession) -> list[Data]:
    if state is None:
        decide_questions.check_policy(command.policy)
        return [
            facts.SessionRequested(
                owner=command.owner,
                title=command.title,
                repo=command.repo,
                branch=command.branch,
                model=command.model,
                policy=command.policy,
                idempotency_key=command.idempotency_key,
                parent=command.ancestors[0] if command.ancestors else None,
                ancestors=command.ancestors,
                orchestrator=command.orchestrator,
            )
        ]
    same = (command.owner, tuple(command.ancestors), None)
    if (state.owner, state.ancestors, state.source_session) != same:
        raise Conflict("session_exists", "There is a session with this id already; choose another id.")
    if state.asked and state.asked != session_digest(
        command.repo, command.branch, command.model, command.title, command.policy
    ):
        raise decide_prompts.reused()
    return []


def _abort(state: SessionState, command: AbortTurn) -> list[Data]:
    if state.turn is None:
        raise Conflict("nothing_running", "No turn is running in this session.")
    if state.turn.interrupt_due_ms is not None:
        return []
    return [facts.TurnInterruptRequested(turn_id=state.turn.turn_id, by=command.user)]


def _terminate(state: SessionState, command: TerminateSession) -> list[Data]:
    decide_family.check_above(state, command.session)
    if state.phase == "terminated":
        return []
    return [facts.SessionTerminated(by=command.user, session=command.session, detail=command.reason)]


def _rename(state: SessionState, command: RenameSession) -> list[Data]:
    title = command.title.strip()
    if not title:
        raise Unprocessable("title_empty", "Give the session a title of at least one character.")
    return (
        []
        if (state.title, state.given_title) == (title, title)
        else [facts.SessionRenamed(title=title, by=command.user)]
    )


def _attach(state: SessionState | None, command: AttachRunner) -> list[Data]:
    if state is None:
        raise decide_sharing.not_found()
    epoch = command.epoch
    if epoch > state.requested_epoch:
        raise Conflict("unknown_epoch", f"No sandbox of epoch {epoch} was requested.")
    if epoch < max(state.requested_epoch, state.attached_epoch):
        raise Conflict(
            "replaced", f"The session has moved on to epoch {state.requested_epoch}; this runner is not needed."
        )
    if state.attached_epoch == epoch and (state.phase in BOOTING or state.phase == "ready"):
        return []
    if state.phase not in BOOTING:
        raise Conflict("replaced", f"The session is {state.phase}; this runner is not needed.")
    return [
        facts.RunnerAttached(
            epoch=epoch, runner_version=command.runner_version, opencode_version=command.opencode_version
        )
    ]


# -- what has happened before ----------------------------------------------------------------------------------


def effect_seq(state: SessionState, command: Request, known: Known = NOTHING) -> int:
    """The sequence at which a command that gave no facts took effect."""
    match command:
        case SubmitPrompt() | EditPrompt():
            receipt = decide_prompts.receipt_of(state, command.prompt_id) or known.prompt
            return receipt.seq if receipt is not None else state.fact_seq
        case WithdrawPrompt():
            receipt = decide_prompts.receipt_of(state, command.prompt_id) or known.prompt
            return receipt.withdrawn if receipt is not None else state.fact_seq
        case RequestCommand():
            requested = decide_commands.command_receipt_of(state, command.request_id) or known.command
            return requested.seq if requested is not None else state.fact_seq
        case AnswerQuestion():
            answer = decide_questions.given_before(state, command)
            return answer.seq if answer is not None else state.fact_seq
        case AbortTurn() if state.turn is not None:
            return state.turn.interrupt_seq
        case RequestChild():
            child = decide_family.child_of(state, derived_id(state.session_id, "child", command.request_id))
            return child.seq if child is not None else state.fact_seq
        case TerminateSession():
            return state.ended_seq
        case _:
            return state.fact_seq


def accepted(state: SessionState, prompt_id: str, seq: int) -> Accepted:
    """The reply to `SubmitPrompt`."""
    turn = state.turn
    if any(prompt.prompt_id == prompt_id for prompt in decide_prompts.waiting_prompts(state)):
        return Accepted(prompt_id=prompt_id, seq=seq, status="queued")
    active = turn is not None and prompt_id in (turn.prompt_id, *turn.more)
    return Accepted(prompt_id=prompt_id, seq=seq, status="dispatched" if active else "done")


def attached(state: SessionState, seq: int) -> Attached:
    """The reply to `AttachRunner`."""
    waiting = state.turn is not None and state.turn.started_epoch is None
    return Attached(
        seq=seq,
        base_commit=state.base_commit,
        policy=state.policy,
        work=state.work,
        active_turn=state.turn.turn_id if state.turn is not None and waiting else None,
    )
