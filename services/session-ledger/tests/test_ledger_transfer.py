"""Claims about forks and imports: the same conversation, taken over once, whatever crashes on the way.

Real NATS, PostgreSQL and ledger; fake are the runners. Where a fork begins: `test_ledger_transfer_plan.py`.
"""

import asyncio

import msgspec
import pytest
from valet_protocol.codec import encode, with_seq
from valet_protocol.errors import Conflict, Forbidden, NotFound, Refused, Unprocessable
from valet_protocol.events import agent, facts
from valet_protocol.events.agent import WorkRef
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    AddParticipant,
    ArchivePage,
    CreateShareLink,
    Done,
    ForkPlan,
    ForkSession,
    ImportEvents,
    ListPrompts,
    ListSuperfluousWork,
    ListTurns,
    MessageView,
    PlanFork,
    PromptPage,
    ReadArchive,
    SessionView,
    SuperfluousWork,
    TurnPage,
)
from valet_session_ledger import rebuild
from valet_session_ledger.testing import FakeSandbox, LedgerProcess, Platform, wait_for
from valet_session_ledger.transfer_events import stamped


async def _turn(platform: Platform, session_id: str, runner: FakeSandbox, number: int, steps: int = 2) -> None:
    await platform.prompt(session_id, f"Prompt {number}")
    turn_id, prompt_id = await platform.dispatched(session_id, turns=number)
    await runner.play_turn(turn_id, prompt_id, steps=steps, text=f"Answer {number}")
    await platform.until(session_id, lambda view: view.turns == number and not view.active_turn)


async def _source(platform: Platform, turns: int = 2) -> tuple[str, FakeSandbox]:
    session_id = await platform.create(title="The source")
    runner = await platform.boot(session_id)
    for number in range(1, turns + 1):
        await _turn(platform, session_id, runner, number)
    return session_id, runner


async def _conversation(platform: Platform, session_id: str) -> list[object]:
    """Messages and parts without what tells where and when they stand."""

    def bare(message: MessageView) -> object:
        parts = [msgspec.structs.replace(part, seq=0) for part in message.parts]
        return msgspec.structs.replace(message, seq=0, created_at="", parts=parts)

    return [bare(message) for message in (await platform.messages(session_id)).items]


async def _turns(platform: Platform, session_id: str) -> list[object]:
    page = await platform.ask(ListTurns(session_id=session_id, user="ada"), TurnPage)
    return [msgspec.structs.replace(turn, seq=0, started_at=None, ended_at=None) for turn in page.items]


async def _fork(platform: Platform, source: str, message_id: str | None = None, **fields: object) -> SessionView:
    request = ForkSession(
        session_id=new_id(),
        owner="ada",
        source_session=source,
        message_id=message_id,
        **fields,  # type: ignore[arg-type]
    )
    return await platform.ask(request, SessionView)


async def _export(platform: Platform, session_id: str) -> list[msgspec.Raw]:
    request = ReadArchive(session_id=session_id, after=0, before=1 << 60, limit=2000)
    page = await platform.ask(request, ArchivePage)
    assert page.complete
    return [msgspec.Raw(with_seq(bytes(item.event), item.seq)) for item in page.items]


async def test_a_fork_has_the_conversation_up_to_its_point_and_goes_on_by_itself(
    ledger: LedgerProcess, platform: Platform
) -> None:
    source, _ = await _source(platform)
    whole = await _conversation(platform, source)
    at_agents = (await platform.messages(source)).items[1].id
    at_persons = (await platform.messages(source)).items[3].id
    plan = await platform.ask(PlanFork(session_id=source, user="ada", message_id=at_persons), ForkPlan)
    for message_id, count in ((at_agents, 3), (at_persons, 3), (None, 6)):
        fork = await _fork(platform, source, message_id)
        assert (fork.status, fork.title, fork.source_session) == ("hibernated", "The source", source)
        assert await _conversation(platform, fork.id) == whole[:count]
        assert not fork.queued
        if message_id == at_persons:
            begun = (await platform.log(fork.id))[0].data
            assert isinstance(begun, facts.SessionImported)
            assert begun.source_seq == plan.at
    await platform.prompt(fork.id, "Go on")
    await platform.until(fork.id, lambda view: view.epoch == 1)
    await _turn_of_fork(platform, fork.id)
    assert len(await _conversation(platform, fork.id)) == 8
    assert (await platform.session(fork.id)).turns == 3  # those taken over count
    assert await _conversation(platform, source) == whole
    await rebuild.verify(ledger.settings)


async def test_a_prompt_that_waited_at_the_forks_point_is_not_the_forks(
    ledger: LedgerProcess, platform: Platform
) -> None:
    source = await platform.create()
    runner = await platform.boot(source)
    first = await platform.prompt(source, "First")
    turn_id, prompt_id = await platform.dispatched(source)
    await platform.prompt(source, "Waits")
    await runner.play_turn(turn_id, prompt_id, steps=1)
    await platform.dispatched(source, turns=2)
    fork = await _fork(platform, source)
    prompts = await platform.ask(ListPrompts(session_id=fork.id, user="ada"), PromptPage)
    assert [(prompt.prompt_id, prompt.status) for prompt in prompts.items] == [(first.prompt_id, "done")]
    assert "Waits" not in str(await platform.log(fork.id))


async def _turn_of_fork(platform: Platform, session_id: str) -> None:
    runner = await platform.boot(session_id)
    view = await platform.until(session_id, lambda view: view.active_turn)
    assert view.active_turn
    await runner.play_turn(view.active_turn.turn_id, view.active_turn.prompt_id, steps=1)
    await platform.until(session_id, lambda view: not view.active_turn)


async def test_a_fork_of_a_fork_has_the_same_conversation(ledger: LedgerProcess, platform: Platform) -> None:
    source, _ = await _source(platform)
    fork = await _fork(platform, source)
    again = await _fork(platform, fork.id, (await platform.messages(source)).items[1].id, title="Again")
    assert again.title == "Again"
    assert await _conversation(platform, again.id) == (await _conversation(platform, source))[:3]
    assert await _conversation(platform, (await _fork(platform, again.id)).id) == await _conversation(
        platform, again.id
    )


async def test_the_same_fork_asked_for_again_changes_nothing(ledger: LedgerProcess, platform: Platform) -> None:
    source, runner = await _source(platform, turns=1)
    request = ForkSession(session_id=new_id(), owner="ada", source_session=source)
    first, again = await asyncio.gather(platform.ask(request, SessionView), platform.ask(request, SessionView))
    assert first == again
    events = await platform.log(request.session_id)
    await _turn(platform, source, runner, 2)
    assert await platform.ask(request, SessionView) == first
    assert await platform.log(request.session_id) == events
    other = msgspec.structs.replace(request, message_id=(await platform.messages(source)).items[0].id)
    with pytest.raises(Refused) as refusal:
        await platform.ask(other, SessionView)
    assert refusal.value.code == "idempotency_key_reused"
    with pytest.raises(Refused) as refusal:
        await platform.ask(msgspec.structs.replace(request, session_id=source), SessionView)
    assert refusal.value.code == "session_exists"


async def test_only_who_may_prompt_may_fork(ledger: LedgerProcess, platform: Platform) -> None:
    source, _ = await _source(platform, turns=1)
    request = PlanFork(session_id=source, user="bob")
    with pytest.raises(NotFound):
        await platform.ask(request, ForkPlan)
    for role in ("viewer", "collaborator"):
        add = AddParticipant(session_id=source, user="ada", participant="bob", role=role)  # type: ignore[arg-type]
        await platform.ask(add, Done)
        if role == "viewer":
            with pytest.raises(Forbidden) as refusal:
                await platform.ask(request, ForkPlan)
            assert refusal.value.code == "role_too_low"
    fork = ForkSession(session_id=new_id(), owner="bob", source_session=source)
    assert (await platform.ask(fork, SessionView)).owner == "bob"


@pytest.mark.parametrize("taken", [0, 1, 7])
async def test_a_fork_a_crash_left_half_done_is_finished_at_the_next_start(
    ledger: LedgerProcess, platform: Platform, taken: int
) -> None:
    source, _ = await _source(platform, turns=2)
    whole = await _fork(platform, source)
    facts_of_whole = [event for event in await platform.log(whole.id) if event.type.startswith("fact.")]
    assert ledger.stop() == 0
    half = new_id()
    for event in facts_of_whole[: 1 + taken]:
        made = stamped(half, event.data, event.type, event.time_ms)
        await platform.outbox.put(encode(made, source="/session-ledger"))
    ledger.start()
    await platform.until(half, lambda view: view.status == "hibernated")
    finished = [event.data for event in await platform.log(half)]
    assert finished == [event.data for event in facts_of_whole]
    assert await _conversation(platform, half) == await _conversation(platform, source)
    # and whoever asked for it hears of it
    again = await platform.ask(ForkSession(session_id=half, owner="ada", source_session=source), SessionView)
    assert again.id == half


def _pages(source: str, lines: list[msgspec.Raw], size: int) -> list[ImportEvents]:
    session_id = new_id()
    return [
        ImportEvents(
            session_id=session_id,
            owner="ada",
            source_session=source,
            offset=offset,
            events=lines[offset : offset + size],
            last=offset + size >= len(lines),
        )
        for offset in range(0, len(lines), size)
    ]


async def test_an_export_imported_again_is_the_same_conversation(ledger: LedgerProcess, platform: Platform) -> None:
    source, _ = await _source(platform)
    lines = await _export(platform, source)
    for page in (pages := _pages(source, lines, 7)):
        first = await platform.ask(page, Done)
        assert await platform.ask(page, Done) == first
    session_id = pages[0].session_id
    events = await platform.log(session_id)
    for page in pages:
        await platform.ask(page, Done)
    assert await platform.log(session_id) == events
    view = await platform.session(session_id)
    assert (view.status, view.title) == ("hibernated", "The source")
    assert await _conversation(platform, session_id) == await _conversation(platform, source)
    assert await _turns(platform, session_id) == await _turns(platform, source)
    assert (view.cost, view.tokens) == ((await platform.session(source)).cost, (await platform.session(source)).tokens)
    await rebuild.verify(ledger.settings)
    # what came in goes out again
    (page,) = _pages(session_id, await _export(platform, session_id), 1000)
    await platform.ask(page, Done)
    assert await _conversation(platform, page.session_id) == await _conversation(platform, source)


async def test_an_export_for_somebody_leaves_out_what_it_must_not_carry_and_can_be_imported(
    ledger: LedgerProcess, platform: Platform
) -> None:
    source, _ = await _source(platform, turns=1)
    link = CreateShareLink(session_id=source, user="ada", link_id="l", token_sha256="f" * 64, role="viewer")
    await platform.ask(link, Done)
    request = ReadArchive(session_id=source, after=0, before=1 << 60, limit=2000)
    with pytest.raises(NotFound):
        await platform.ask(msgspec.structs.replace(request, export_for="eve"), ArchivePage)
    whole = await platform.ask(request, ArchivePage)
    export = await platform.ask(msgspec.structs.replace(request, export_for="ada"), ArchivePage)
    assert [item.seq for item in export.items] == [item.seq for item in whole.items]
    assert any(b"ffff" in bytes(item.event) for item in whole.items)
    assert not any(b"ffff" in bytes(item.event) for item in export.items)
    lines = [msgspec.Raw(with_seq(bytes(item.event), item.seq)) for item in export.items]
    (page,) = _pages(source, lines, 1000)
    await platform.ask(page, Done)
    assert await _conversation(platform, page.session_id) == await _conversation(platform, source)


async def test_an_import_goes_on_after_the_ledger_was_killed(ledger: LedgerProcess, platform: Platform) -> None:
    source, _ = await _source(platform)
    pages = _pages(source, await _export(platform, source), 9)
    for page in pages:
        await platform.ask(page, Done)
        ledger.kill()
        ledger.start()
        await platform.ask(page, Done)
    assert await _conversation(platform, pages[0].session_id) == await _conversation(platform, source)


async def test_an_import_that_ends_in_the_middle_of_a_turn_leaves_nothing_running_or_waiting(
    ledger: LedgerProcess, platform: Platform
) -> None:
    source, runner = await _source(platform, turns=1)
    await platform.prompt(source, "Runs")
    turn_id, prompt_id = await platform.dispatched(source, turns=2)
    await runner.agent(agent.TurnStarted(turn_id=turn_id, prompt_id=prompt_id, opencode_session="o"), turn_id)
    await platform.prompt(source, "Waits")
    await platform.until(source, lambda view: view.status == "busy" and len(view.queued) == 1)
    (page,) = _pages(source, await _export(platform, source), 1000)
    await platform.ask(page, Done)
    view = await platform.session(page.session_id)
    assert (view.status, view.queued, view.active_turn) == ("hibernated", [], None)
    turns = await platform.ask(ListTurns(session_id=page.session_id, user="ada"), TurnPage)
    assert [turn.status for turn in turns.items] == ["completed", "interrupted"]
    await rebuild.verify(ledger.settings)


async def test_neither_a_file_nor_a_runner_can_name_anothers_saved_work(
    ledger: LedgerProcess, platform: Platform
) -> None:
    source, runner = await _source(platform, turns=1)
    await runner.agent(
        agent.WorkSaved(turn_id="t", work=WorkRef(object="sessions/01VICTIM/saved/t", bytes=1, sha256="1" * 64))
    )
    await platform.create()
    lines = await wait_for(lambda: _export(platform, source), lambda lines: b"work_saved" in bytes(lines[-1]))
    turn = WorkRef(object=f"sessions/{source}/saved/t", bytes=1, sha256="0" * 64)
    await runner.agent(agent.WorkSaved(turn_id="t", work=turn))
    await _turn(platform, source, runner, 2)
    fork = await _fork(platform, source)
    assert turn.object in str(await platform.log(fork.id))
    assert "01VICTIM" not in str(await platform.log(fork.id))
    plan = await platform.ask(PlanFork(session_id=fork.id, user="ada"), ForkPlan)
    assert plan.work == turn
    kept = await platform.ask(ListSuperfluousWork(session_id=source), SuperfluousWork)
    assert kept.objects == []
    (page,) = _pages(source, lines, 1000)
    await platform.ask(page, Done)
    assert "01VICTIM" not in str(await platform.log(page.session_id))
    assert (await platform.session(page.session_id)).work is None


async def test_pages_out_of_order_and_files_that_are_none_are_refused(
    ledger: LedgerProcess, platform: Platform
) -> None:
    source, _ = await _source(platform, turns=1)
    pages = _pages(source, await _export(platform, source), 5)
    with pytest.raises(Conflict) as refusal:
        await platform.ask(pages[1], Done)
    assert refusal.value.code == "import_not_begun"
    await platform.ask(pages[0], Done)
    with pytest.raises(Conflict) as missing:
        await platform.ask(pages[2], Done)
    assert missing.value.code == "page_missing"
    with pytest.raises(Conflict):
        await platform.ask(msgspec.structs.replace(pages[1], owner="bob"), Done)
    with pytest.raises(Unprocessable, match="line 1"):
        await platform.ask(msgspec.structs.replace(pages[1], session_id=new_id(), offset=0), Done)
