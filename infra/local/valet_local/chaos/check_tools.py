"""What agents ask of the platform is done once: memories, tasks, child sessions. Pure.

Each carries a word that is used once. A call of which the agent was told that it was done is done; one that was cut off
is done once or not at all.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from valet_local.chaos.check_prompts import text
from valet_local.chaos.records import History, Stored, Violation

_TOKEN = re.compile(r"\bt[0-9a-f]{10}\b")


def notes_are_written_once(history: History) -> Iterator[Violation]:
    """Memories and tasks."""
    for tool, found in (("write_memory", history.memories), ("create_task", history.tasks)):
        count = _tokens(found)
        told = _told_to_be_done(history.stream, tool)
        for token in sorted(count.keys() | told.keys()):
            if count[token] > 1 or (token in told and not count[token]):
                session, seq = told.get(token, ("", None))
                what = f"{tool} for {token} is there {count[token]} times"
                yield Violation(rule="what an agent notes is written once", session_id=session, seq=seq, what=what)


def children_are_spawned_once(history: History) -> Iterator[Violation]:
    """One session for each call, whose title is the word; and none that was asked for is missing."""
    rule = "a child is spawned once"
    created = Counter(
        (text(event, "parent"), event.session_id) for event in history.stream if event.type == "fact.session_requested"
    )
    over = {event.session_id for event in history.stream if event.type == "fact.session_terminated"}
    titles: list[str] = []
    for event in history.stream:
        if event.type == "fact.session_requested" and text(event, "parent"):
            titles.append(text(event, "title"))
        elif event.type == "fact.child_requested":
            child = text(event, "child_id")
            times = created[(event.session_id, child)]
            if times > 1 or (not times and event.session_id not in over):
                what = f"the child {child} was made {times} times"
                yield Violation(rule=rule, session_id=event.session_id, seq=event.seq, what=what)
    count = _tokens(titles)
    told = _told_to_be_done(history.stream, "spawn_child")
    for token in sorted(count.keys() | told.keys()):
        session, seq = told.get(token, ("", None))
        if count[token] > 1 or (token in told and not count[token] and session not in over):
            what = f"{count[token]} children have the title {token}"
            yield Violation(rule=rule, session_id=session, seq=seq, what=what)


def _tokens(found: Iterable[str]) -> Counter[str]:
    return Counter(token for one in found for token in _TOKEN.findall(one))


def _told_to_be_done(stream: Iterable[Stored], tool: str) -> dict[str, tuple[str, int]]:
    """Word → the session and sequence of the event that says that a call with it was carried out."""
    told: dict[str, tuple[str, int]] = {}
    for event in stream:
        if event.type != "agent.tool_updated" or text(event, "status") != "completed":
            continue
        if text(event, "tool").removeprefix("valet_") == tool:
            for token in _TOKEN.findall(str(event.data.get("input", ""))):
                told.setdefault(token, (event.session_id, event.seq))
    return told
