"""Claims about child sessions end to end: tools of agents, asked as a runner asks them.

Real NATS, PostgreSQL and ledger; fake are the runners. The rules themselves: `test_ledger_family_rules.py`.
"""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace
from valet_protocol import subjects
from valet_protocol.codec import encode
from valet_protocol.errors import Conflict, Forbidden, NotFound, Refused, TooMany, Unprocessable
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Event
from valet_protocol.ids import derived_id, new_id
from valet_protocol.requests import (
    Accepted,
    AddParticipant,
    Done,
    GetOwner,
    GetSession,
    ListSessions,
    Owner,
    RemoveParticipant,
    RequestChild,
    SessionPage,
    SessionView,
    SubmitPrompt,
    TerminateSession,
)
from valet_protocol.tools import sessions as tools
from valet_service.settings import Settings, parse_shards
from valet_session_ledger import limits, rebuild
from valet_session_ledger.stamp import stamp
from valet_session_ledger.testing import FakeSandbox, LedgerProcess, Platform, wait_for


async def _working(platform: Platform, **fields: object) -> tuple[str, FakeSandbox]:
    """A session in the middle of its first turn."""
    session_id = await platform.create(**fields)
    runner = await platform.boot(session_id)
    await platform.prompt(session_id, "Direct them")
    turn_id, prompt_id = await platform.dispatched(session_id)
    await runner.agent(agent.TurnStarted(turn_id=turn_id, prompt_id=prompt_id, opencode_session="o"), turn_id)
    return session_id, runner


async def _spawn(platform: Platform, parent: str, request_id: str = "r1", **fields: object) -> str:
    tool = tools.SpawnChild(session_id=parent, request_id=request_id, prompt="Write tests\nfor it", **fields)  # type: ignore[arg-type]
    spawned = await platform.tool(tool)
    assert isinstance(spawned, tools.ChildSpawned)
    return spawned.child_session


async def _changes(platform: Platform, parent: str) -> list[facts.ChildChanged]:
    return [event.data for event in await platform.log(parent) if isinstance(event.data, facts.ChildChanged)]


async def _told(platform: Platform, parent: str, change: str) -> facts.ChildChanged:
    """Wait until a parent's log has a change of a child."""
    changes = await wait_for(
        lambda: _changes(platform, parent), lambda changes: any(item.change == change for item in changes)
    )
    return next(item for item in changes if item.change == change)


async def _whole_turn(platform: Platform, session_id: str, text: str, turns: int = 1) -> FakeSandbox:
    runner = await platform.boot(session_id) if turns == 1 else platform.fake(session_id)
    turn_id, prompt_id = await platform.dispatched(session_id, turns=turns)
    await runner.play_turn(turn_id, prompt_id, text=text)
    await platform.until(session_id, lambda view: not view.active_turn)
    return runner


async def _children(platform: Platform, parent: str) -> list[str]:
    page = await platform.ask(ListSessions(user="ada", parent=parent), SessionPage)
    return [item.id for item in page.items]


async def test_a_child_works_and_its_parent_follows_it_to_the_end(ledger: LedgerProcess, platform: Platform) -> None:
    parent, _ = await _working(platform, title="The aim", branch="main")
    child = await _spawn(platform, parent)
    assert await _spawn(platform, parent) == child
    view = await platform.session(child)
    assert (view.owner, view.parent, view.ancestors, view.branch) == ("ada", parent, [parent], "main")
    assert (view.title, [item.sender for item in view.queued]) == (
        "Write tests",
        [facts.Sender(session_id=parent, title="The aim", hops=1)],
    )
    assert (await platform.session(parent)).children == 1
    owner = await platform.ask(GetOwner(session_id=child), Owner)
    assert owner == Owner(session_id=child, user="ada", parent=parent)

    # its first prompt says where it comes from, and its parent hears what came of it
    await _whole_turn(platform, child, "They are written")
    read = await platform.tool(tools.ReadMessages(session_id=parent, request_id="a", target_session=child))
    assert [(item.role, item.author, item.text) for item in read.items] == [
        ("user", f"session:{parent}", f"[From your parent session {parent}.]\n\nWrite tests\nfor it"),
        ("assistant", None, "They are written"),
    ]
    told = await _told(platform, parent, "turn_completed")
    assert (told.child_id, told.title, told.detail) == (child, "Write tests", "They are written")
    report = await platform.tool(tools.GetSessionStatus(session_id=parent, request_id="b", target_session=child))
    assert (report.session.turns, report.last_turn, report.last_text) == (1, "completed", "They are written")
    assert report.session.cost == pytest.approx(0.01)  # pyright: ignore[reportUnknownMemberType]

    # they write to each other; the same call again is the same message
    note = tools.NotifyParent(session_id=child, request_id="n", content="One more thing", turn_id="t")
    assert await platform.tool(note) == await platform.tool(note)
    (queued,) = (await platform.session(parent)).queued
    assert queued.content == f"[From your child session {child}.]\n\nOne more thing"
    assert queued.sender == facts.Sender(session_id=child, title="Write tests", turn_id="t", hops=2)
    sent = await platform.tool(
        tools.SendMessage(session_id=parent, request_id="m", target_session=child, content="Push it")
    )
    await _whole_turn(platform, child, "Pushed", turns=2)
    read = await platform.tool(tools.ReadMessages(session_id=parent, request_id="c", target_session=child, limit=2))
    assert [item.id == sent.prompt_id for item in read.items] == [True, False]
    on = tools.ReadMessages(session_id=parent, request_id="d", target_session=child, after=read.items[0].seq, limit=1)
    assert [item.text for item in (await platform.tool(on)).items] == ["Pushed"]

    # and at the end it says so itself
    done = tools.CompleteSession(session_id=child, request_id="e", summary="Tests are in")
    await platform.tool(done)
    ended = await platform.until(child, lambda view: view.status == "terminated")
    assert (ended.completed, ended.status_detail) == ("done", "Tests are in")
    assert (await _told(platform, parent, "completed")).detail == "Tests are in"
    assert (await platform.tool(done)).already
    listed = tools.ListChildren(session_id=parent, request_id="f", status="ended")
    assert [item.session for item in (await platform.tool(listed)).items] == [child]
    listed = tools.ListChildren(session_id=parent, request_id="g", status="active")
    assert (await platform.tool(listed)).items == []
    made = [event.type for event in await platform.log(child)]
    assert made.count("fact.session_requested") == 1
    await rebuild.verify(ledger.settings)


async def test_an_agent_that_wants_to_hear_of_its_child_gets_a_prompt_when_its_turn_is_over(
    ledger: LedgerProcess, platform: Platform
) -> None:
    parent, runner = await _working(platform)
    await platform.ask(RequestChild(session_id=parent, request_id="r", prompt="Look", notify=True), Done)
    child = derived_id(parent, "child", "r")
    await wait_for(lambda: _there(platform, child), lambda view: view is not None and view.queued)
    await _whole_turn(platform, child, "Nothing there")
    view = await platform.until(parent, lambda view: view.queued)
    assert [(item.mode, item.sender is not None, "Nothing there" in item.content) for item in view.queued] == [
        ("collect", True, True)
    ]
    assert view.active_turn
    await runner.agent(agent.TurnEnded(turn_id=view.active_turn.turn_id, status="completed"), view.active_turn.turn_id)
    assert (await platform.dispatched(parent, turns=2))[1] == view.queued[0].prompt_id


async def test_an_agent_too_far_from_a_person_is_told_to_ask_theirs_also_after_a_restart(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id, runner = await _working(platform, orchestrator=True)
    other = await platform.create()
    last = facts.Sender(session_id=other, hops=limits.HOPS)
    far = SubmitPrompt(session_id=session_id, user="ada", prompt_id=new_id(), content="And you?", sender=last)
    await platform.ask(far, Accepted)
    first, _ = await platform.dispatched(session_id)
    await runner.agent(agent.TurnEnded(turn_id=first, status="completed"), first)
    second, _ = await platform.dispatched(session_id, turns=2)
    seq = (await platform.messages(session_id)).items[0].seq
    ledger.kill()
    ledger.start()
    for tool in (
        tools.SendMessage(session_id=session_id, request_id="m", target_session=other, content="And you?"),
        tools.ForwardMessages(
            session_id=session_id, request_id="f", from_session=session_id, to_session=other, seqs=[seq]
        ),
        tools.SpawnChild(session_id=session_id, request_id="c", prompt="Ask it"),
    ):
        with pytest.raises(TooMany) as refusal:
            await platform.tool(tool)
        assert refusal.value.code == "too_many_hops"
    await platform.prompt(session_id, "Go on")
    await runner.agent(agent.TurnEnded(turn_id=second, status="completed"), second)
    await platform.dispatched(session_id, turns=3)
    send = tools.SendMessage(session_id=session_id, request_id="n", target_session=other, content="And you?")
    await platform.tool(send)
    (queued,) = (await platform.session(other)).queued
    assert queued.sender == facts.Sender(session_id=session_id, hops=1)


async def test_siblings_get_forwarded_what_others_found_and_strangers_are_not_there(
    ledger: LedgerProcess, platform: Platform
) -> None:
    parent, _ = await _working(platform)
    finder, fixer = await _spawn(platform, parent), await _spawn(platform, parent, "r2", title="Fixer")
    await _whole_turn(platform, finder, "It is line 7")
    forward = tools.ForwardMessages(
        session_id=parent, request_id="x", from_session=finder, to_session=fixer, note="Mend this"
    )
    first = await platform.tool(forward)
    assert (first.session, first.forwarded) == (fixer, 1)
    (forwarded,) = [item for item in (await platform.session(fixer)).queued if item.prompt_id == first.prompt_id]
    assert "Mend this" in forwarded.content
    assert "> It is line 7" in forwarded.content
    own = tools.ForwardMessages(session_id=parent, request_id="o", from_session=finder, to_session=finder)
    with pytest.raises(Unprocessable) as refused:
        await platform.tool(own)
    assert refused.value.code == "to_itself"
    # the newest are others by now, and the same call is the same prompt all the same
    await platform.prompt(finder, "And?")
    await _whole_turn(platform, finder, "And line 9", turns=2)
    assert (await platform.tool(forward)).prompt_id == first.prompt_id
    assert len((await platform.session(fixer)).queued) == 2
    # siblings reach each other; another session of the same person is not there, but for one that directs others
    read = tools.ReadMessages(session_id=fixer, request_id="y", target_session=finder)
    assert len((await platform.tool(read)).items) == 4
    stranger = await platform.create()
    for tool in (
        tools.ReadMessages(session_id=fixer, request_id="z", target_session=stranger),
        tools.SendMessage(session_id=fixer, request_id="z", target_session=stranger, content="x"),
        tools.GetSessionStatus(session_id=fixer, request_id="z", target_session=stranger),
        tools.TerminateChild(session_id=fixer, request_id="z", child_session=stranger),
    ):
        with pytest.raises(NotFound):
            await platform.tool(tool)
    seen = await platform.tool(tools.ListSessions(session_id=fixer, request_id="l"))
    assert {item.session for item in seen.items} == {parent, finder, fixer}
    director = await platform.create(orchestrator=True)
    seen = await platform.tool(tools.ListSessions(session_id=director, request_id="l"))
    assert {item.session for item in seen.items} == {parent, finder, fixer, stranger, director}
    await platform.tool(
        tools.SendMessage(session_id=director, request_id="m", target_session=stranger, content="Hello")
    )
    with pytest.raises(Conflict) as refusal:
        await platform.tool(tools.NotifyParent(session_id=director, request_id="n", content="x"))
    assert refusal.value.code == "no_parent"
    with pytest.raises(Forbidden):
        await platform.tool(tools.TerminateChild(session_id=finder, request_id="t", child_session=fixer))


async def test_the_end_of_a_session_is_the_end_of_all_below_it(ledger: LedgerProcess, platform: Platform) -> None:
    top, _ = await _working(platform)
    middle = await _spawn(platform, top)
    low = await _spawn(platform, middle)
    other = await _spawn(platform, top, "r2")
    ended = await platform.tool(
        tools.TerminateChild(session_id=top, request_id="t", child_session=middle, reason="Not needed")
    )
    assert ended == tools.SessionEnded(session=middle, already=False)
    await platform.until(low, lambda view: view.status == "terminated")
    assert (await platform.session(middle)).status_detail == "Not needed"
    assert (await platform.session(other)).status != "terminated"
    assert (await _told(platform, top, "terminated")).child_id == middle
    await platform.ask(TerminateSession(session_id=top, user="ada"), Done)
    await platform.until(other, lambda view: view.status == "terminated")
    with pytest.raises(Conflict):
        await _spawn(platform, top, "r3")
    await _told(platform, middle, "terminated")
    await rebuild.verify(ledger.settings)


async def test_who_takes_part_in_a_session_takes_part_in_its_children_as_long_as_they_do(
    ledger: LedgerProcess, platform: Platform
) -> None:
    parent, _ = await _working(platform)
    child = await _spawn(platform, await _spawn(platform, parent))
    look = GetSession(session_id=child, user="bob")
    prompt = SubmitPrompt(session_id=child, user="bob", prompt_id=new_id(), content="x")
    with pytest.raises(NotFound):
        await platform.ask(look, SessionView)
    await platform.ask(AddParticipant(session_id=parent, user="ada", participant="bob", role="viewer"), Done)
    assert (await platform.ask(look, SessionView)).role == "viewer"
    with pytest.raises(Forbidden):
        await platform.ask(prompt, Accepted)
    await platform.ask(AddParticipant(session_id=parent, user="ada", participant="bob", role="collaborator"), Done)
    await platform.ask(prompt, Accepted)
    page = await platform.ask(ListSessions(user="bob", tree=parent), SessionPage)
    assert len(page.items) == 3
    await platform.ask(RemoveParticipant(session_id=parent, user="ada", participant="bob"), Done)
    for request, reply in (
        (look, SessionView),
        (prompt, Accepted),
        (ListSessions(user="bob", parent=parent), SessionPage),
    ):
        with pytest.raises(NotFound):
            await platform.ask(request, reply)


async def test_sessions_of_different_ledgers_are_one_family(platform: Platform, settings: Settings) -> None:
    halves = [
        LedgerProcess(replace(settings, shards=parse_shards(shards)), f"shards{shards}") for shards in ("0-7", "8-15")
    ]
    try:
        for half in halves:
            half.start()
        parent, _ = await _working(platform)
        # ids are derived, so one that lies with the other ledger is soon found
        there = subjects.shard_of(parent) // 8
        number = next(n for n in range(99) if subjects.shard_of(derived_id(parent, "child", f"r{n}")) // 8 != there)
        child = await _spawn(platform, parent, f"r{number}")
        await wait_for(lambda: _there(platform, child), lambda view: view is not None and view.queued)
        await _whole_turn(platform, child, "Far away")
        assert (await _told(platform, parent, "turn_completed")).detail == "Far away"
        read = tools.ReadMessages(session_id=parent, request_id="a", target_session=child)
        assert [item.role for item in (await platform.tool(read)).items] == ["user", "assistant"]
        await platform.tool(tools.NotifyParent(session_id=child, request_id="n", content="Hello"))
        await platform.ask(TerminateSession(session_id=parent, user="ada"), Done)
        await platform.until(child, lambda view: view.status == "terminated")
    finally:
        for half in halves:
            half.kill()


async def test_a_child_whose_spawn_was_cut_off_is_made_once_at_the_next_start(
    ledger: LedgerProcess, platform: Platform
) -> None:
    parent, _ = await _working(platform)
    ledger.kill()
    child_id = derived_id(parent, "child", "r1")
    asked = facts.ChildRequested(
        child_id=child_id, request_id="r1", model="fake/model", prompt_id=derived_id(child_id, "prompt"), prompt="Go"
    )
    await platform.outbox.put(encode(stamp(parent, None, asked, 1), source="/session-ledger"))
    ledger.start()
    view = await wait_for(lambda: _there(platform, child_id), lambda view: view is not None and view.queued)
    assert view is not None
    assert [item.content for item in view.queued] == ["Go"]
    await _told(platform, parent, "started")


async def _there(platform: Platform, session_id: str) -> SessionView | None:
    try:
        return await platform.session(session_id)
    except NotFound:
        return None


async def test_kill_9_of_the_ledger_while_children_are_spawned_makes_each_exactly_once(
    ledger: LedgerProcess, platform: Platform
) -> None:
    parent, _ = await _working(platform)
    requests = [f"r{number}" for number in range(limits.LIVING_CHILDREN)]

    async def spawn(request_id: str) -> str:
        while True:
            try:
                return await _spawn(platform, parent, request_id)
            except TooMany:
                raise
            except Refused:
                await asyncio.sleep(0.05)

    spawning = [asyncio.create_task(spawn(request_id)) for request_id in requests]
    for count in (1, 4, 7):
        await wait_for(lambda: platform.log(parent), lambda log, count=count: _requested(log) >= count)
        ledger.kill()
        ledger.start()
    children = await asyncio.gather(*spawning)
    assert len(set(children)) == len(requests)
    await wait_for(lambda: _changes(platform, parent), lambda changes: len(changes) >= len(requests))
    for child in children:
        made = Counter(event.type for event in await platform.log(child))
        assert (made["fact.session_requested"], made["fact.prompt_accepted"]) == (1, 1)
    log = await platform.log(parent)
    assert _requested(log) == len(requests)
    assert Counter(item.child_id for item in await _changes(platform, parent)) == dict.fromkeys(children, 1)
    assert sorted(await _children(platform, parent)) == sorted(children)
    with pytest.raises(TooMany):
        await _spawn(platform, parent, "one more")
    await rebuild.verify(ledger.settings)


def _requested(log: list[Event]) -> int:
    return sum(isinstance(event.data, facts.ChildRequested) for event in log)
