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
from valet_runner.tools.answers import Answers, check_same, digest


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A picture for the model."""

    media_type: str
    content: bytes


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gives back."""

    reply: Reply
    image: Image | None = None
    """To be seen by the model besides."""
    note: str = ""
    """To be read by the model besides."""


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
        answers: Answers,
        new_id: Callable[[], str] = ids.new_id,
    ) -> None:
        """`answers` is where those of calls with a key are noted."""
        self.offered = tuple(tool for tool in TOOLS if tool.orchestrators or not orchestrator)
        """What this session's agent is offered."""
        self._session_id = session_id
        self._platform = platform
        self._local = local
        self._turn = turn
        self._new_id = new_id
        self._answers = answers
        self._running: dict[str, tuple[str, asyncio.Task[Answer]]] = {}
        """Calls with a key, by request id: what tells them apart, and their answer to come."""

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
        found = self._answers.find(request)
        if found is not None:
            return Answer(reply=found)
        first = self._running.get(request.request_id)
        if first is None:
            task = asyncio.create_task(self._noted(request))
            self._running[request.request_id] = (digest(request), task)
            task.add_done_callback(lambda _: self._running.pop(request.request_id))
        else:
            check_same(request, first[0])
            task = first[1]
        return await asyncio.shield(task)

    async def _noted(self, request: Tool) -> Answer:
        """Without what is for the model besides, which a repetition would not have either. What is refused may be
        tried again with the same key."""
        reply = (await self._here(request)).reply
        self._answers.keep(request, reply)
        return Answer(reply=reply)
