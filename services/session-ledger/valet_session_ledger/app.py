"""Wiring of the session ledger."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable

import asyncpg
import nats.errors
from nats.aio.client import Client
from valet_service import broker, database, lifecycle, logs
from valet_service import limits as service_limits
from valet_service.log_reader import LogReader
from valet_service.settings import Settings

from valet_session_ledger import limits, models
from valet_session_ledger.appender import Appender
from valet_session_ledger.commands import Commands
from valet_session_ledger.config import Config, configure
from valet_session_ledger.errands import Errands
from valet_session_ledger.errors import LogReplaced
from valet_session_ledger.family import Family
from valet_session_ledger.folder import Folder
from valet_session_ledger.freshness import Freshness
from valet_session_ledger.history import History
from valet_session_ledger.history_archive import Archive
from valet_session_ledger.peers import Peers
from valet_session_ledger.progress import Progress
from valet_session_ledger.projector import Projector
from valet_session_ledger.purger import Purger
from valet_session_ledger.put_back import PutBack
from valet_session_ledger.put_back_log import PutBackLog
from valet_session_ledger.queries import load
from valet_session_ledger.reactor import Reactor
from valet_session_ledger.reads import Reads
from valet_session_ledger.serve import handlers, of_sandboxes, serve
from valet_session_ledger.sessions import Sessions
from valet_session_ledger.sight import Sight
from valet_session_ledger.store import Store, open_store
from valet_session_ledger.transfer import Transfers
from valet_session_ledger.transfer_appends import Appends

_log = logs.get(__name__)


def now_ms() -> int:
    """This machine's clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises `BadSettings`, `BrokerTooOld`, `LogBehind`, `LogReplaced`."""
    config = configure(settings)
    pool, store = await open_store(settings.database_url)
    returned = asyncio.Event()

    async def reconnected() -> None:
        returned.set()

    nc = await broker.connect_service(settings, "session-ledger", reconnected=reconnected)
    try:
        await broker.ensure_stream(nc)
        await _run(config, nc, pool, store, returned, stop)
    finally:
        await broker.close(nc)
        pool.terminate()


async def _run(
    config: Config, nc: Client, pool: asyncpg.Pool, store: Store, returned: asyncio.Event, stop: asyncio.Event
) -> None:
    shards = config.settings.shards
    putting_back = asyncio.ensure_future(PutBack(nc, pool, load()).run())
    await _unless_ended(putting_back, [], stop)
    if stop.is_set():
        return
    end = putting_back.result()
    checkpoints = await database.persist(lambda: store.checkpoints(shards))
    start = min(checkpoints.values())
    sessions = Sessions(store)
    appender = Appender(nc)
    purger = Purger(nc, store)
    projector = Projector(store, shards, purger, start)
    purger.busy = lambda: projector.backlog > limits.PURGE_BELOW
    sight = Sight(PutBackLog(nc).state, now_ms)
    reactor = Reactor(sessions, appender, now_ms, sight.since_ms)
    folder = Folder(sessions, projector, reactor, checkpoints)
    reads = Reads(pool, load(), Freshness(appender, folder.folded, projector))
    commands = Commands(
        sessions=sessions,
        appender=appender,
        folded=folder.folded,
        projected=projector.projected,
        store=store,
        reads=reads,
        now_ms=now_ms,
    )
    peers = Peers(nc, shards)
    errands = Errands(
        peers=peers,
        commands=commands,
        reads=reads,
        projected=projector.projected,
        again_later=lambda session_id: reactor.wake_at(now_ms() + limits.REACT_RETRY_MS, session_id),
    )
    reactor.errands = errands.touched
    archive = Archive(pool, load())
    transfers = Transfers(archive, Appends(appender, archive, projector.projected, now_ms), reads)
    peers.handlers = handlers(commands, reads, History(archive, reads), transfers)
    family = Family(
        commands=commands, reads=reads, peers=peers, errands=errands, models=models.configured(config.settings)
    )
    sandboxes = of_sandboxes(commands, reads, family)
    async with LogReader(nc, config.filters, start=start + 1) as reader:
        work = [
            asyncio.create_task(run)
            for run in (
                folder.run(reader, end),
                projector.run(),
                reactor.run(),
                sight.run(),
                purger.run(),
                _watch_log(nc, returned, folder.folded),
            )
        ]
        try:
            await _unless_ended(folder.caught_up.wait(), work, stop)
            if not stop.is_set():
                await _resume(store, sessions, projector, reactor, purger)
                await serve(nc, config, peers.handlers, sandboxes, peers)
                await transfers.resume(shards)
                lifecycle.ready()
                _log.info("serving", shards=len(shards), folded=folder.folded.seq)
            await _unless_ended(stop.wait(), work, stop)
        finally:
            errands.stop()
            transfers.stop()
            for task in work[:1] + work[2:]:  # what is folded is still projected
                task.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(projector.flush(), service_limits.STOP_GRACE / 2)
            work[1].cancel()
            await asyncio.gather(*work, return_exceptions=True)


async def _watch_log(nc: Client, returned: asyncio.Event, folded: Progress) -> None:
    """When the broker comes back with an older log, end: at the start what is missing is put back."""
    log = PutBackLog(nc)
    while True:
        await returned.wait()
        returned.clear()
        try:
            state = await log.state()
        except (nats.errors.Error, TimeoutError) as error:
            _log.info("log_end_not_known", error=str(error) or type(error).__name__)
            await asyncio.sleep(service_limits.RECONNECT_WAIT)
            returned.set()
            continue
        if state.last_seq < folded.seq:
            raise LogReplaced(state.last_seq, folded.seq)


async def _resume(store: Store, sessions: Sessions, projector: Projector, reactor: Reactor, purger: Purger) -> None:
    """Do what a stop or a crash left undone: decisions, timers, purges."""
    with contextlib.suppress(TimeoutError):
        await projector.flush()
    restless = await database.persist(store.restless)
    going_on = await database.persist(lambda: store.going_on(limits.LOADED_AT_START))
    await database.persist(lambda: sessions.load(going_on))
    reactor.start()
    for live in sessions.all():
        reactor.touched(live)
    for session_id, due_ms in restless:
        if sessions.present(session_id) is None:
            reactor.wake_at(now_ms() if due_ms is None else min(due_ms, now_ms()), session_id)
    purger.wake()


async def _unless_ended(condition: Awaitable[object], work: list[asyncio.Task[None]], stop: asyncio.Event) -> None:
    """Wait for a condition, or the stop. A task that ends by itself is a fault: the process ends with it."""
    waiting = asyncio.ensure_future(condition)
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait((waiting, stopping, *work), return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task in done:
                task.result()
    finally:
        waiting.cancel()
        stopping.cancel()
