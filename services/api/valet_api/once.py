"""A request with an Idempotency-Key is done once: middleware around every POST.

A repetition gets the answer of the first; while that one is in flight it waits for it. What differs under the same key
is refused. Routes say in their `opt` what the middleware must know of them:

    repeatable      doing it again is harmless by itself (its ids derive from the key): done even without the database
    secret_answer   the answer is not to be stored; doing it again gives the same one
    stream_bytes    the body is not held in memory; its largest size
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

from litestar.connection import ASGIConnection
from litestar.types import ASGIApp, HTTPReceiveMessage, HTTPSendMessage, Message, Receive, Scope, Send
from valet_protocol.errors import Conflict, Refused, Unavailable, Unprocessable
from valet_protocol.ids import new_id
from valet_service import database, logs

from valet_api import limits, replies
from valet_api.auth import Authenticator, bearer
from valet_api.replies import KEY, Found, Kept, Replies

_log = logs.get(__name__)
T = TypeVar("T")

_OF_THE_ANSWER = ("content-type", "location")


class Once:
    """The middleware. Requests without a key, and those that are not POST, pass untouched."""

    def __init__(self, app: ASGIApp, kept: Replies) -> None:
        self._app = app
        self._replies = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        connection: ASGIConnection[Any, Any, Any, Any] = ASGIConnection(scope)
        key = connection.headers.get("idempotency-key")
        if key is None or len(key) > limits.KEY_CHARACTERS or not KEY.fullmatch(key):
            return await self._app(scope, receive, send)  # the route refuses what is no key
        user = await _user(connection)
        if user is None:
            return await self._app(scope, receive, send)  # the route refuses strangers
        opt = scope["route_handler"].opt
        place = replies.Scope(user=user, route=f"POST {scope['path']}", key=key)
        body = _Body(receive, connection, opt.get("stream_bytes"))
        request = _Request(self._app, self._replies, place, body, opt)
        return await request.run(scope, send)


class _Body:
    """The request's body and its digest. A small one is read first, a large one is digested as it passes."""

    def __init__(self, receive: Receive, connection: ASGIConnection[Any, Any, Any, Any], most: int | None) -> None:
        self._receive = receive
        self._most = most
        kind = connection.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._hash = hashlib.sha256(b"%b\0%b\0" % (connection.scope["query_string"], kind.encode()))
        self._read: list[HTTPReceiveMessage] = []
        self._bytes = 0
        self.complete = False
        """Whether all of it was seen."""

    async def begin(self) -> bytes | None:
        """The request's digest, if it can be known before it is worked on."""
        if self._most is not None:
            return None
        while not self.complete and self._bytes <= limits.BODY_BYTES:
            self._read.append(await self._next())
            if self._read[-1]["type"] == "http.disconnect":
                return None
        return self.digest if self.complete else None

    async def receive(self) -> HTTPReceiveMessage:
        """What the route is given."""
        return self._read.pop(0) if self._read else await self._next()

    async def whole(self) -> bytes | None:
        """The digest once the rest was read; None for a body that is too long or was not sent whole."""
        while not self.complete:
            message = await self._next()
            if message["type"] == "http.disconnect" or self._bytes > (self._most or limits.BODY_BYTES):
                return None
        return self.digest

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    async def _next(self) -> HTTPReceiveMessage:
        message: HTTPReceiveMessage = await self._receive()  # type: ignore[assignment]
        if message["type"] == "http.request":
            chunk = message.get("body", b"")
            self._hash.update(chunk)
            self._bytes += len(chunk)
            self.complete = not message.get("more_body", False)
        return message


class _Request:
    """One request with a key."""

    def __init__(self, app: ASGIApp, kept: Replies, place: replies.Scope, body: _Body, opt: dict[str, Any]) -> None:
        self._app = app
        self._replies = kept
        self._place = place
        self._body = body
        self._opt = opt
        self._holder = new_id()

    async def run(self, scope: Scope, send: Send) -> None:
        digest = await self._body.begin()
        try:
            answered = await self._answered(digest)
        except database.UNAVAILABLE as error:
            if self._opt.get("repeatable"):
                return await self._app(scope, self._body.receive, send)
            raise Unavailable(
                "database_unavailable", "Whether this was done before cannot be looked up at the moment; try again."
            ) from error
        if answered is not None:
            return await _replay(answered, send)
        return await self._work(scope, send)

    async def _answered(self, digest: bytes | None) -> Kept | None:
        """The answer of the first request; None when this one is it. Raises `Unprocessable` and `Conflict`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.LEASE_WAIT
        while True:
            if await self._patiently(lambda: self._replies.reserve(self._place, digest, self._holder)):
                return None
            found = await self._patiently(lambda: self._replies.find(self._place))
            if found is not None and (kept := await self._same(found, digest)) is not None:
                return kept if kept.body is not None else None
            if loop.time() > until:
                raise Conflict(
                    "in_progress",
                    "The first request with this Idempotency-Key is still being worked on; repeat it in a while.",
                )
            await asyncio.sleep(limits.LEASE_LOOK)

    async def _same(self, found: Found, digest: bytes | None) -> Kept | None:
        """What is kept if this is the same request; None while there is nothing yet. Raises `Unprocessable`."""
        if found.kept is None:
            if digest is not None and found.digest is not None and digest != found.digest:
                raise _reused()
            return None
        if await self._body.whole() != found.digest:
            raise _reused()
        return found.kept

    async def _work(self, scope: Scope, send: Send) -> None:
        answer: list[HTTPSendMessage] = []

        async def collect(message: Message) -> None:
            answer.append(message)  # type: ignore[arg-type]

        async with self._held():
            kept = None
            try:
                await self._app(scope, self._body.receive, collect)
                kept = self._worth_keeping(answer)
            finally:
                # what is done is done: a client that hangs up now must not lose the note of it
                await asyncio.shield(self._settle(kept))
        for message in answer:
            await send(message)

    def _worth_keeping(self, answer: list[HTTPSendMessage]) -> Kept | None:
        start = answer[0] if answer else None
        if start is None or start["type"] != "http.response.start" or not replies.is_kept(start["status"]):
            return None
        body = b"".join(message.get("body", b"") for message in answer[1:])  # type: ignore[misc]
        if len(body) > limits.REPLY_BYTES or not self._body.complete:
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        return Kept(
            status=start["status"],
            headers={name: headers[name] for name in _OF_THE_ANSWER if name in headers},
            body=None if self._opt.get("secret_answer") else body,
        )

    async def _settle(self, kept: Kept | None) -> None:
        try:
            if kept is None:
                await self._patiently(lambda: self._replies.release(self._place, self._holder))
            else:
                digest = self._body.digest
                await self._patiently(lambda: self._replies.keep(self._place, self._holder, digest, kept))
        except database.UNAVAILABLE as error:  # the lease runs out by itself
            _log.warning("reply_not_kept", route=self._place.route, error=str(error) or type(error).__name__)

    @contextlib.asynccontextmanager
    async def _held(self) -> AsyncGenerator[None, None]:
        """Renew the lease meanwhile."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(limits.LEASE_RENEWAL)
                with contextlib.suppress(*database.UNAVAILABLE):
                    await asyncio.wait_for(self._replies.renew(self._place, self._holder), limits.DATABASE_WAIT)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()

    async def _patiently(self, action: Callable[[], Awaitable[T]]) -> T:
        """Again and again for a while: the database may restart. Once only where it is not needed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (0 if self._opt.get("repeatable") else limits.DATABASE_WAIT)
        while True:
            try:
                return await asyncio.wait_for(action(), limits.DATABASE_WAIT)
            except database.UNAVAILABLE:
                if loop.time() > until:
                    raise
                await asyncio.sleep(limits.DATABASE_RETRY)


async def _user(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    token = bearer(connection)
    authenticator: Authenticator = connection.app.state.authenticator
    if not token:
        return None
    try:
        return (await authenticator.identify(token)).user
    except Refused:
        return None


def _reused() -> Unprocessable:
    return Unprocessable(
        "idempotency_key_reused",
        "This Idempotency-Key was used for a different request to this address; use a new one for every request.",
    )


async def _replay(kept: Kept, send: Send) -> None:
    body = kept.body or b""
    headers = {**kept.headers, "content-length": str(len(body)), "idempotency-replayed": "true"}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": kept.status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def sweep(kept: Replies) -> None:
    """Remove old answers now and then, for ever."""
    while True:
        with contextlib.suppress(*database.UNAVAILABLE):
            await kept.drop_old()
        await asyncio.sleep(limits.REPLIES_SWEEP)
