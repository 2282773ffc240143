"""One call of a tool, whichever way it came."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from valet_protocol import ids
from valet_protocol.errors import Forbidden, Unavailable
from valet_protocol.requests import Reply
from valet_protocol.tools import TOOLS, Tool

from valet_runner.tools import limits, reading


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A picture for the model."""

    media_type: str
    content: bytes


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gives back."""

    reply: Reply
    image: Image | None = None
    """To be seen by the model besides."""


Handler = Callable[[Any], Awaitable[Answer]]
"""Answers one of the sandbox's own tools."""


class Tools:
    """The tools of one session. Calls run at the same time; none waits for another."""

    def __init__(
        self,
        *,
        session_id: str,
        orchestrator: bool,
        platform: Callable[[Tool], Awaitable[Reply]],
        local: Mapping[type[Tool], Handler],
        turn: Callable[[], str | None],
        new_id: Callable[[], str] = ids.new_id,
    ) -> None:
        self.offered = tuple(tool for tool in TOOLS if tool.orchestrators or not orchestrator)
        """What this session's agent is offered."""
        self._session_id = session_id
        self._platform = platform
        self._local = local
        self._turn = turn
        self._new_id = new_id
        self._repeatable: dict[str, asyncio.Task[Answer]] = {}

    async def call(
        self, tool: type[Tool], values: Mapping[str, object], *, lax: bool, key: str | None = None
    ) -> Answer:
        """Carry out a call. With the same `key` again it has one effect, and the same answer. Raises `Refused`."""
        if tool not in self.offered:
            raise Forbidden("not_for_orchestrators", f"An agent that directs others has no {tool.name}.")
        request = msgspec.structs.replace(
            reading.read(tool, values, lax=lax),
            session_id=self._session_id,
            request_id=self._new_id() if key is None else ids.derived_id(self._session_id, tool.name, key),
            turn_id=self._turn(),
        )
        if tool.served_by == "platform":
            return Answer(reply=await self._platform(request))
        if key is None:
            return await self._here(request)
        return await self._once(request)

    async def _here(self, request: Tool) -> Answer:
        handler = self._local.get(type(request))
        if handler is None:
            raise Unavailable("unavailable", f"This sandbox does not offer {request.name}.")
        try:
            async with asyncio.timeout(request.timeout + limits.LOCAL_GRACE):
                return await handler(request)
        except TimeoutError as error:
            raise Unavailable("no_answer", f"{request.name} took longer than {request.timeout:.0f} s.") from error

    async def _once(self, request: Tool) -> Answer:
        task = self._repeatable.get(request.request_id)
        if task is None:
            task = asyncio.create_task(self._without_image(request))
            self._repeatable[request.request_id] = task
            task.add_done_callback(lambda done: self._done(request.request_id, done))
        return await asyncio.shield(task)

    async def _without_image(self, request: Tool) -> Answer:
        return Answer(reply=(await self._here(request)).reply)

    def _done(self, request_id: str, task: asyncio.Task[Answer]) -> None:
        """Keep what succeeded, for a while: what was refused may be tried again with the same key."""
        if task.cancelled() or task.exception() is not None:
            del self._repeatable[request_id]
        for old in [name for name, one in self._repeatable.items() if one.done()][: -limits.KEPT_ANSWERS]:
            del self._repeatable[old]
