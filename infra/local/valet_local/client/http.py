"""The client: one method per thing the API can do, and `follow`."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import httpx
import msgspec
from valet_protocol.errors import BadEvent
from valet_protocol.requests import DiffView, Done, SessionPage, SessionView, StateView

from valet_local.client import backoff, bodies, limits
from valet_local.client.conversation import Conversation
from valet_local.client.errors import BadAnswer, NotReachable
from valet_local.client.follow import Cursor, Entry, Synced
from valet_local.client.people import People
from valet_local.client.sharing import Sharing
from valet_local.client.sse import FrameReader, FrameTooLong
from valet_local.client.transfer import Transfer
from valet_local.client.transport import Interrupted, path_of, reason_of


class Client(Conversation, People, Sharing, Transfer):
    """The API of one platform, as one user. Use it as an async context manager.

    Every method raises `Refused` (valet_protocol) with the API's own words, `NotReachable` and `BadAnswer`.
    """

    async def create_session(
        self, *, repo: str | None = None, branch: str | None = None, title: str | None = None, model: str | None = None
    ) -> SessionView:
        """A new session. `repo` is a URL or an absolute path on the platform's machine; none is an empty
        workspace.
        """
        body = bodies.NewSession(repo=repo, branch=branch, title=title, model=model)
        return await self.write("POST", "/api/sessions", SessionView, body)

    async def sessions(self) -> AsyncIterator[SessionView]:
        """Every session of the user, newest first."""
        before: str | None = None
        while True:
            query: dict[str, str | int] = {"limit": limits.PAGE, **({"before": before} if before else {})}
            page = await self.read("/api/sessions", SessionPage, query)
            for view in page.items:
                yield view
            before = page.next
            if before is None:
                return

    async def session(self, session_id: str) -> SessionView:
        """One session as it is now."""
        return await self.read(path_of(session_id), SessionView)

    async def state(self, session_id: str, at: int, *, nested: bool = False) -> StateView:
        """A session as it was right after an event, with all its messages; `nested` as of `messages`."""
        path = path_of(session_id, "state")
        query: dict[str, str | int] = {"at": at, "limit": limits.PAGE, **({"nested": "true"} if nested else {})}
        view = await self.read(path, StateView, query)
        messages = list(view.messages)
        after = view.next
        while after is not None:
            page = await self.read(path, StateView, {**query, "after": after})
            messages += page.messages
            after = page.next
        return msgspec.structs.replace(view, messages=messages, next=None)

    async def rename(self, session_id: str, title: str) -> SessionView:
        """Give a session a title."""
        return await self.write("PATCH", path_of(session_id), SessionView, bodies.SessionChange(title=title))

    async def terminate(self, session_id: str) -> Done:
        """End the session and its sandbox for good; its history stays."""
        return await self.write("DELETE", path_of(session_id), Done)

    async def diff(self, session_id: str, *, turn: str | None = None) -> DiffView:
        """What the session changed, as of the end of its last turn, or what one turn changed."""
        query: dict[str, str | int] = {"turn": turn} if turn is not None else {}
        return await self.read(path_of(session_id, "diff"), DiffView, query)

    async def models(self) -> bodies.ModelList:
        """The models a session may use."""
        return await self.read("/api/models", bodies.ModelList)

    async def follow(
        self,
        session_id: str,
        *,
        after: int = 0,
        patience: float | None = None,
        on_wait: Callable[[str, float], None] = lambda reason, seconds: None,
    ) -> AsyncGenerator[Entry | Synced, None]:
        """The session's events behind `after`: history, one `Synced`, then live, each once and in order,
        without end.

        A cut connection is resumed behind the last event given out, for ever, or until `patience` seconds
        passed without one byte (then `NotReachable`). `on_wait(reason, seconds)` is called before each wait.
        Break out of the loop to stop; wrap it in `contextlib.aclosing` to close the connection at once.
        """
        cursor = Cursor(after)
        alive_at = time.monotonic()
        tries = backoff.waits(random.random())
        while True:
            try:
                async with aclosing(self._stream(session_id, cursor)) as items:
                    async for item in items:
                        alive_at = time.monotonic()
                        tries = backoff.waits(random.random())
                        if item is not None:
                            yield item
                reason = "the connection was closed"
            except (httpx.TransportError, Interrupted) as error:
                reason = reason_of(error)
            silent = time.monotonic() - alive_at
            if patience is not None and silent > patience:
                raise NotReachable(self._endpoint.url, silent, reason)
            wait = next(tries)
            on_wait(reason, wait)
            await asyncio.sleep(wait)

    async def _stream(self, session_id: str, cursor: Cursor) -> AsyncGenerator[Entry | Synced | None, None]:
        """One connection's worth; None stands for bytes without news, such as a keep-alive."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(cursor.seq)}
        async with self.stream(
            path_of(session_id, "events"),
            params={"after": cursor.seq},
            headers=headers,
            timeout=limits.SILENCE_TIMEOUT,
        ) as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise BadAnswer(self._endpoint.url, "its stream is no text/event-stream")
            reader = FrameReader()
            try:
                async for piece in response.aiter_bytes():
                    yield None
                    for frame in reader.feed(piece):
                        yield cursor.take(frame)
            except (BadEvent, FrameTooLong, ValueError, msgspec.DecodeError) as error:
                raise BadAnswer(self._endpoint.url, f"its stream holds what is no event ({error})") from error
