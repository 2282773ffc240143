"""Requests of agents about memories: `rpc.session.<id>.…`. A memory belongs to the session's owner."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.ids import derived_id
from valet_protocol.requests import Reply
from valet_protocol.tools.base import Tool
from valet_protocol.tools.memory import (
    DeleteMemory,
    ListMemories,
    MemoryDeleted,
    MemoryList,
    MemoryWritten,
    SearchMemories,
    WriteMemory,
)
from valet_service import rpc
from valet_service.owners import Owners

from valet_knowledge.config import NAME
from valet_knowledge.errors import NotACursor
from valet_knowledge.store import NEWEST, Change, Store, Text

T = TypeVar("T", bound=Tool)


class MemoryRequests:
    """Answers. Every answer is refused with `session_not_found` to a session that is not there, and `unavailable` while
    the ledger or the database is away."""

    def __init__(self, nc: Client, store: Store, owners: Owners) -> None:
        self._nc = nc
        self._store = store
        self._owners = owners

    async def start(self) -> None:
        """Begin to answer; replicas share the requests."""
        await self._serve(ListMemories, self.list)
        await self._serve(SearchMemories, self.search)
        await self._serve(WriteMemory, self.write)
        await self._serve(DeleteMemory, self.delete)

    async def _serve(self, tool: type[T], answer: Callable[[T], Awaitable[Reply]]) -> None:
        await rpc.serve(self._nc, subjects.sandbox_request("*", tool.method), tool, answer, queue=NAME)

    async def list(self, request: ListMemories) -> MemoryList:
        """Raises `NotACursor`."""
        before = _position(request.before)
        owner = await self._owners.of(request.session_id)
        category, workspace = _storable(request.memory_category), _storable(request.workspace)
        return await self._store.page(owner.user, category, workspace, before, request.limit)

    async def search(self, request: SearchMemories) -> MemoryList:
        owner = await self._owners.of(request.session_id)
        category, workspace = _storable(request.memory_category), _storable(request.workspace)
        return await self._store.search(owner.user, request.query, category, workspace, request.limit)

    async def write(self, request: WriteMemory) -> MemoryWritten:
        """Raises `MemoryNotFound` and `TooManyMemories`."""
        text = Text(
            content=_storable(request.content) or "",
            category=_storable(request.memory_category) or "",
            workspace=_storable(request.workspace),
        )
        new_id = derived_id("memory", request.session_id, request.request_id)
        change = await self._change(request)
        return await self._store.write(change, text, new_id, _storable(request.memory_id))

    async def delete(self, request: DeleteMemory) -> MemoryDeleted:
        return await self._store.delete(await self._change(request), _storable(request.memory_id) or "")

    async def _change(self, request: WriteMemory | DeleteMemory) -> Change:
        owner = await self._owners.of(request.session_id)
        return Change(user=owner.user, session_id=request.session_id, request_id=request.request_id)


def _position(before: str | None) -> int:
    """What a cursor says. Raises `NotACursor`."""
    if before is None:
        return NEWEST
    if not (before.isascii() and before.isdigit()) or int(before) > NEWEST:
        raise NotACursor
    return int(before)


def _storable(text: str | None) -> str | None:
    """Without the one character PostgreSQL does not store."""
    return None if text is None else text.replace("\0", "")
