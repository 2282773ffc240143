"""`GET /v1/events`: what happens to processes, as Server-Sent Events that can be resumed."""

import asyncio
import contextlib

import msgspec
from aiohttp import web
from valet_protocol.errors import Unprocessable
from valet_protocol.events.machine import ProcessInfo

from valet_processes import limits
from valet_processes.connections import Connections
from valet_processes.manager import Manager
from valet_processes.requests import Filter


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Data of `snapshot`: sent first to a client that missed more than is kept. What is not in it is gone."""

    items: list[ProcessInfo]


class EventRoutes:
    """The handler and what it needs."""

    def __init__(self, manager: Manager, connections: Connections) -> None:
        self._manager = manager
        self._connections = connections

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application."""
        return [web.get("/v1/events", self._events, allow_head=False)]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        after = _after(request, self._manager.events.last)
        with self._connections.one(request):
            response = web.StreamResponse(
                headers={
                    "Content-Type": "text/event-stream; charset=utf-8",
                    "Cache-Control": "no-store",
                    "X-Accel-Buffering": "no",
                }
            )
            await response.prepare(request)
            news = asyncio.Event()
            self._manager.listen(news.set)
            try:
                await response.write(b": connected\n\n")
                while True:
                    news.clear()
                    frames, after = self._frames(after)
                    if frames:
                        await response.write(frames)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(limits.HEARTBEAT):
                            await news.wait()
                        continue
                    await response.write(b": alive\n\n")
            except ConnectionError:
                return response
            finally:
                self._manager.unlisten(news.set)

    def _frames(self, after: int) -> tuple[bytes, int]:
        events = self._manager.events
        missed = events.since(after)
        if missed is None:
            snapshot = msgspec.json.encode(Snapshot(items=self._manager.matching(Filter())))
            return _frame(events.last, "snapshot", snapshot), events.last
        return b"".join(_frame(event.id, event.type, event.data) for event in missed), events.last


def _frame(id: int, type: str, data: bytes) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (id, type.encode(), data)


def _after(request: web.Request, last: int) -> int:
    text = request.headers.get("Last-Event-ID") or request.query.get("after")
    if text is None:
        return last
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Unprocessable("bad_after", "after is the number of the last event you have, or 0")
    return int(text)
