"""One connection to the API: requests that are repeated while it restarts, answers decoded, refusals raised.

What writes carries an `Idempotency-Key`, so that a repetition whose first answer was lost takes effect once.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from valet_protocol.errors import NotFound, Problem, from_problem
from valet_protocol.ids import is_ulid, new_id

from valet_local.client import backoff, bodies, files, limits
from valet_local.client.endpoint import Endpoint
from valet_local.client.errors import BadAnswer, NotReachable
from valet_local.invocation import typed

T = TypeVar("T")

_RESTARTING = frozenset({502, 503, 504})
"""Answers of an API, or of a proxy before it, that will be there again."""

_IN_PROGRESS = "in_progress"
"""The code of a refusal that says: the first try is still being worked on."""


class Interrupted(Exception):
    """This try brought no answer; the next may."""


class Transport:
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

    async def read(self, path: str, kind: type[T], query: dict[str, str | int] | None = None) -> T:
        """GET."""
        return await self._ask("GET", path, kind, params=query or {})

    async def write(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: bodies.Body | None = None,
        *,
        query: dict[str, str | int] | None = None,
        timeout: float = limits.REQUEST_TIMEOUT,
    ) -> T:
        """Anything else, with a body of JSON or none."""
        headers = {"Idempotency-Key": new_id()}
        options: dict[str, Any] = {"params": query or {}, "timeout": _timeout(timeout)}
        if body is not None:
            headers["Content-Type"] = "application/json"
            options["content"] = msgspec.json.encode(body)
        return await self._ask(method, path, kind, headers=headers, **options)

    async def upload(
        self, path: str, kind: type[T], file: Path, content_type: str, *, query: dict[str, str | int]
    ) -> T:
        """POST of a file, which is read from its beginning for every try. Raises `FileTrouble` as well."""
        headers = {
            "Idempotency-Key": new_id(),
            "Content-Type": content_type,
            "Content-Length": str(files.size(file)),
        }
        options = {"params": query, "timeout": _timeout(limits.TRANSFER_TIMEOUT)}
        return await self._ask("POST", path, kind, fresh=lambda: files.pieces(file), headers=headers, **options)

    @asynccontextmanager
    async def stream(self, path: str, *, timeout: float, **request: Any) -> AsyncIterator[httpx.Response]:
        """GET of something long. Raises `Interrupted` and httpx's errors: who streams knows how to go on."""
        async with self._http.stream("GET", path, timeout=_timeout(timeout), **request) as response:
            if response.status_code != 200:
                await response.aread()
                self._check(response)
            yield response

    async def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        fresh: Callable[[], AsyncIterable[bytes]] | None = None,
        **request: Any,
    ) -> T:
        """One answer, repeating the request while there is none."""
        started = time.monotonic()
        tries = backoff.waits(random.random())
        while True:
            try:
                if fresh is not None:
                    request["content"] = fresh()
                response = await self._http.request(method, path, **request)
                self._check(response)
                return msgspec.json.decode(response.content, type=kind)
            except msgspec.DecodeError as error:
                raise BadAnswer(self._endpoint.url, f"{method} {path}: {error}") from error
            except (httpx.TransportError, Interrupted) as error:
                waited = time.monotonic() - started
                if waited > self._patience:
                    raise NotReachable(self._endpoint.url, waited, reason_of(error)) from error
                await asyncio.sleep(next(tries))

    def _check(self, response: httpx.Response) -> None:
        """Raises `Refused` for a refusal, `Interrupted` for one that will pass by itself."""
        if response.is_success:
            return
        try:
            problem = msgspec.json.decode(response.content, type=Problem)
        except msgspec.DecodeError:
            problem = None
        if response.status_code in _RESTARTING or (problem is not None and problem.code == _IN_PROGRESS):
            detail = problem.detail if problem else ""
            raise Interrupted(detail or f"HTTP {response.status_code}")
        if problem is None:
            raise BadAnswer(self._endpoint.url, f"HTTP {response.status_code} without a problem document")
        raise from_problem(problem)


def path_of(session_id: str, *rest: str) -> str:
    """The address of a session or of something in it. Raises `NotFound` for an id that is none."""
    if not is_ulid(session_id):  # ids are typed by people: one with a slash or dots must not reach another route
        raise NotFound("session_not_found", f"there is no session {session_id!r}; `{typed('sessions')}` lists yours")
    return "/".join(("/api/sessions", session_id, *map(segment, rest)))


def reason_of(error: Exception) -> str:
    """Why there is no answer, in words: httpx leaves some of its errors without any."""
    return str(error) or type(error).__name__


def segment(text: str) -> str:
    """What a person typed as one segment of an address, whatever it has in it."""
    return quote(text, safe="").replace(".", "%2E")


def _timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=limits.CONNECT_TIMEOUT)
