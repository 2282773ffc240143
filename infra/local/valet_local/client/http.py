"""The client: one method per thing the API can do, and `follow`.

Requests are repeated while the API restarts; what writes carries an `Idempotency-Key`, so that a repetition
whose first answer was lost takes effect once.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec
from valet_protocol.errors import BadEvent, NotFound, Problem, from_problem
from valet_protocol.events.facts import PromptMode
from valet_protocol.ids import is_ulid, new_id
from valet_protocol.requests import (
    Accepted,
    DiffView,
    Done,
    MessagePage,
    MessageView,
    SessionPage,
    SessionView,
)

from valet_local.client import backoff, bodies, limits
from valet_local.client.endpoint import Endpoint
from valet_local.client.errors import BadAnswer, NotReachable
from valet_local.client.follow import Cursor, Entry, Synced
from valet_local.client.sse import FrameReader, FrameTooLong

T = TypeVar("T")

_RESTARTING = frozenset({502, 503, 504})
"""Answers of an API, or of a proxy before it, that will be there again."""


class _Interrupted(Exception):
    """This try brought no answer; the next may."""


class Client:
    """The API of one platform, as one user. Use it as an async context manager.

    `patience` is how many seconds a request is repeated while nothing answers.

    Every method raises `Refused` (valet_protocol) with the API's own words, `NotReachable` and `BadAnswer`.
    """

    def __init__(self, endpoint: Endpoint, *, patience: float = limits.RETRY_FOR) -> None:
        self._endpoint = endpoint
        self._patience = patience
        timeout = httpx.Timeout(limits.REQUEST_TIMEOUT, connect=limits.CONNECT_TIMEOUT)
        # The environment's proxies are for the outside; the platform is addressed as it said itself.
        self._http = httpx.AsyncClient(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {endpoint.token}"},
            timeout=timeout,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; streams end."""
        await self._http.aclose()

    async def create_session(
        self, *, repo: str | None = None, branch: str | None = None, title: str | None = None, model: str | None = None
    ) -> SessionView:
        """A new session. `repo` is a URL or an absolute path on the platform's machine; none is an empty
        workspace.
        """
        body = bodies.NewSession(repo=repo, branch=branch, title=title, model=model)
        return await self._write("POST", "/api/sessions", SessionView, body)

    async def sessions(self) -> AsyncIterator[SessionView]:
        """Every session of the user, newest first."""
        before: str | None = None
        while True:
            query: dict[str, str | int] = {"limit": limits.PAGE, **({"before": before} if before else {})}
            page = await self._read("/api/sessions", SessionPage, query)
            for view in page.items:
                yield view
            before = page.next
            if before is None:
                return

    async def session(self, session_id: str) -> SessionView:
        """One session as it is now."""
        return await self._read(_path(session_id), SessionView)

    async def messages(self, session_id: str) -> AsyncIterator[MessageView]:
        """The whole conversation, oldest first."""
        after: int | None = 0
        while after is not None:
            page = await self._read(_path(session_id, "messages"), MessagePage, {"limit": limits.PAGE, "after": after})
            for message in page.items:
                yield message
            after = page.next

    async def send_message(
        self, session_id: str, content: str, *, mode: PromptMode | None = None, model: str | None = None
    ) -> Accepted:
        """Give the session a prompt. It is in the log when this returns."""
        body = bodies.NewMessage(content=content, mode=mode, model=model)
        return await self._write("POST", _path(session_id, "messages"), Accepted, body)

    async def answer(self, session_id: str, answers: list[list[str]], *, question_id: str | None = None) -> Done:
        """Answer a question (labels chosen or free text, per question of the set); the first answer wins."""
        body = bodies.NewAnswer(question_id=question_id, answers=answers)
        return await self._write("POST", _path(session_id, "answer"), Done, body)

    async def abort(self, session_id: str) -> Done:
        """Have the running turn stop. Refused with `nothing_running` when there is none."""
        return await self._write("POST", _path(session_id, "abort"), Done)

    async def terminate(self, session_id: str) -> Done:
        """End the session and its sandbox for good; its history stays."""
        return await self._write("DELETE", _path(session_id), Done)

    async def diff(self, session_id: str) -> DiffView:
        """What the session changed, as of the end of its last turn."""
        return await self._read(_path(session_id, "diff"), DiffView)

    async def models(self) -> bodies.ModelList:
        """The models a session may use."""
        return await self._read("/api/models", bodies.ModelList)

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
            except (httpx.TransportError, _Interrupted) as error:
                reason = _reason(error)
            silent = time.monotonic() - alive_at
            if patience is not None and silent > patience:
                raise NotReachable(self._endpoint.url, silent, reason)
            wait = next(tries)
            on_wait(reason, wait)
            await asyncio.sleep(wait)

    async def _stream(self, session_id: str, cursor: Cursor) -> AsyncGenerator[Entry | Synced | None, None]:
        """One connection's worth; None stands for bytes without news, such as a keep-alive."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(cursor.seq)}
        timeout = httpx.Timeout(limits.SILENCE_TIMEOUT, connect=limits.CONNECT_TIMEOUT)
        async with self._http.stream(
            "GET", _path(session_id, "events"), params={"after": cursor.seq}, headers=headers, timeout=timeout
        ) as response:
            if response.status_code != 200:
                await response.aread()
                self._check(response)
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

    async def _read(self, path: str, kind: type[T], query: dict[str, str | int] | None = None) -> T:
        return await self._ask("GET", path, kind, params=query or {})

    async def _write(self, method: str, path: str, kind: type[T], body: bodies.Body | None = None) -> T:
        headers = {"Idempotency-Key": new_id()}
        if body is None:
            return await self._ask(method, path, kind, headers=headers)
        headers["Content-Type"] = "application/json"
        return await self._ask(method, path, kind, headers=headers, content=msgspec.json.encode(body))

    async def _ask(self, method: str, path: str, kind: type[T], **request: Any) -> T:
        """One answer, repeating the request while there is none."""
        started = time.monotonic()
        tries = backoff.waits(random.random())
        while True:
            try:
                response = await self._http.request(method, path, **request)
                self._check(response)
                return msgspec.json.decode(response.content, type=kind)
            except msgspec.DecodeError as error:
                raise BadAnswer(self._endpoint.url, f"{method} {path}: {error}") from error
            except (httpx.TransportError, _Interrupted) as error:
                waited = time.monotonic() - started
                if waited > self._patience:
                    raise NotReachable(self._endpoint.url, waited, _reason(error)) from error
                await asyncio.sleep(next(tries))

    def _check(self, response: httpx.Response) -> None:
        """Raises `Refused` for a refusal, `_Interrupted` for one that will pass by itself."""
        if response.is_success:
            return
        try:
            problem = msgspec.json.decode(response.content, type=Problem)
        except msgspec.DecodeError:
            problem = None
        if response.status_code in _RESTARTING:
            detail = problem.detail if problem else ""
            raise _Interrupted(detail or f"HTTP {response.status_code}")
        if problem is None:
            raise BadAnswer(self._endpoint.url, f"HTTP {response.status_code} without a problem document")
        raise from_problem(problem)


def _path(session_id: str, *rest: str) -> str:
    if not is_ulid(session_id):  # ids are typed by people: one with a slash or dots must not reach another route
        raise NotFound("session_not_found", f"there is no session {session_id!r}; `valet sessions` lists yours")
    return "/".join(("/api/sessions", session_id, *rest))


def _reason(error: Exception) -> str:
    """Why there is no answer, in words: httpx leaves some of its errors without any."""
    return str(error) or type(error).__name__
