"""Which session has which sandbox, in PostgreSQL (schema `sandbox`)."""

import re
from importlib import resources
from typing import Literal

import asyncpg
import msgspec
from valet_protocol.events.facts import SandboxRequested
from valet_service import database

from valet_sandbox_controller.provider import SandboxRef

State = Literal["starting", "running", "lost", "failed", "hibernated", "terminated"]

SCHEMA = "sandbox"


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The newest attempt to give a session a sandbox."""

    session_id: str
    epoch: int
    state: State
    request: SandboxRequested | None = None
    """What was asked for, so that an attempt cut short by a crash is taken up at once; none when a session was
    released before it had a sandbox."""
    ref: SandboxRef | None = None
    """Set once it runs."""


class Store:
    """The table of sandboxes. Every call waits while the database restarts."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._sql = _queries()

    async def migrate(self) -> None:
        """Bring the schema up to date."""
        folder = resources.files("valet_sandbox_controller") / "migrations"
        files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
        await database.persist(lambda: database.migrate(self._pool, SCHEMA, files))

    async def find(self, session_id: str) -> SandboxRecord | None:
        """The session's record, if it ever had a sandbox."""
        row = await database.persist(lambda: self._pool.fetchrow(self._sql["find"], session_id))
        return _record(row) if row else None

    async def live(self) -> list[SandboxRecord]:
        """Everything that was starting or running when this was last written."""
        return [_record(row) for row in await database.persist(lambda: self._pool.fetch(self._sql["live"]))]

    async def save(self, record: SandboxRecord) -> None:
        """Store a record; it never replaces one of a newer epoch."""
        ref = None if record.ref is None else msgspec.json.encode(record.ref).decode()
        request = None if record.request is None else msgspec.json.encode(record.request).decode()
        await database.persist(
            lambda: self._pool.execute(self._sql["save"], record.session_id, record.epoch, record.state, request, ref)
        )


def _record(row: asyncpg.Record) -> SandboxRecord:
    return SandboxRecord(
        session_id=row["session_id"],
        epoch=row["epoch"],
        state=row["state"],
        request=None if row["request"] is None else msgspec.json.decode(row["request"], type=SandboxRequested),
        ref=None if row["ref"] is None else msgspec.json.decode(row["ref"], type=SandboxRef),
    )


def _queries() -> dict[str, str]:
    text = (resources.files("valet_sandbox_controller") / "queries.sql").read_text()
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
