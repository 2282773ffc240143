"""Claims about what is kept in memory: a session that is not, goes on from its snapshot."""

import asyncio

import pytest
from valet_service.settings import Settings
from valet_session_ledger import app, limits, rebuild
from valet_session_ledger.progress import Progress
from valet_session_ledger.sessions import Sessions
from valet_session_ledger.store import Store
from valet_session_ledger.testing import Platform


async def test_more_sessions_than_memory_keeps_all_go_on(
    platform: Platform, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIVE_SESSIONS", 2)
    kept: list[int] = []
    let_go = Sessions.let_go

    def count(sessions: Sessions, projected: int) -> None:
        let_go(sessions, projected)
        kept.append(len(sessions.all()))

    monkeypatch.setattr(Sessions, "let_go", count)
    stop = asyncio.Event()
    ledger = asyncio.create_task(app.main(settings, stop))
    ids = [await platform.create() for _ in range(6)]
    sandboxes = [await platform.boot(session_id) for session_id in ids]
    for turns in (1, 2):
        for session_id in ids:
            await platform.prompt(session_id)
        for session_id, sandbox in zip(ids, sandboxes, strict=True):
            turn_id, prompt_id = await platform.dispatched(session_id, turns)
            await sandbox.play_turn(turn_id, prompt_id)
        for session_id in ids:
            await platform.until(session_id, lambda view, turns=turns: view.turns == turns and not view.active_turn)
    await rebuild.verify(settings)
    stop.set()
    await ledger
    assert min(kept[20:]) <= 3


async def test_what_the_database_does_not_have_yet_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIVE_SESSIONS", 1)
    sessions = Sessions(Store(None, None))  # type: ignore[arg-type]
    for number, name in enumerate("abc", start=1):
        sessions.new(name).last_seq = number
    sessions.let_go(projected=1)
    assert [live.session_id for live in sessions.all()] == ["b", "c"]
    async with sessions.use("c").lock:
        sessions.let_go(projected=3)
        assert [live.session_id for live in sessions.all()] == ["c"]


async def test_whoever_waits_for_progress_is_woken_when_it_is_there() -> None:
    progress = Progress(5)
    await progress.reach(5, 0.1)
    waiting = [asyncio.create_task(progress.reach(seq, 5.0)) for seq in (9, 7, 8)]
    with pytest.raises(TimeoutError):
        await progress.reach(6, 0.01)
    progress.advance(8)
    done, left = await asyncio.wait(waiting, timeout=0.1)
    assert (len(done), len(left)) == (2, 1)
    progress.advance(9)
    await asyncio.gather(*waiting)
