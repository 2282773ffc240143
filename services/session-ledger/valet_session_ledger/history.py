"""A session as it was right after one of its events."""

import asyncio
from typing import Any

from msgspec.structs import replace
from valet_protocol.errors import BadRequest, TooLarge
from valet_protocol.requests import GetDiff, GetSession, GetState, ListMessages, StateView

from valet_session_ledger import limits
from valet_session_ledger.history_archive import Archive
from valet_session_ledger.materialize import Names, Tables
from valet_session_ledger.reads import Reads


class AsItIs:
    """In the place of `Freshness`: the past does not change."""

    async def session(self, session_id: str) -> None:
        """Nothing to wait for."""

    async def folded(self) -> None:
        """Nothing to wait for."""


class History:
    """The ledger's reads of the past; a method's result is the reply."""

    def __init__(self, archive: Archive, reads: Reads) -> None:
        self._archive = archive
        self._reads = reads
        self._folding = asyncio.Semaphore(limits.HISTORIES_AT_ONCE)

    async def get_state(self, request: GetState) -> StateView:
        """A session as it was. Who may read it now may read what it was.

        Raises `NotFound`, `BadRequest` for a sequence before its first event, `TooLarge`, `Unavailable`.
        """
        # waits, too, until the archive holds what is in the log by now
        now = await self._reads.get_session(GetSession(session_id=request.session_id, user=request.user))
        async with self._folding:
            try:
                async with asyncio.timeout(limits.HISTORY_DEADLINE):
                    tables = await self._fold(request.session_id, request.at)
            except TimeoutError as error:
                raise TooLarge(
                    "history_too_long", "The session is too long to be folded anew within a request."
                ) from error
        owner = tables.owner
        if owner is None:
            raise BadRequest("bad_sequence", f"The session begins after sequence {request.at}.")
        past = _reader(tables)
        session = await past.get_session(GetSession(session_id=request.session_id, user=owner))
        page = await past.list_messages(
            ListMessages(
                session_id=request.session_id,
                user=owner,
                limit=request.limit,
                after=request.after,
                nested=request.nested,
            )
        )
        diff = await past.get_diff(GetDiff(session_id=request.session_id, user=owner))
        return StateView(
            at=tables.last_seq,
            session=replace(session, role=now.role),
            messages=page.items,
            next=page.next,
            diff=diff,
        )

    async def _fold(self, session_id: str, at: int) -> Tables:
        tables = Tables(session_id)
        async for rows in self._archive.pages(session_id, until=at):
            for start in range(0, len(rows), limits.FOLD_BATCH):
                tables.fold(rows[start : start + limits.FOLD_BATCH])
                await asyncio.sleep(0)  # commands of other sessions do not wait for a long past
        return tables


def _reader(tables: Tables) -> Reads:
    pool: Any = tables
    names: Any = Names()
    freshness: Any = AsItIs()
    return Reads(pool, names, freshness)
