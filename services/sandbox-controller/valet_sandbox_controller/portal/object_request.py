"""A sandbox's connection to the object store: `PUT /objects/<name>` and `GET /objects/<name>`."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from valet_service import logs
from valet_service.errors import ObjectNotFound, ObjectStoreUnavailable, ObjectTooLarge
from valet_service.object_store import ObjectStore

from valet_sandbox_controller import limits, portal_token
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal import heads, object_names
from valet_sandbox_controller.portal.epochs import Epochs
from valet_sandbox_controller.portal.http_connection import HttpConnection, Request

_log = logs.get(__name__)


class ObjectConnection(HttpConnection):
    """Streams objects in and out, for the session of the token."""

    def __init__(self, *, secret: bytes, epochs: Epochs, store: "asyncio.Future[ObjectStore]") -> None:
        super().__init__()
        self._secret = secret
        self._epochs = epochs
        self._store = store

    async def answer(self, request: Request) -> None:
        began = False
        try:
            bearer = portal_token.verify(self._secret, _token(request))
            with self._epochs.admit(bearer) as leave:
                leave.hold(self.transport.abort)
                name = object_names.permitted(bearer.session_id, request.method, request.target)
                store = await self._opened()
                if request.method == "PUT":
                    await self._put(store, name, request)
                else:
                    info = await store.stat(name)
                    began = True
                    await self._send(store, name, info.bytes)
        except (BadPortalRequest, ObjectNotFound, ObjectTooLarge, ObjectStoreUnavailable) as error:
            refused = _refusal(error)
            _log.info("object_refused", target=request.target[:200], status=refused.status, reason=refused.reason)
            if began:
                # half an answer: only a broken connection tells the sandbox that it is not whole
                self.transport.abort()
                return
            self.close_after_answer()
            await self.write(heads.refusal(refused.status, refused.reason))
        except TimeoutError:
            _log.info("object_not_taken", target=request.target[:200], seconds=limits.OBJECT_IDLE)
            self.transport.abort()

    async def _put(self, store: ObjectStore, name: str, request: Request) -> None:
        if not request.has_body:
            raise BadPortalRequest(411, "the object is the request's body; send Content-Length or chunks")
        announced = request.field("content-length")
        if announced is not None and int(announced) > limits.OBJECT_BYTES:
            raise ObjectTooLarge(limits.OBJECT_BYTES)
        if (request.field("expect") or "").lower() == "100-continue":
            await self.write(heads.GO_ON)
        stored = await store.put(name, self._arriving(), limit=limits.OBJECT_BYTES)
        await self.write(heads.answer(201, msgspec.json.encode(stored)))

    async def _send(self, store: ObjectStore, name: str, size: int) -> None:
        self.transport.write(heads.content(size))
        sent = 0
        async for chunk in store.get(name):
            sent += len(chunk)
            async with asyncio.timeout(limits.OBJECT_IDLE):
                await self.write(chunk)
        if sent != size:
            raise ObjectStoreUnavailable("the object was replaced while it was read; read it again")

    async def _arriving(self) -> AsyncIterator[bytes]:
        body = self.body()
        while True:
            try:
                async with asyncio.timeout(limits.OBJECT_IDLE):
                    chunk = await anext(body)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise BadPortalRequest(408, "the rest of the object did not come; send it again") from None
            yield chunk

    async def _opened(self) -> ObjectStore:
        try:
            async with asyncio.timeout(limits.OBJECT_STORE_WAIT):
                return await asyncio.shield(self._store)
        except TimeoutError:
            raise ObjectStoreUnavailable("the portal has not reached the platform's broker yet") from None


def _token(request: Request) -> str:
    scheme, _, token = (request.field("authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise BadPortalRequest(407, "the portal wants the sandbox's token: Authorization: Bearer …")
    return token.strip()


def _refusal(error: BadPortalRequest | ObjectNotFound | ObjectTooLarge | ObjectStoreUnavailable) -> BadPortalRequest:
    match error:
        case BadPortalRequest():
            return error
        case ObjectNotFound():
            return BadPortalRequest(404, str(error))
        case ObjectTooLarge():
            return BadPortalRequest(413, str(error))
        case ObjectStoreUnavailable():
            return BadPortalRequest(503, str(error))
