"""Folding every read model again from the log: `python -m valet_session_ledger.rebuild [--verify]`.

Everything happens in one transaction, in tables of another schema, through the very code of the live fold. At its end
the live tables take the new rows over (rebuild), or are compared with them and nothing is changed (verify). The
checkpoints are locked from the first statement on, so running ledgers wait with projecting and go on afterwards.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import ProtocolError
from valet_service import broker, logs
from valet_service import limits as service_limits
from valet_service.errors import ServiceError
from valet_service.log_reader import LogReader
from valet_service.settings import Settings
from valet_service.settings import load as load_settings

from valet_session_ledger import limits, queries
from valet_session_ledger.config import configure
from valet_session_ledger.errors import Differs, LedgerError
from valet_session_ledger.fold import fold
from valet_session_ledger.intake import Arrived, arrive, from_archive, is_folded
from valet_session_ledger.put_back import PutBack
from valet_session_ledger.rows import Batch
from valet_session_ledger.sessions import Live
from valet_session_ledger.store import migrate_store, open_store, write_events, write_rows

SCRATCH = "ledger_rebuild"
NOT_FOLDED = ("events", "checkpoints")
"""The archive, and how far the rest is folded. Every other table of the migrations is a read model."""

_log = logs.get(__name__)


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild did."""

    events: int
    seq: int
    """The log is folded up to here."""


async def rebuild(settings: Settings) -> Rebuilt:
    """Fold all read models anew, from the archive and the log, and put them in the place of the live ones.

    A log that is an older copy gets its lost events back first. Raises `LogBehind` when something else stands there.
    """
    return await _with_servers(settings, verify=False)


async def verify(settings: Settings) -> Rebuilt:
    """Fold everything up to the checkpoint anew and compare row by row. Raises `Differs`. Changes nothing."""
    return await _with_servers(settings, verify=True)


async def _with_servers(settings: Settings, *, verify: bool) -> Rebuilt:
    configure(settings)
    await migrate_store(settings.database_url)
    nc = await broker.connect_service(settings, "session-ledger-rebuild")
    connection = await asyncpg.connect(settings.database_url, timeout=service_limits.DATABASE_CONNECT_TIMEOUT)  # pyright: ignore[reportArgumentType]
    try:
        await broker.ensure_stream(nc)
        if not verify:
            await _put_back(settings, nc)
        transaction = connection.transaction()
        await transaction.start()
        try:
            done = await _fold_all(connection, nc, to_end=not verify)
            if verify:
                differences = await _differences(connection, await _tables(connection))
                if differences:
                    raise Differs(differences)
            else:
                await _take_over(connection, await _tables(connection), done.seq)
                await transaction.commit()
            return done
        finally:
            if not connection.is_closed() and connection.is_in_transaction():
                await transaction.rollback()
    finally:
        await connection.close(timeout=service_limits.DATABASE_CONNECT_TIMEOUT)  # pyright: ignore[reportArgumentType]
        await broker.close(nc)


async def _put_back(settings: Settings, nc: Client) -> None:
    """As the ledger does at its start; here nobody else needs to be there who could write before it."""
    pool, _ = await open_store(settings.database_url)
    try:
        await PutBack(nc, pool, queries.load()).run()
    finally:
        pool.terminate()


async def _fold_all(connection: Any, nc: Client, *, to_end: bool) -> Rebuilt:
    live, scratch = queries.load(), queries.load(SCRATCH)
    await connection.execute(live["ensure_checkpoints"], list(range(subjects.SHARDS)))
    held = await connection.fetch(live["lock_checkpoints"], list(range(subjects.SHARDS)))
    checkpoints: dict[int, int] = {row["shard"]: row["seq"] for row in held}
    await connection.execute(f"CREATE SCHEMA {SCRATCH}")
    for statement in queries.migrations(SCRATCH):
        await connection.execute(statement)
    state = (await nc.jetstream(timeout=service_limits.REQUEST_TIMEOUT).stream_info(subjects.STREAM)).state
    end = max(state.last_seq, *checkpoints.values()) if to_end else max(checkpoints.values())
    sessions: dict[str, Live] = {}
    count = 0
    sources = (
        _archived(connection, live["archive_from"], 0, min(state.first_seq - 1, end)),
        _logged(nc, max(1, state.first_seq), min(state.last_seq, end)),
        # the log is an older copy, and the ledger has not put back yet what it lost
        _archived(connection, live["archive_from"], state.last_seq, end),
    )
    for source in sources:
        async for arrived in source:
            batch = Batch()
            for item in arrived:
                if to_end or item.seq <= checkpoints[subjects.shard_of(item.session_id)]:
                    fold(sessions.setdefault(item.session_id, Live(item.session_id)), item, batch)
            count += len(batch.events)
            await write_rows(connection, scratch, batch)
            await write_events(connection, scratch, batch.events)
            _log.debug("rebuilding", events=count)
    return Rebuilt(events=count, seq=end)


async def _archived(connection: Any, statement: str, after: int, until: int) -> AsyncIterator[list[Arrived]]:
    """What the stream does not hold: above `after`, up to `until`."""
    while after < until:
        rows = await connection.fetch(statement, after, until, limits.REBUILD_BATCH)
        if not rows:
            return
        yield [from_archive(row["seq"], row["session_id"], row["type"], row["payload"]) for row in rows]
        after = rows[-1]["seq"]


async def _logged(nc: Client, start: int, until: int) -> AsyncIterator[list[Arrived]]:
    """What the stream holds, from `start` to `until` inclusive."""
    if start > until:
        return
    async with LogReader(nc, [subjects.EVERYTHING], start=start) as reader:
        pending = reader.pending_at_start
        while pending:
            entries = await asyncio.wait_for(reader.batch(limits.REBUILD_BATCH), limits.REBUILD_SILENCE)
            pending = entries[-1].pending
            wanted = [entry for entry in entries if entry.seq <= until]
            folded = [entry for entry in wanted if is_folded(entry.subject)]
            if folded:
                yield [arrive(entry.seq, entry.subject, entry.payload) for entry in folded]
            if len(wanted) < len(entries):
                return


async def _tables(connection: Any) -> list[str]:
    """The read models, as the migrations made them a moment ago."""
    rows = await connection.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = $1 ORDER BY table_name", SCRATCH
    )
    return [row["table_name"] for row in rows if row["table_name"] not in NOT_FOLDED]


async def _take_over(connection: Any, tables: list[str], seq: int) -> None:
    for table in tables:
        await connection.execute(f"DELETE FROM {queries.SCHEMA}.{table}")
        await connection.execute(f"INSERT INTO {queries.SCHEMA}.{table} SELECT * FROM {SCRATCH}.{table}")
    # what the log has beyond the archive is archived now; what the archive has beyond the log stays
    await connection.execute(
        f"INSERT INTO {queries.SCHEMA}.events SELECT * FROM {SCRATCH}.events ON CONFLICT DO NOTHING"
    )
    await connection.execute(queries.load()["advance_checkpoints"], list(range(subjects.SHARDS)), seq)
    await connection.execute(f"DROP SCHEMA {SCRATCH} CASCADE")


async def _differences(connection: Any, tables: list[str]) -> list[str]:
    """One line for each table that differs, with an example."""
    found: list[str] = []
    for table in (*tables, "events"):
        live, again = f"{queries.SCHEMA}.{table}", f"{SCRATCH}.{table}"
        for one, other, word in ((live, again, "only live"), (again, live, "only in the log")):
            rows = await connection.fetch(
                f"SELECT t::text AS row FROM {one} AS t EXCEPT ALL SELECT t::text FROM {other} AS t LIMIT 100"
            )
            if rows:
                found.append(f"{table}: {len(rows)} rows {word}, e.g. {rows[0]['row'][:300]}")
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="valet ledger rebuild", description="Fold the read models from the log.")
    parser.add_argument("--verify", action="store_true", help="compare only; exit status 1 if anything differs")
    arguments = parser.parse_args()
    logs.configure("session-ledger-rebuild")
    try:
        settings = load_settings()
        done = asyncio.run(verify(settings) if arguments.verify else rebuild(settings))
    except (LedgerError, ServiceError, ProtocolError) as error:
        raise SystemExit(str(error)) from None
    except (OSError, asyncpg.PostgresError) as error:
        raise SystemExit(f"The servers cannot be used: {error}. Is the platform running?") from None
    word = "equal" if arguments.verify else "folded again"
    sys.stdout.write(f"{done.events} events up to sequence {done.seq}: the read models are {word}.\n")


if __name__ == "__main__":
    main()
