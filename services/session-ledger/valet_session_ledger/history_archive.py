"""Reading one session's archived events in order, page by page."""

from collections.abc import AsyncIterator, Sequence

import asyncpg

from valet_session_ledger import limits
from valet_session_ledger.queries import Queries
from valet_session_ledger.rows import EventRow
from valet_session_ledger.store import patiently

NEWEST = (1 << 63) - 1
"""Above every sequence."""


class Archive:
    """The archive, for those who go through a session's past. Raises `Unavailable` while PostgreSQL is away."""

    def __init__(self, pool: asyncpg.Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def pages(
        self, session_id: str, *, until: int = NEWEST, types: Sequence[str] | None = None
    ) -> AsyncIterator[list[EventRow]]:
        """A session's events up to a sequence, inclusive; of some types only, where they are given."""
        after = 0
        more = True
        while more:
            rows = await self._page(session_id, after, until, types)
            if rows:
                after = rows[-1].seq
                yield rows
            more = len(rows) == limits.SOURCE_PAGE

    async def _page(self, session_id: str, after: int, until: int, types: Sequence[str] | None) -> list[EventRow]:
        parameters: list[object] = [session_id, after, until, limits.SOURCE_PAGE]
        name = "history"
        if types is not None:
            name = "history_of_types"
            parameters.append(list(types))
        rows = await patiently(lambda: self._pool.fetch(self._sql[name], *parameters))
        return [EventRow(row["seq"], row["session_id"], row["type"], row["payload"]) for row in rows]

    async def unfinished_imports(self) -> list[str]:
        """Sessions whose import was begun, not completed, and not given up."""
        rows = await patiently(lambda: self._pool.fetch(self._sql["unfinished_imports"]))
        return [row["session_id"] for row in rows]
