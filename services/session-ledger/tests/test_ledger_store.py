"""Claims about writing batches: exactly once, and no further than the data at fault. Real PostgreSQL."""

from collections.abc import AsyncIterator

import asyncpg
import msgspec
import pytest
from valet_protocol.events import facts
from valet_session_ledger.queries import grouped, load, migrations, together
from valet_session_ledger.rows import Batch, EventRow, PartRow, Touched
from valet_session_ledger.state import SessionState, unpack
from valet_session_ledger.store import Store, open_store

SHARDS = (0, 1)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool, _ = await open_store(database_url)
    yield pool
    await pool.close()


@pytest.fixture
async def store(pool: asyncpg.Pool) -> Store:
    store = Store(pool, load())
    await store.checkpoints(SHARDS)
    return store


def _part(session_id: str, seq: int, text: str) -> PartRow:
    return PartRow(session_id=session_id, message_id="m", part_id="p", kind="text", text=text, first_seq=seq, seq=seq)


def _batch(*parts: PartRow) -> Batch:
    batch = Batch()
    for part in parts:
        batch.put(batch.parts, (part.session_id, part.message_id, part.part_id), part)
        batch.events.append(EventRow(part.seq, part.session_id, "agent.text_completed", b"{}"))
        batch.last_seq = part.seq
    return batch


async def test_one_sessions_bad_row_leaves_the_others_and_the_archive_whole(store: Store, pool: asyncpg.Pool) -> None:
    await store.write(
        _batch(_part("good", 1, "fine"), _part("bad", 2, "nul \0"), _part("also good", 3, "fine")), SHARDS
    )
    assert [row["session_id"] for row in await pool.fetch("SELECT session_id FROM ledger.parts ORDER BY seq")] == [
        "good",
        "also good",
    ]
    assert await pool.fetchval("SELECT count(*) FROM ledger.events") == 3
    assert await store.checkpoints(SHARDS) == {0: 3, 1: 3}


async def test_a_batch_another_replica_has_written_changes_nothing(store: Store, pool: asyncpg.Pool) -> None:
    await store.write(_batch(_part("s", 5, "first")), SHARDS)
    await store.write(_batch(_part("s", 5, "second")), SHARDS)
    assert await pool.fetchval("SELECT text FROM ledger.parts") == "first"


async def test_an_older_row_never_replaces_a_newer_one(store: Store, pool: asyncpg.Pool) -> None:
    await store.write(_batch(_part("s", 5, "new")), (0,))
    await store.write(_batch(_part("s", 4, "old")), (1,))
    row = await pool.fetchrow("SELECT text, first_seq, seq FROM ledger.parts")
    assert row is not None
    assert (row["text"], row["seq"]) == ("new", 5)


async def test_a_snapshot_comes_back_as_it_was(store: Store) -> None:
    state = SessionState(
        session_id="s",
        owner="ada",
        repo=None,
        branch=None,
        model="m/x",
        given_title="",
        title="",
        policy=facts.SessionPolicy(),
        created_ms=1,
    )
    batch = _batch(_part("s", 9, "x"))
    batch.touched["s"] = Touched(state, 9, 9, 7, True)
    await store.write(batch, SHARDS)
    snapshots = await store.snapshots(["s", "unknown"])
    assert list(snapshots) == ["s"]
    assert (snapshots["s"].state, snapshots["s"].seq) == (state, 7)


async def test_the_upserts_of_all_tables_go_together_and_each_keeps_its_own_parameters(pool: asyncpg.Pool) -> None:
    upserts = [text for name, text in load().by_name.items() if name.startswith("upsert_")]
    groups = [list(group) for group in grouped(upserts)]
    assert [text for group in groups for text in group] == upserts
    for group in groups:
        statement = together(*group)
        assert len(statement) < 15 << 10  # what asyncpg keeps prepared
        async with pool.acquire() as connection:
            alone = [await connection.prepare(text) for text in group]
            joined = await connection.prepare(statement)
            assert [one.name for one in joined.get_parameters()] == [
                one.name for each in alone for one in each.get_parameters()
            ]


def test_the_statements_of_another_schema_touch_no_live_table() -> None:
    for text in (*load("scratch").by_name.values(), *migrations("scratch")):
        assert "ledger." not in text


async def test_a_database_of_before_is_brought_up_to_date_with_its_rows(database_url: str) -> None:
    first = next(text for text in migrations() if "CREATE TABLE ledger.sessions" in text)
    connection = await asyncpg.connect(database_url)
    await connection.execute("CREATE SCHEMA ledger")
    await connection.execute(
        "CREATE TABLE ledger.migrations (name text PRIMARY KEY, applied timestamptz DEFAULT now())"
    )
    await connection.execute(first)
    await connection.execute("INSERT INTO ledger.migrations (name) VALUES ('0001_ledger.sql')")
    await connection.execute(
        "INSERT INTO ledger.prompts (session_id, first_seq, seq, prompt_id, channel, model, status, turn_id)"
        " VALUES ('s', 1, 2, 'p', 'slack:x', 'm/x', 'dispatched', 't')"
    )
    await connection.execute(
        "INSERT INTO ledger.turns (session_id, first_seq, seq, turn_id, prompt_id, status)"
        " VALUES ('s', 2, 2, 't', 'p', 'running')"
    )
    pool, _ = await open_store(database_url)
    turn = await connection.fetchrow("SELECT kind, channel, model FROM ledger.turns")
    assert tuple(turn or ()) == ("prompt", "slack:x", "m/x")
    assert await connection.fetchval("SELECT attachments::text FROM ledger.prompts") == "[]"
    await pool.close()
    await connection.close()


def test_a_snapshot_of_before_is_read_with_what_it_lacks_at_rest() -> None:
    old = {
        "session_id": "s",
        "owner": "ada",
        "repo": None,
        "branch": None,
        "model": "m/x",
        "given_title": "",
        "title": "",
        "policy": {"question_timeout_s": 60.0, "permissions": "ask"},
        "created_ms": 1,
        "phase": "ready",
        "queue": [
            {"prompt_id": "p", "content": "x", "model": "m/x", "author": "ada", "channel": "api", "mode": "queue"}
        ],
        "turn": {"turn_id": "t", "prompt_id": "p0", "started_epoch": 1},
        "questions": [{"question_id": "q", "kind": "question", "questions": [], "due_ms": 9, "turn_id": "t"}],
        "receipts": [{"prompt_id": "p", "digest": "d", "seq": 3}],
    }
    state = unpack(msgspec.msgpack.encode(old))
    assert (state.queue[0].kind, state.policy.permission_default, state.participants) == ("prompt", "reject", ())
    assert state.turn is not None
    assert (state.turn.more, state.turn.interrupt_reason, state.asked) == ((), "person", "")
