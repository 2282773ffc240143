"""What must hold of any client and any session, checked from outside."""

from collections import defaultdict
from typing import Any

from harness.platform import Platform
from harness.stream import Follower, Received


def exactly_once(platform: Platform, session: str, follower: Follower) -> None:
    """What a client that was cut and resumed has, against a fresh reading of the whole history.

    Deltas of completed messages are gone from the history by then: for them the texts must add up.
    """
    sequences = [event.seq for event in follower.events]
    assert sequences == sorted(set(sequences)), "an event came twice or out of order"
    identifiers = [event.event["id"] for event in follower.events]
    assert len(identifiers) == len(set(identifiers)), "one event is in the log twice"
    last = sequences[-1]
    with platform.follow(session) as fresh:
        fresh.wait(lambda event: event.seq >= last, what="the whole history")
        whole = [event for event in fresh.events if event.seq <= last]
    assert lasting(follower.events) == lasting(whole), "the resumed client missed an event"
    texts_add_up(follower.events)


def lasting(events: list[Received]) -> list[tuple[int, str]]:
    return [(event.seq, event.type) for event in events if not event.type.startswith("delta.")]


def texts_add_up(events: list[Received]) -> None:
    """The streamed chunks of every completed part, joined by offset, are its text without a gap."""
    chunks: dict[str, dict[int, str]] = defaultdict(dict)
    for event in events:
        if event.type.startswith("delta."):
            chunks[event.data["part_id"]][event.data["offset"]] = event.data["text"]
        elif event.type == "agent.text_completed" and event.data["part_id"] in chunks:
            joined = ""
            for offset, text in sorted(chunks[event.data["part_id"]].items()):
                assert offset <= len(joined), f"deltas of {event.data['part_id']} have a gap at {len(joined)}"
                joined += text[len(joined) - offset :]
            whole = event.data["text"]
            if not whole:  # a try the provider cut short: the agent withdrew its text and began another part
                continue
            assert joined.strip() == whole.strip(), f"{event.data['part_id']}: streamed {joined!r}, stored {whole!r}"


def rebuilt_equals_live(platform: Platform) -> None:
    """The read models equal a rebuild from the log."""
    result = platform.cli("ledger", "rebuild", "--verify")
    assert result.returncode == 0, result.stdout + result.stderr


def assistant_text(messages: list[dict[str, Any]]) -> str:
    return "\n".join(message["text"] for message in messages if message["role"] == "assistant")
