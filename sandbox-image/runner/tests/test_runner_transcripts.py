"""Claims about recorded streams: what OpenCode 1.18.33 really said, frame by frame, and the events that become of it.

`transcripts/NAME.txt` is a recording (lines `data: {…}`, cut where it repeats itself or goes on for long),
`NAME.json` what it is to come to. After a wanted change of the translation, `VALET_RENEW_TRANSCRIPTS=1 uv run pytest
sandbox-image/runner/tests/test_runner_transcripts.py` writes the expectations anew; look at the difference before
keeping it.
"""

import os
from pathlib import Path

import msgspec
import pytest
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_runner import failover, frames, translate, turn_state, turns
from valet_runner.bridge_state import BridgeState, Chunk, Item
from valet_runner.events_stream import DataLines
from valet_runner.turns import Turn

FOLDER = Path(__file__).parent / "transcripts"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))

# Recordings that begin before the turn that is meant: its user message.
FACT = facts.TurnDispatched(
    turn_id="t", prompt_id="p", content="", model="fake/fake-1", fallbacks=["fake/fake-2"], author="u"
)


def recorded(name: str) -> list[frames.Shape]:
    found = DataLines().feed((FOLDER / f"{name}.txt").read_bytes())
    return [frame for line in found if (frame := frames.decode(line)) is not None]


def user_messages(seen: list[frames.Shape]) -> list[frames.Info]:
    return [frame.info for frame in seen if isinstance(frame, frames.MessageUpdated) and frame.info.role == "user"]


def conversation(seen: list[frames.Shape]) -> BridgeState:
    """The state at the turn's begin: the newest conversation of the recording and its first new prompt."""
    made = [f.info.id for f in seen if isinstance(f, frames.SessionSeen) and not f.info.parent_id]
    users = user_messages(seen)
    root = users[-1].session_id if users else made[-1] if made else ""
    if not root:
        root = next((f.session_id or "" for f in seen if isinstance(f, frames.SessionError)), "")
    first = next((info.id for info in users if info.session_id == root), "")
    return turn_state.begin_turn(BridgeState(root=root), first)


def play(name: str) -> dict[str, object]:
    seen = recorded(name)
    state = conversation(seen)
    # who recorded these asked for the abort
    turn = Turn(fact=FACT, user_message=state.floor or "", began=0.0, interrupted=name.startswith("abort_"))
    for info in user_messages(seen):
        if info.session_id == state.root:
            state = turn_state.asked(state, info.id)
    said: list[Item] = []
    settled: list[int] = []
    for frame in seen:
        state, items = translate.translate(state, frame)
        said += items
        if state.idle and turns.settled(state, turn):
            settled.append(len(said))
    switch = failover.plan(state, turn)
    gives_up = failover.gives_up(state, turn, 10**15)  # only how often counts: the clock is not the recording's
    ended = turns.outcome(state, turn, 1.0)
    _, left = turn_state.end_turn(state, "the recording ended")
    return {
        "events": merged(said),
        "settled": bool(settled),
        "left": merged(left),
        "ended": plain(ended),
        "next_model": None if switch is None else {"start_over": switch.start_over, "error": plain(switch.error)},
        "gives_up": None if gives_up is None else gives_up.message,
    }


def merged(items: list[Item]) -> list[object]:
    """The events as plain values; the chunks of a part that follow each other are one."""
    out: list[Item] = []
    for item in items:
        last = out[-1] if out else None
        if isinstance(item, Chunk) and isinstance(last, Chunk) and last.delta.part_id == item.delta.part_id:
            assert item.delta.offset == last.delta.offset + len(last.delta.text)
            delta = msgspec.structs.replace(last.delta, text=last.delta.text + item.delta.text)
            out[-1] = msgspec.structs.replace(last, delta=delta)
        else:
            out.append(item)
    return [plain(item.delta if isinstance(item, Chunk) else item) for item in out]


def plain(data: Data) -> object:
    return {"event": type(data).__name__, **msgspec.to_builtins(data)}


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_becomes_the_events_it_always_became(name: str) -> None:
    came_to = msgspec.json.decode(msgspec.json.encode(play(name)))
    expected = FOLDER / f"{name}.json"
    if os.environ.get("VALET_RENEW_TRANSCRIPTS"):
        expected.write_bytes(msgspec.json.format(msgspec.json.encode(came_to), indent=1) + b"\n")
    assert came_to == msgspec.json.decode(expected.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_that_comes_twice_says_nothing_new_the_second_time(name: str) -> None:
    seen = recorded(name)
    state, _ = translate.translate_all(conversation(seen), seen)
    durable = [
        frame
        for frame in seen
        if isinstance(frame, frames.MessageUpdated | frames.PartUpdated | frames.QuestionAsked | frames.PermissionAsked)
    ]
    _, again = translate.translate_all(state, durable)
    kinds = {"QuestionAsked", "QuestionResolved"}  # asked anew once resolved: the listing decides, see `reconcile`
    assert [item for item in again if type(item).__name__ not in kinds] == []
