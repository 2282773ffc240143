"""What `valet show` and `valet follow` make of pictures, channel replies, sub-agents and what is in the sandbox."""

from typing import Any

from msgspec.structs import replace
from valet_local.cli import tables
from valet_local.cli.pieces import Piece
from valet_local.cli.render import render
from valet_local.cli.transcript import Transcript
from valet_local.client.testing import entry, event
from valet_protocol.events import agent, machine
from valet_protocol.events.agent import Tokens
from valet_protocol.events.envelope import Data
from valet_protocol.events.facts import Sender
from valet_protocol.requests import (
    BootStepView,
    ImageView,
    MessageView,
    PartView,
    SandboxView,
    ServiceView,
    SessionView,
)

PICTURE = ImageView(image_id="i", url="/api/sessions/S/images/i", media_type="image/png", bytes=12345)


def message(*parts: PartView, role: Any = "assistant", text: str = "", **more: Any) -> MessageView:
    return MessageView(
        id="m", role=role, turn_id=None, author=None, text=text, parts=list(parts), finish=None, model=None, cost=0,
        tokens=Tokens(), error=None, parent_session=None, complete=True, created_at="2026-01-01T00:00:00.000Z", seq=1,
        **more,
    )  # fmt: skip


def part(kind: Any, text: str | None = None, **more: Any) -> PartView:
    return PartView(part_id="p", kind=kind, text=text, seq=1, **more)


def text_of(pieces: "list[Piece] | tuple[Piece, ...]") -> list[str]:
    return "".join(span.text for piece in pieces for span in piece.spans).splitlines()


def test_a_picture_is_its_caption_and_its_path_and_a_channel_reply_says_where_it_was_said():
    shown = tables.conversation(
        [
            message(
                part("text", "Look:"),
                part("image", "The \x1b[31mplan", images=[PICTURE]),
                part("channel_reply", "Still\nat it", channel="slack:C1:7", images=[PICTURE]),
            )
        ]
    )
    assert text_of(shown) == [
        "",
        "Look:",
        "▣ The �[31mplan  png, 12,345 bytes  /api/sessions/S/images/i",
        "→ slack:C1:7  said there:",
        "  Still",
        "  at it",
        "  ▣ /api/sessions/S/images/i",
    ]


def test_sub_agents_stand_below_their_tool_call_as_deep_as_they_go():
    deep = part("tool", tool="task", status="completed", messages=[message(part("text", "deep"))], more=9)
    call = part("tool", tool="task", status="running", messages=[message(part("text", "found it"), deep)])
    assert text_of(tables.conversation([message(part("text", "I ask."), call, part("text", "Thanks."))])) == [
        "",
        "I ask.",
        "▸ task  running",
        "  │ found it",
        "  │ ✓ task  completed",
        "  │   │ deep",
        "  │   │ … what it said after event 9 is left out",
        "Thanks.",
    ]


def test_a_prompt_of_another_agent_says_whose_it_is():
    sender = Sender(session_id="S2", title="The tests")
    shown = text_of(tables.conversation([message(role="user", text="Go on", sender=sender)]))
    assert shown[1:] == ["> Go on", "  from the agent of The tests (S2)"]


def test_a_session_names_what_is_in_its_sandbox_and_nothing_that_is_not():
    process = machine.ProcessInfo(
        id="proc_1", command="npm", args=["run", "dev"], cwd="/", pid=1, pty=False, created_at="2026-01-01T00:00:00Z"
    )
    view = SessionView(
        id="S", status="ready", status_detail="", owner="u", title="", repo=None, branch=None, model="p/m",
        created_at="2026-01-01T00:00:00.000Z", updated_at="2026-01-01T00:00:00.000Z", epoch=1, cost=0.0,
        tokens=Tokens(), turns=0, seq=1, sandbox=SandboxView(),
    )  # fmt: skip
    names = ("tunnels", "processes", "services", "last boot")
    assert not [line for line in text_of(tables.session(view)) if line.startswith(names)]
    sandbox = SandboxView(
        tunnels=[machine.Tunnel(name="web", port=3000, description="The page")],
        processes=[process, *(ended(number) for number in range(3))],
        services=[ServiceView(service="vnc", state="stopped", detail="no display", since="2026-01-01T00:00:00Z")],
        boot=[
            BootStepView(step="clone", ms=1200, outcome="ok"),
            BootStepView(step="desktop", ms=0, outcome="absent"),
            BootStepView(step="terminal", ms=0, outcome="ok", detail="the platform's own"),
        ],
    )
    shown = [line.split(maxsplit=1) for line in text_of(tables.session(replace(view, sandbox=sandbox)))[-4:]]
    assert shown == [
        ["tunnels", "web → 3000 (The page)"],
        ["processes", "1 running, 3 ended lately: npm run dev"],
        ["services", "vnc stopped (no display)"],
        ["last", "boot   clone 1.2 s, desktop absent, terminal (the platform's own)"],
    ]


def ended(number: int) -> machine.ProcessInfo:
    return machine.ProcessInfo(
        id=f"proc_e{number}", command="ls", cwd="/", pid=1, pty=False, status="exited", exit_code=0,
        created_at="2026-01-01T00:00:00Z",
    )  # fmt: skip


def followed(*events: Data) -> list[str]:
    state, found = Transcript(live=True), []
    for data in events:
        state, fresh = render(state, entry(event(data)))
        found += fresh
    return text_of(found)


def test_who_follows_sees_pictures_replies_and_what_sub_agents_do_below_their_call():
    image = machine.ImageShown(
        image_id="i", object="sessions/S/images/i", media_type="image/png", bytes=5, sha256="x", caption="The plan"
    )
    reply = machine.ChannelReplied(reply_id="r", channel="slack:C1", text="Soon", image_ids=["i"])
    assert followed(image, reply) == [
        "▣ The plan  png, 5 bytes  /api/sessions/S/images/i",
        "→ slack:C1  said there:",
        "  Soon",
        "  ▣ picture i",
    ]
    assert followed(
        agent.ToolUpdated(message_id="m", part_id="t", call_id="c", tool="task", status="running"),
        agent.MessageCreated(message_id="h", parent_session="ses_1"),
        agent.ToolUpdated(message_id="h", part_id="u", call_id="d", tool="bash", status="completed", output="ok\n"),
        agent.TextCompleted(message_id="h", part_id="v", kind="text", text="All\ngood"),
    ) == ["▸ task  running", "  │ ✓ bash  completed", "  │     ok", "  │ All good"]
