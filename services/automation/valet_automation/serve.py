"""Requests of agents about tasks: `rpc.session.<id>.…`. The board is that of the session's owner."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import NotFound
from valet_protocol.ids import derived_id
from valet_protocol.requests import Reply
from valet_protocol.tools.base import Tool
from valet_protocol.tools.tasks import CreateTask, GetTask, ListTasks, MyTasks, TaskPage, TaskView, UpdateTask
from valet_service import rpc
from valet_service.owners import Owners

from valet_automation.board import Task
from valet_automation.config import NAME
from valet_automation.errors import SessionNotFound
from valet_automation.store import Change, Store, Wanted

T = TypeVar("T", bound=Tool)


class TaskRequests:
    """Answers. Every answer is refused with `session_not_found` to a session that is not there, and `unavailable` while
    the ledger or the database is away."""

    def __init__(self, nc: Client, store: Store, owners: Owners) -> None:
        self._nc = nc
        self._store = store
        self._owners = owners

    async def start(self) -> None:
        """Begin to answer; replicas share the requests."""
        await self._serve(CreateTask, self.create)
        await self._serve(ListTasks, self.list)
        await self._serve(GetTask, self.get)
        await self._serve(UpdateTask, self.update)
        await self._serve(MyTasks, self.mine)

    async def _serve(self, tool: type[T], answer: Callable[[T], Awaitable[Reply]]) -> None:
        async def storable(request: T) -> Reply:
            return await answer(_storable(request))

        await rpc.serve(self._nc, subjects.sandbox_request("*", tool.method), tool, storable, queue=NAME)

    async def create(self, request: CreateTask) -> TaskView:
        """Raises `SessionNotFound` and what `Store.create` raises."""
        change = await self._change(request)
        await self._must_be_same_persons(change.user, request.assigned_session)
        task = Task(
            id=derived_id("task", request.session_id, request.request_id),
            title=request.title,
            description=request.description or "",
            priority=request.priority,
            assigned_session=request.assigned_session,
            parent_task=request.parent_task,
            blocked_by=list(dict.fromkeys(request.blocked_by)),
        )
        return await self._store.create(change, task)

    async def update(self, request: UpdateTask) -> TaskView:
        """Raises `SessionNotFound` and what `Store.update` raises."""
        change = await self._change(request)
        await self._must_be_same_persons(change.user, request.assigned_session)
        return await self._store.update(change, request)

    async def get(self, request: GetTask) -> TaskView:
        """Raises `TaskNotFound`."""
        owner = await self._owners.of(request.session_id)
        return await self._store.get(owner.user, request.task_id)

    async def list(self, request: ListTasks) -> TaskPage:
        """Raises `NotACursor`."""
        owner = await self._owners.of(request.session_id)
        wanted = Wanted(
            status=request.status,
            assigned_session=request.assigned_session,
            parent_task=request.parent_task,
            limit=request.limit,
            after=request.after,
        )
        return await self._store.page(owner.user, wanted)

    async def mine(self, request: MyTasks) -> TaskPage:
        """Raises `NotACursor`."""
        owner = await self._owners.of(request.session_id)
        wanted = Wanted(
            status=request.status, assigned_session=request.session_id, limit=request.limit, after=request.after
        )
        return await self._store.page(owner.user, wanted)

    async def _change(self, request: CreateTask | UpdateTask) -> Change:
        owner = await self._owners.of(request.session_id)
        return Change(user=owner.user, session_id=request.session_id, request_id=request.request_id)

    async def _must_be_same_persons(self, user: str, session_id: str | None) -> None:
        """Raises `SessionNotFound`."""
        if session_id is None:
            return
        try:
            owner = await self._owners.of(session_id)
        except NotFound:
            raise SessionNotFound(session_id) from None
        if owner.user != user:
            raise SessionNotFound(session_id)


def _storable(request: T) -> T:
    """Without the one character PostgreSQL does not store. An id that has it is refused where it matters."""
    texts = {name: _without_nul(value) for name, value in msgspec.structs.asdict(request).items()}
    return msgspec.structs.replace(request, **texts | {"request_id": request.request_id})


def _without_nul(value: object) -> object:
    if isinstance(value, str):
        return value.replace("\0", "")
    return [_without_nul(one) for one in value] if isinstance(value, list) else value
