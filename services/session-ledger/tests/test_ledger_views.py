"""Claims about what views show besides text: what is in the sandbox, pictures, channel replies, sub-agents, channels.

Real NATS, PostgreSQL and ledger; fake are the runners.
"""

import pytest
from msgspec.structs import replace
from valet_protocol.codec import rfc3339
from valet_protocol.errors import NotFound
from valet_protocol.events import agent, machine, sandbox
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    Accepted,
    AddParticipant,
    Done,
    FindImage,
    ForkSession,
    ImagePlace,
    ImageView,
    ListMessages,
    ListSessions,
    MessagePage,
    MessageView,
    PartView,
    SandboxView,
    SessionPage,
    SessionView,
    SubmitPrompt,
)
from valet_protocol.tools.channels import ChannelList, ListChannels
from valet_session_ledger import limits, rebuild
from valet_session_ledger.testing import FakeSandbox, LedgerProcess, Platform


def _process(name: str, *, args: list[str] | None = None, exit_code: int | None = None) -> machine.ProcessInfo:
    return machine.ProcessInfo(
        id=name,
        command="npm",
        args=args or [],
        cwd="/workspace",
        pid=7,
        pty=False,
        status="running" if exit_code is None else "exited",
        exit_code=exit_code,
        created_at=rfc3339(0),
    )


async def _sandbox(platform: Platform, session_id: str) -> SandboxView:
    view = (await platform.session(session_id)).sandbox
    assert view is not None
    return view


async def test_a_session_shows_what_there_is_in_its_sandbox_and_nothing_once_that_is_gone(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    assert await _sandbox(platform, session_id) == SandboxView()
    web, api = machine.Tunnel(name="web", port=3000, description="The page"), machine.Tunnel(name="api", port=1)
    for data in (
        machine.BootStepCompleted(step="git", ms=1, outcome="ok"),
        machine.BootStepCompleted(step="clone", ms=9, outcome="ok"),
        machine.BootStepCompleted(step="desktop", ms=0, outcome="absent", detail="no Xvfb"),
        machine.ServiceChanged(service="vscode", state="running"),
        machine.ServiceChanged(service="ttyd", state="running"),
        machine.ServiceChanged(service="vscode", state="stopped", detail="it ended"),
        machine.TunnelsChanged(tunnels=[api]),
        machine.TunnelsChanged(tunnels=[api, web]),
        machine.ProcessCreated(process=_process("proc_dev", args=["run\0", "x" * 9000, "never shown"])),
        machine.ProcessCreated(process=_process("proc_gone")),
        machine.ProcessCreated(process=_process("proc_one")),
        machine.ProcessExited(process=_process("proc_one", exit_code=0)),
        machine.ProcessDeleted(process_id="proc_gone"),
        *(machine.ProcessExited(process=_process(f"proc_{n}", exit_code=n)) for n in range(limits.ENDED_PROCESSES)),
    ):
        await runner.agent(data)
    shown = await _sandbox(platform, session_id)
    assert shown.tunnels == [api, web]
    assert [(item.service, item.state, item.detail) for item in shown.services] == [
        ("ttyd", "running", ""),
        ("vscode", "stopped", "it ended"),
    ]
    assert [(item.step, item.ms, item.outcome) for item in shown.boot] == [
        ("git", 1, "ok"),
        ("clone", 9, "ok"),
        ("desktop", 0, "absent"),
    ]
    running, *ended = shown.processes
    assert (running.id, running.args) == ("proc_dev", ["run\0", "x" * (limits.PROCESS_CHARACTERS - 4) + "…"])
    assert [item.id for item in ended] == [f"proc_{n}" for n in reversed(range(limits.ENDED_PROCESSES))]
    (listed,) = (await platform.ask(ListSessions(user="ada"), SessionPage)).items
    assert listed.sandbox is None

    # a process of a sandbox that is gone does not run, though nothing in the log says so of it
    await runner.sandbox(sandbox.SandboxHibernated(epoch=1, reason="idle"))
    await platform.until(session_id, lambda view: view.status == "hibernated")
    assert await _sandbox(platform, session_id) == SandboxView(boot=shown.boot)
    await platform.prompt(session_id)
    await platform.until(session_id, lambda view: view.epoch == 2)
    again = await platform.boot(session_id, epoch=2)
    await runner.agent(machine.ProcessCreated(process=_process("proc_of_the_old_one")))
    for data in (
        machine.BootStepCompleted(step="clone", ms=2, outcome="ok"),
        machine.ServiceChanged(service="vnc", state="running"),
        machine.ProcessCreated(process=_process("proc_new")),
    ):
        await again.agent(data)
    shown = await _sandbox(platform, session_id)
    assert [item.id for item in shown.processes] == ["proc_new"]
    assert [item.service for item in shown.services] == ["vnc"]
    assert [(item.step, item.ms) for item in shown.boot] == [("clone", 2)]
    assert shown.tunnels == [api, web], "its home keeps them"
    await again.sandbox(sandbox.SandboxLost(epoch=2, kind="gone", detail="killed"))
    await platform.until(session_id, lambda view: view.epoch == 3)
    assert (await _sandbox(platform, session_id)) == SandboxView(boot=shown.boot)
    await rebuild.verify(ledger.settings)


def _image(session_id: str, turn_id: str | None, image_id: str, caption: str = "") -> machine.ImageShown:
    return machine.ImageShown(
        turn_id=turn_id,
        image_id=image_id,
        object=f"sessions/{session_id}/images/{image_id}",
        media_type="image/png",
        bytes=5,
        sha256="x",
        caption=caption,
    )


def _task(message_id: str, part_id: str, conversation: str | None, status: agent.ToolStatus = "running"):
    said: dict[str, object] = {} if conversation is None else {"sessionId": conversation}
    return agent.ToolUpdated(
        message_id=message_id, part_id=part_id, call_id=part_id, tool="task", status=status, metadata=said
    )


async def _says(runner: FakeSandbox, turn_id: str, message_id: str, text: str, parent: str | None = None) -> None:
    """A message with a text that is whole."""
    for data in (
        agent.MessageCreated(message_id=message_id, parent_session=parent),
        agent.TextCompleted(message_id=message_id, part_id=f"prt_{message_id}", kind="text", text=text),
        agent.MessageCompleted(message_id=message_id, text=text, parent_session=parent),
    ):
        await runner.agent(data, turn_id)


def _outline(message: MessageView) -> tuple[str, list[str]]:
    return message.role, [part.text or part.kind for part in message.parts]


async def _page(platform: Platform, session_id: str, **fields: object) -> MessagePage:
    request = ListMessages(session_id=session_id, user="ada", **fields)  # type: ignore[arg-type]
    return await platform.ask(request, MessagePage)


async def test_pictures_and_channel_replies_stand_where_the_agent_showed_and_said_them(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    await runner.agent(_image(session_id, None, "before", "Before any turn"))
    submit = SubmitPrompt(
        session_id=session_id, user="ada", prompt_id=new_id(), content="Draw it", channel="slack:C1:7"
    )
    await platform.ask(submit, Accepted)
    turn_id, prompt_id = await platform.dispatched(session_id)
    await runner.agent(agent.TurnStarted(turn_id=turn_id, prompt_id=prompt_id, opencode_session="o"), turn_id)
    await runner.agent(_image(session_id, turn_id, "early", "Early"), turn_id)
    await runner.agent(agent.MessageCreated(message_id="m1"), turn_id)
    tool = agent.ToolUpdated(message_id="m1", part_id="prt_2", call_id="c", tool="show_image", status="running")
    await runner.agent(tool, turn_id)
    await runner.agent(_image(session_id, turn_id, "shown", "The plan"), turn_id)
    await runner.agent(agent.TextCompleted(message_id="m1", part_id="prt_1", kind="text", text="Look:"), turn_id)
    await runner.agent(agent.TextCompleted(message_id="m1", part_id="prt_3", kind="text", text="Nice?"), turn_id)
    reply = machine.ChannelReplied(
        turn_id=turn_id, reply_id="reply", channel="slack:C1:7", text="Still at it", image_ids=["shown", "unknown"]
    )
    for data in (reply, reply, _image(session_id, turn_id, "shown", "The plan")):  # a repeated call is the same one
        await runner.agent(data, turn_id)
    await _says(runner, turn_id, "m2", "Done")
    await runner.agent(agent.TurnEnded(turn_id=turn_id, status="completed"), turn_id)
    await runner.agent(machine.ChannelReplied(reply_id="late", channel="slack:C1:7", text="By the way"))
    await platform.prompt(session_id, "And then?")
    second, _ = await platform.dispatched(session_id, turns=2)
    page = await _page(platform, session_id)
    assert [_outline(message) for message in page.items] == [
        ("assistant", ["Before any turn"]),
        ("user", ["Early"]),
        ("assistant", ["Look:", "tool", "The plan", "Nice?", "Still at it"]),
        ("assistant", ["Done"]),
        ("assistant", ["By the way"]),
        ("user", []),
    ]
    picture = ImageView(
        image_id="shown", url=f"/api/sessions/{session_id}/images/shown", media_type="image/png", bytes=5
    )
    parts = {part.part_id: part for part in page.items[2].parts}
    assert (parts["shown"].kind, parts["shown"].images) == ("image", [picture])
    unknown = ImageView(image_id="unknown", url=f"/api/sessions/{session_id}/images/unknown")
    assert parts["reply"] == PartView(
        part_id="reply",
        kind="channel_reply",
        text="Still at it",
        channel="slack:C1:7",
        images=[picture, unknown],
        seq=parts["reply"].seq,
    )
    # page by page it is the same, in both directions
    paged: list[MessageView] = []
    after: int | None = 0
    while after is not None:
        one = await _page(platform, session_id, limit=1, after=after)
        paged, after = paged + one.items, one.next
    assert paged == page.items
    assert (await _page(platform, session_id, limit=2, before=1 << 60)).items == page.items[-2:]

    # the agent hears of the channels that people, not agents, spoke from
    asked = ListChannels(session_id=session_id, request_id="r")
    channels = await platform.tool(asked)
    assert isinstance(channels, ChannelList)
    assert [(item.channel, item.title) for item in channels.items] == [
        ("web:default", "the session's page"),
        ("slack:C1:7", "Slack C1:7"),
    ]
    assert all(item.last_used_at for item in channels.items)

    # a fork has them too, its pictures under its own address, and nobody has spoken to it yet
    await runner.agent(agent.TurnEnded(turn_id=second, status="completed"), second)
    await platform.until(session_id, lambda view: not view.active_turn)
    forked = ForkSession(session_id=new_id(), owner="ada", source_session=session_id)
    fork = await platform.ask(forked, SessionView)
    copy = await _page(platform, fork.id)
    assert [_outline(message) for message in copy.items] == [_outline(message) for message in page.items]
    (shown,) = {part.part_id: part for part in copy.items[2].parts}["shown"].images
    assert shown == replace(picture, url=f"/api/sessions/{fork.id}/images/shown")
    assert fork.sandbox == SandboxView()
    assert (await platform.tool(ListChannels(session_id=fork.id, request_id="r"))).items == []
    await rebuild.verify(ledger.settings)


async def _place(platform: Platform, session_id: str, image_id: str, user: str = "ada") -> str:
    asked = FindImage(session_id=session_id, user=user, image_id=image_id)
    return (await platform.ask(asked, ImagePlace)).session_id


async def test_a_fork_has_the_pictures_that_came_with_it_and_no_others(
    ledger: LedgerProcess, platform: Platform
) -> None:
    first = await platform.create()
    runner = await platform.boot(first)
    await runner.agent(_image(first, None, "old"))
    await platform.prompt(first)
    turn_id, prompt_id = await platform.dispatched(first)
    await runner.play_turn(turn_id, prompt_id)
    await platform.until(first, lambda view: view.turns == 1 and not view.active_turn)

    async def forked(source: str) -> str:
        made = await platform.ask(ForkSession(session_id=new_id(), owner="ada", source_session=source), SessionView)
        return made.id

    fork = await forked(first)
    again = await forked(fork)
    assert [await _place(platform, session, "old") for session in (first, fork, again)] == [first] * 3
    await runner.agent(_image(first, None, "later"))
    assert await _place(platform, first, "later") == first

    await platform.ask(AddParticipant(session_id=again, user="ada", participant="bob", role="viewer"), Done)
    assert await _place(platform, again, "old", "bob") == first
    for session_id, image_id, user in ((first, "old", "bob"), (fork, "later", "ada"), (fork, "\0", "ada")):
        with pytest.raises(NotFound):
            await _place(platform, session_id, image_id, user)

    # whatever a runner says of another session's pictures, they do not become its own
    await platform.prompt(fork)
    await platform.until(fork, lambda view: view.epoch == 1)
    liar = await platform.boot(fork)
    await liar.agent(_image(first, None, "later"))
    await liar.agent(_image(fork, None, "own"))
    assert [await _place(platform, fork, image_id) for image_id in ("later", "own")] == [fork] * 2


async def test_sub_agents_stand_under_the_tool_call_that_started_them(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    await platform.prompt(session_id, "Look everywhere")
    turn_id, _ = await platform.dispatched(session_id)
    await runner.agent(agent.MessageCreated(message_id="m1"), turn_id)
    for part_id, conversation in (("prt_a", "ses_a"), ("prt_b", "ses_b")):
        await runner.agent(_task("m1", part_id, None, "pending"), turn_id)
        await runner.agent(_task("m1", part_id, conversation), turn_id)
    count = limits.NESTED_MESSAGES + 2
    await _says(runner, turn_id, "b0", "b 0", "ses_b")
    for number in range(2):
        await _says(runner, turn_id, f"a{number}", f"a {number}", "ses_a")
    await runner.agent(_task("a1", "prt_deep", "ses_deep"), turn_id)
    await _says(runner, turn_id, "deep0", "deep 0", "ses_deep")
    for number in range(1, count):
        await _says(runner, turn_id, f"b{number}", f"b {number}", "ses_b")
    await runner.agent(_task("m1", "prt_a", None, "error"), turn_id)
    await _says(runner, turn_id, "m2", "Go on with a")
    await runner.agent(_task("m2", "prt_a2", "ses_a"), turn_id)
    await _says(runner, turn_id, "a2", "a 2", "ses_a")
    await _says(runner, turn_id, "lost", "of nobody", "ses_unknown")

    flat = (await _page(platform, session_id, limit=200)).items
    assert len(flat) == 1 + 2 + 3 + 1 + count + 1
    page = await _page(platform, session_id, nested=True)
    assert [item.id for item in page.items][1:] == ["m1", "m2", "lost"], "what belongs to no call stays where it is"
    a, b = page.items[1].parts
    assert [item.text for item in a.messages] == ["a 0", "a 1"]
    (deep,) = [part for part in a.messages[1].parts if part.kind == "tool"]
    assert [item.text for item in deep.messages] == ["deep 0"]
    assert (a.conversation, a.more, a.status) == ("ses_a", None, "error")
    assert [item.text for item in b.messages] == [f"b {number}" for number in range(limits.NESTED_MESSAGES)]
    rest = await _page(platform, session_id, conversation="ses_b", after=b.more)
    assert [item.text for item in rest.items] == [f"b {number}" for number in range(limits.NESTED_MESSAGES, count)]
    (again,) = [part for part in page.items[2].parts if part.kind == "tool"]
    assert [item.text for item in again.messages] == ["a 2"], "a call that goes on with it has what came of that call"

    one = await _page(platform, session_id, nested=True, limit=2)
    assert [item.id for item in one.items][1:] == ["m1"]
    assert one.items == page.items[:2]
    assert (await _page(platform, session_id, nested=True, after=one.next)).items == page.items[2:]
    back = await _page(platform, session_id, nested=True, limit=3, before=1 << 60)
    assert back.items == page.items[1:]
    first = await _page(platform, session_id, conversation="ses_b", limit=1, before=rest.items[-1].seq)
    assert [item.text for item in first.items] == [f"b {count - 2}"]
    await rebuild.verify(ledger.settings)
