"""Putting back what the log has lost: a broker restored from a backup, or after a power cut.

The archive in PostgreSQL holds every event but deltas. Where the log ends before the read models do, the archived
events return to it at their own sequences, so that cursors, consumers and checkpoints stay true. Nothing is served
meanwhile. Killed in the middle it goes on at the next start: how far it has come is the log's last sequence.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import asyncpg
import msgspec
import nats.errors
from nats.aio.client import Client
from valet_protocol import subjects
from valet_service import database, logs
from valet_service import limits as service_limits
from valet_service.durable_reader import ensure_consumer

from valet_session_ledger import limits
from valet_session_ledger.errors import LogBehind
from valet_session_ledger.put_back_log import LogState, PutBackLog
from valet_session_ledger.put_back_plan import Message, chunks, lost_for_good, messages, subject_of
from valet_session_ledger.queries import Queries
from valet_session_ledger.rows import EventRow

_AWAY = (nats.errors.Error, OSError, TimeoutError)
_FOLDED: tuple[subjects.Source, ...] = ("fact", "agent", "sandbox")
"""What is archived: everything but deltas."""

_LOCK = "valet:ledger:put_back"
_log = logs.get(__name__)
T = TypeVar("T")


class _Counts(msgspec.Struct):
    events: int = 0
    unknown: int = 0
    """Sequences whose event the archive does not have: deltas, as a rule."""


class PutBack:
    """Compares the log with the archive, and puts back what is missing."""

    def __init__(self, nc: Client, pool: asyncpg.Pool, sql: Queries) -> None:
        self._nc = nc
        self._log = PutBackLog(nc)
        self._pool = pool
        self._sql = sql

    async def run(self) -> int:
        """Have the log hold everything the read models hold; gives its last sequence.

        Raises `LogBehind` when somebody else's events stand where archived ones belong.
        """
        shards = list(range(subjects.SHARDS))
        rows = await database.persist(lambda: self._pool.fetch(self._sql["checkpoints"], shards))
        checkpoints = {row["shard"]: row["seq"] for row in rows}
        end = max(checkpoints.values(), default=0)
        state = await _patiently(self._log.state)
        if state.closed or state.last_seq < end:
            await self._alone(lambda: self._restore(end, checkpoints))
        else:
            await self._check(state, end, checkpoints)
        state = await _patiently(self._log.state)
        lost = lost_for_good(state.first_seq, min(checkpoints.values(), default=0))
        if lost is not None:
            _log.error(
                "events_lost_for_good",
                first=lost[0],
                last=lost[1],
                meaning="neither the log nor the database has what stood there: sessions of that time are incomplete",
                remedy="a newer backup of the database would have it; without one there is nothing to be done",
            )
        return state.last_seq

    async def _alone(self, action: Callable[[], Awaitable[None]]) -> None:
        """Do something while no other ledger does it."""
        async with self._pool.acquire() as connection:
            await connection.execute("SELECT pg_advisory_lock(hashtext($1))", _LOCK, timeout=limits.PUT_BACK_WAIT)
            try:
                await action()
            finally:
                await connection.execute("SELECT pg_advisory_unlock(hashtext($1))", _LOCK)

    async def _restore(self, end: int, checkpoints: dict[int, int]) -> None:
        await _patiently(self._log.close)
        await _patiently(self._log.sweep)
        state = await _patiently(self._log.state)
        await self._check(state, end, checkpoints)
        if state.last_seq < end:
            _log.warning("log_behind_database", log=state.last_seq, database=end, doing="putting archived events back")
            counts = await self._put_all_back(state.last_seq, end)
            _log.warning("events_put_back", events=counts.events, unknown=counts.unknown, last=end)
        await self._make_consumers()
        await _patiently(self._log.open)

    async def _put_all_back(self, after: int, end: int) -> _Counts:
        counts = _Counts()
        said = time.monotonic()
        while after < end:
            archived = await self._archived(after, end)
            until = archived[-1].seq if len(archived) == limits.PUT_BACK_PAGE else end
            for chunk in chunks(messages(archived, after, until)):
                await self._put(chunk, end)
                if any(message.is_filler for message in chunk):
                    await _patiently(self._log.sweep)
                fillers = sum(message.is_filler for message in chunk)
                counts.unknown += fillers
                counts.events += len(chunk) - fillers
                if time.monotonic() - said > limits.PUT_BACK_SAY:
                    said = time.monotonic()
                    _log.info("putting_back", at=chunk[-1].seq, end=end)
            after = until
        return counts

    async def _put(self, chunk: list[Message], end: int) -> None:
        """Have a chunk stand in the log, whatever happens to the broker."""
        doubled: frozenset[int] = frozenset()
        rest = chunk
        while rest:
            try:
                written = await self._log.write(rest, doubled)
            except _AWAY as error:
                problem = str(error) or type(error).__name__
            else:
                if not written.problem:
                    return
                problem, doubled = written.problem, doubled | written.doubled
            _log.info("put_back_repeated", at=rest[0].seq, problem=problem)
            await asyncio.sleep(service_limits.RECONNECT_WAIT)
            # some may be stored although nobody said so
            last = (await _patiently(self._log.state)).last_seq
            for message in rest:
                if message.seq <= last:
                    await self._compare(message.seq, message, end)
            rest = [message for message in rest if message.seq > last]

    async def _compare(self, seq: int, message: Message, end: int) -> None:
        stored = await _patiently(lambda: self._log.at(seq))
        if stored is None:
            if message.is_filler:
                return
            raise LogBehind(seq, end, stranger=seq)
        if (stored.subject, stored.payload) != (message.subject, message.payload):
            raise LogBehind(seq - 1, end, stranger=seq)

    async def _check(self, state: LogState, end: int, checkpoints: dict[int, int]) -> None:
        """Raises `LogBehind` when the log has gone on from an older copy and holds other events than the archive."""
        until = min(state.last_seq, end)
        newest = await self._newest(until)
        after = 0
        if newest is not None:
            after = newest.seq
            stored = await _patiently(lambda: self._log.at(after))
            if stored is None and state.first_seq <= after:
                _log.warning("event_not_in_log", seq=after, meaning="the archive has it; nothing is lost for readers")
            elif stored is not None and (stored.subject, stored.payload) != (subject_of(newest), newest.payload):
                raise LogBehind(after - 1, end, stranger=after)
        for source in _FOLDED:
            await self._check_behind(source, after + 1, until, end, checkpoints)

    async def _check_behind(
        self, source: subjects.Source, start: int, until: int, end: int, checkpoints: dict[int, int]
    ) -> None:
        """Behind the newest archived event there is nothing that ought to have been archived."""
        while start <= until:
            seq, subject = await _patiently(partial(self._log.next, subjects.every_of(source), start))
            if not seq or seq > until:
                return
            if seq <= checkpoints.get(subjects.parse(subject).shard, 0):
                raise LogBehind(seq - 1, end, stranger=seq)
            start = seq + 1

    async def _make_consumers(self) -> None:
        """The consumers of runners may be missing in an older log. One that is ahead of it the broker sets back itself,
        and what is delivered again is acted on once."""
        rows = await database.persist(lambda: self._pool.fetch(self._sql["awake"]))
        for row in rows:
            session_id: str = row["session_id"]
            name = subjects.runner_consumer(session_id)
            try:
                await ensure_consumer(self._nc, name, [subjects.source(session_id, "fact")], keep=True)
            except _AWAY as error:
                # its sandbox's next start makes it
                _log.warning("consumer_not_made", session=session_id, error=str(error) or type(error).__name__)

    async def _archived(self, after: int, until: int) -> list[EventRow]:
        rows = await database.persist(
            lambda: self._pool.fetch(self._sql["archive_from"], after, until, limits.PUT_BACK_PAGE)
        )
        return [_row(row) for row in rows]

    async def _newest(self, until: int) -> EventRow | None:
        row = await database.persist(lambda: self._pool.fetchrow(self._sql["archived_last"], until))
        return None if row is None else _row(row)


def _row(row: asyncpg.Record) -> EventRow:
    return EventRow(row["seq"], row["session_id"], row["type"], row["payload"])


async def _patiently(action: Callable[[], Awaitable[T]]) -> T:
    """Ask the broker until it answers."""
    reported = ""
    while True:
        try:
            return await action()
        except _AWAY as error:
            reason = str(error) or type(error).__name__
            if reason != reported:
                _log.warning("put_back_waits_for_broker", error=reason)
                reported = reason
            await asyncio.sleep(service_limits.RECONNECT_WAIT)
