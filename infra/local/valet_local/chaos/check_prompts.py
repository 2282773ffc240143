"""Prompts and answers: what was accepted has an end, and only one. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import cast

from valet_local.chaos.records import History, Stored, Violation

_ENDS = frozenset({"fact.session_terminated", "fact.session_failed"})
_PROMPTING = frozenset({"prompt", "collect", "steer", "ask", "shell", "note", "spawn"})


def text(event: Stored, name: str) -> str:
    """A field of an event that is text; empty when it has none."""
    value = event.data.get(name)
    return value if isinstance(value, str) else ""


def texts(event: Stored, name: str) -> list[str]:
    """A field that is a list of texts."""
    value = event.data.get(name)
    return [str(item) for item in cast(list[object], value)] if isinstance(value, list) else []


def prompts_of(dispatched: Stored) -> list[str]:
    """The prompts of a `turn_dispatched`."""
    return texts(dispatched, "prompt_ids") or [text(dispatched, "prompt_id")]


def turn_ends(stream: Iterable[Stored]) -> dict[str, str]:
    """Turn → how it ended. The first end counts: a turn given up cannot be completed by a runner that was too late."""
    ends: dict[str, str] = {}
    for event in stream:
        if event.type == "agent.turn_ended":
            ends.setdefault(text(event, "turn_id"), text(event, "status"))
        elif event.type == "fact.turn_interrupted":
            ends.setdefault(text(event, "turn_id"), "interrupted")
    return ends


def accepted_prompts_are_in_the_log(history: History) -> Iterator[Violation]:
    """What was answered with 202 is in the log, once, in its session."""
    stored = Counter(
        (event.session_id, text(event, "prompt_id")) for event in history.stream if event.type == "fact.prompt_accepted"
    )
    for act in history.acts:
        if act.kind in _PROMPTING and act.method == "POST" and act.status == 202:
            prompt_id = str(act.answer.get("prompt_id", ""))
            count = stored[(act.session_id, prompt_id)]
            if count != 1:
                seq = act.answer.get("seq")
                yield Violation(
                    rule="an accepted prompt is in the log once",
                    session_id=act.session_id,
                    seq=seq if isinstance(seq, int) else None,
                    what=f"prompt {prompt_id} was accepted with 202; it is in the log {count} times",
                )


def prompts_end(history: History) -> Iterator[Violation]:
    """Every prompt in the log was answered, or has an end that says why not."""
    ends = turn_ends(history.stream)
    over = {event.session_id for event in history.stream if event.type in _ENDS}
    withdrawn: set[str] = set()
    turns: dict[str, set[str]] = {}
    for event in history.stream:
        if event.type == "fact.turn_dispatched":
            for prompt_id in prompts_of(event):
                turns.setdefault(prompt_id, set()).add(text(event, "turn_id"))
        elif event.type == "agent.prompt_taken" and text(event, "outcome") == "delivered":
            turns.setdefault(text(event, "prompt_id"), set()).add(text(event, "turn_id"))
        elif event.type == "fact.prompt_withdrawn":
            withdrawn.add(text(event, "prompt_id"))
    for event in history.stream:
        if event.type != "fact.prompt_accepted":
            continue
        prompt_id = text(event, "prompt_id")
        had = turns.get(prompt_id, set())
        if not (prompt_id in withdrawn or any(turn in ends for turn in had) or event.session_id in over):
            what = (
                f"its turn {', '.join(sorted(had))} has no end" if had else "it never had a turn and was not withdrawn"
            )
            yield Violation(
                rule="every accepted prompt is answered or ended",
                session_id=event.session_id,
                seq=event.seq,
                what=f"prompt {prompt_id}: {what}",
            )


def prompts_have_one_turn(history: History) -> Iterator[Violation]:
    """No prompt is dispatched twice, and none after it was withdrawn."""
    dispatched: dict[str, Stored] = {}
    withdrawn: dict[str, Stored] = {}
    for event in history.stream:
        if event.type == "fact.prompt_withdrawn":
            withdrawn[text(event, "prompt_id")] = event
        elif event.type == "fact.turn_dispatched":
            for prompt_id in prompts_of(event):
                before = dispatched.setdefault(prompt_id, event)
                if before is not event:
                    yield Violation(
                        rule="a prompt has one turn",
                        session_id=event.session_id,
                        seq=event.seq,
                        what=f"prompt {prompt_id} was dispatched already at {before.seq}",
                    )
                if prompt_id in withdrawn:
                    yield Violation(
                        rule="a withdrawn prompt never becomes a turn",
                        session_id=event.session_id,
                        seq=event.seq,
                        what=f"prompt {prompt_id} was withdrawn at {withdrawn[prompt_id].seq}",
                    )


def changes_count(history: History) -> Iterator[Violation]:
    """A change that was granted is what happens: a text edited (200) is the one that is dispatched, what was withdrawn
    (200) is in the log as withdrawn. Nothing is changed once it has a turn.
    """
    dispatched: dict[str, Stored] = {}
    edited: dict[str, Stored] = {}
    withdrawn: set[str] = set()
    for event in history.stream:
        prompt_id = text(event, "prompt_id")
        if event.type == "fact.prompt_edited":
            edited[prompt_id] = event
        elif event.type == "fact.prompt_withdrawn":
            withdrawn.add(prompt_id)
        elif event.type == "fact.turn_dispatched":
            dispatched |= dict.fromkeys(prompts_of(event), event)
        if event.type in ("fact.prompt_edited", "fact.prompt_withdrawn") and prompt_id in dispatched:
            yield _too_late(event, dispatched[prompt_id])
    for prompt_id, edit in edited.items():
        turn = dispatched.get(prompt_id)
        if turn is not None and turn.seq > edit.seq and text(edit, "content") not in text(turn, "content"):
            what = f"prompt {prompt_id} was edited at {edit.seq} to {text(edit, 'content')!r}, which was not dispatched"
            yield Violation(rule="a granted change counts", session_id=turn.session_id, seq=turn.seq, what=what)
    for act in history.acts:
        known = {"edit": edited.keys(), "withdraw": withdrawn}.get(act.kind)
        if known is not None and act.about and act.status == 200 and act.about not in known:
            what = f"to {act.kind} prompt {act.about} was granted with 200; the log has no such fact"
            yield Violation(rule="a granted change counts", session_id=act.session_id, seq=None, what=what)


def _too_late(change: Stored, dispatched: Stored) -> Violation:
    return Violation(
        rule="nothing is changed once it has a turn",
        session_id=change.session_id,
        seq=change.seq,
        what=f"{change.type} of prompt {text(change, 'prompt_id')}, which was dispatched at {dispatched.seq}",
    )


def commands_end(history: History) -> Iterator[Violation]:
    """Every command between two turns has a result or a named time-out."""
    over = {event.session_id for event in history.stream if event.type in _ENDS}
    ended = {
        text(event, "request_id")
        for event in history.stream
        if event.type in ("agent.command_completed", "fact.command_timed_out")
    }
    for event in history.stream:
        if event.type == "fact.command_requested" and event.session_id not in over:
            request_id = text(event, "request_id")
            if request_id not in ended:
                what = f"{text(event, 'command')} {request_id} has neither a result nor a time-out"
                yield Violation(rule="every command ends", session_id=event.session_id, seq=event.seq, what=what)


def answers_count_once(history: History) -> Iterator[Violation]:
    """A question has one answer; a person's answer that was taken (200) is the one."""
    answered: dict[tuple[str, str], Stored] = {}
    for event in history.stream:
        if event.type == "fact.question_answered":
            key = (event.session_id, text(event, "question_id"))
            before = answered.setdefault(key, event)
            if before is not event:
                yield Violation(
                    rule="a question is answered once",
                    session_id=event.session_id,
                    seq=event.seq,
                    what=f"question {key[1]} was answered already at {before.seq}",
                )
    for act in history.acts:
        if act.kind == "answer" and act.status == 200:
            key = (act.session_id, act.about)
            fact = answered.get(key)
            if fact is None or text(fact, "answered_by") != "person":
                found = "there is none" if fact is None else f"the log has one by {text(fact, 'answered_by')}"
                yield Violation(
                    rule="an answer that was taken counts",
                    session_id=act.session_id,
                    seq=None if fact is None else fact.seq,
                    what=f"a person's answer to {key[1]} was taken with 200; {found}",
                )


def listed_as_they_are(history: History) -> Iterator[Violation]:
    """Where the API lists prompts: every one of the log is there and has come to an end."""
    for session in history.sessions:
        if not session.prompts:
            continue
        for event in history.stream:
            if event.type != "fact.prompt_accepted" or event.session_id != session.session_id:
                continue
            status = session.prompts.get(text(event, "prompt_id"), "missing")
            if status not in ("done", "withdrawn", "dropped"):
                yield Violation(
                    rule="every accepted prompt is answered or ended",
                    session_id=session.session_id,
                    seq=event.seq,
                    what=f"the API lists prompt {text(event, 'prompt_id')} as {status}; expected an end",
                )


def ids_are_unique(history: History) -> Iterator[Violation]:
    """No event is in the log twice."""
    seen: dict[str, Stored] = {}
    for event in history.stream:
        before = seen.setdefault(event.id, event)
        if before is not event:
            yield Violation(
                rule="no event is stored twice",
                session_id=event.session_id,
                seq=event.seq,
                what=f"{event.type} {event.id} is in the log already at {before.seq}",
            )
