"""Effects: what the agent's tools did, they did once. Pure.

Every scripted prompt has a token; its turn appends the token to the file `marks/<token>`. The session's diff shows how
often that was done.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from valet_local.chaos.check_prompts import text, turn_ends
from valet_local.chaos.records import History, SessionRecord, Stored, Violation

TOKEN = re.compile(r"mark (t[0-9a-f]{10})")
_FILE = re.compile(r"^\+\+\+ b/marks/(t[0-9a-f]{10})\s*$")

Bounds = tuple[int, int]
"""How often at least and at most."""

RULE = "an effect happens once"


def effects_happen_once(history: History) -> Iterator[Violation]:
    """In no session a token occurs twice; of every completed turn it occurs exactly once; of what was withdrawn or
    edited away before it became a turn, never.
    """
    by_session: dict[str, list[Stored]] = defaultdict(list)
    for event in history.stream:
        by_session[event.session_id].append(event)
    for session in history.sessions:
        if session.status == "terminated":
            continue  # its files went with it
        if session.truncated:
            yield _of(session, None, "the diff is cut off: its effects cannot be counted")
            continue
        yield from _of_session(session, by_session[session.session_id], by_session.get(session.source, []))


def _of_session(session: SessionRecord, events: list[Stored], source: list[Stored]) -> Iterator[Violation]:
    found = marks(session.patch)
    wanted = expected(events)
    inherited = {token for event in source for token in TOKEN.findall(text(event, "content"))}
    for token in sorted(found.keys() | wanted.keys()):
        count = found[token]
        if token in wanted:
            (least, most), seq = wanted[token]
        else:
            least, most, seq = 0, 1 if token in inherited else 0, None
        if not least <= count <= most:
            should = f"{least} times" if least == most else f"{least} to {most} times"
            yield _of(session, seq, f"{token} was marked {count} times; expected {should}")


def marks(patch: str) -> Counter[str]:
    """Token → how often a diff shows it in the file of its name."""
    found: Counter[str] = Counter()
    token = ""
    for line in patch.splitlines():
        named = _FILE.match(line)
        if named:
            token = named[1]
        elif line.startswith("diff --git "):
            token = ""
        elif token and line.startswith("+"):
            found[token] += line[1:].count(token)
    return found


def expected(events: list[Stored]) -> dict[str, tuple[Bounds, int]]:
    """Token → how often it must be there, and the sequence of the event that says so."""
    ends = turn_ends(events)
    reverts = [
        event for event in events if event.type == "fact.command_requested" and text(event, "command") == "revert"
    ]
    bounds: dict[str, tuple[Bounds, int]] = {}
    for event in events:
        if event.type != "fact.turn_dispatched":
            continue
        turn = text(event, "turn_id")
        steered = _steered_into(events, turn)
        completed = ends.get(turn) == "completed" and not _taken_back(events, event, reverts)
        own = TOKEN.findall(text(event, "content"))
        said = [*own, *(token for content in steered for token in TOKEN.findall(content))]
        # with something steered into it the model may go on with that and leave the rest: only the last is certain
        certain = set(own) if not steered else set(TOKEN.findall(steered[-1]))
        for token in said:
            bounds[token] = ((1 if completed and token in certain else 0, 1), event.seq)
    return bounds


def _steered_into(events: list[Stored], turn: str) -> list[str]:
    """The texts that were delivered into a running turn, in order."""
    contents = {
        text(event, "prompt_id"): text(event, "content") for event in events if event.type == "fact.prompt_steered"
    }
    return [
        contents.get(text(event, "prompt_id"), "")
        for event in events
        if event.type == "agent.prompt_taken"
        and text(event, "turn_id") == turn
        and text(event, "outcome") == "delivered"
    ]


def _taken_back(events: list[Stored], dispatched: Stored, reverts: list[Stored]) -> bool:
    """Whether a revert may have taken the turn's files away: one that was asked for later, to this turn or before it.

    A revert that fails half-way counts as well: it may have been carried out.
    """
    for revert in reverts:
        if revert.seq < dispatched.seq:
            continue
        target = _turn_of(events, revert)
        at = next((e.seq for e in events if e.type == "fact.turn_dispatched" and text(e, "turn_id") == target), 0)
        if at <= dispatched.seq:
            return True
    return False


def _turn_of(events: list[Stored], revert: Stored) -> str:
    """The turn a revert goes back to; empty when it cannot be told, which takes every turn for taken back."""
    named = text(revert, "turn_id")
    if named:
        return named
    message = text(revert, "message_id")
    return next(
        (e.turn or "" for e in events if e.type == "agent.message_created" and text(e, "message_id") == message), ""
    )


def _of(session: SessionRecord, seq: int | None, what: str) -> Violation:
    return Violation(rule=RULE, session_id=session.session_id, seq=seq, what=what)
