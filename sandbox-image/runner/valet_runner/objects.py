"""The session's objects, through the portal's unix socket: `PUT` and `GET /objects/<name>`."""

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec

from valet_runner import work_limits
from valet_runner.work_errors import ObjectMissing, ObjectRefused, ObjectsUnavailable

_TIMEOUT = httpx.Timeout(work_limits.OBJECT_IDLE_TIMEOUT, connect=work_limits.OBJECT_CONNECT_TIMEOUT)
_WORDS_BYTES = 500


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What was written to a file."""

    bytes: int
    sha256: str
    """Hexadecimal."""


class Objects:
    """Objects below `sessions/<session>/`. Every call raises `ObjectMissing`, `ObjectRefused` or `ObjectsUnavailable`;
    waits between two pieces are bounded, the whole is the caller's to bound."""

    def __init__(self, socket_path: str, token: str) -> None:
        self._socket_path = socket_path
        self._headers = {"authorization": f"Bearer {token}"}

    async def put(self, name: str, source: Path) -> None:
        """Store a file's content; the object is there whole or not at all."""
        headers = {"content-length": str(os.stat(source).st_size)}
        async with self._client() as http:
            try:
                response = await http.put(f"/objects/{name}", content=_pieces(source), headers=headers)
            except (httpx.HTTPError, OSError) as error:
                raise ObjectsUnavailable(f"PUT {name}: {str(error) or type(error).__name__}") from error
            _check(response.status_code, response.text[:_WORDS_BYTES], name)

    async def get(self, name: str, target: Path, *, limit: int) -> Fetched:
        """Write an object to a file. One of more than `limit` bytes is refused; then the file holds a part of it."""
        digest, size = hashlib.sha256(), 0
        try:
            async with self._client() as http, http.stream("GET", f"/objects/{name}") as response:
                if response.status_code != httpx.codes.OK:
                    _check(response.status_code, (await response.aread()).decode(errors="replace"), name)
                with target.open("wb") as file:
                    async for piece in response.aiter_raw():
                        size += len(piece)
                        if size > limit:
                            raise ObjectRefused(response.status_code, f"{name} is larger than {limit} bytes")
                        digest.update(piece)
                        file.write(piece)
        except httpx.HTTPError as error:
            raise ObjectsUnavailable(f"GET {name}: {str(error) or type(error).__name__}") from error
        return Fetched(bytes=size, sha256=digest.hexdigest())

    def _client(self) -> httpx.AsyncClient:
        if not self._socket_path:
            raise ObjectRefused(httpx.codes.SERVICE_UNAVAILABLE, "this sandbox has no portal, and so no object store")
        # one connection for each object: there are two or three in a turn, and the portal may restart between them
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=self._socket_path),
            base_url="http://portal",
            headers=self._headers,
            timeout=_TIMEOUT,
            trust_env=False,
        )


async def _pieces(source: Path) -> AsyncIterator[bytes]:
    with source.open("rb") as file:
        while piece := file.read(work_limits.OBJECT_CHUNK_BYTES):
            yield piece


def _check(status: int, words: str, name: str) -> None:
    if status < 300:
        return
    if status == httpx.codes.NOT_FOUND:
        raise ObjectMissing(f"there is no object {name}")
    if status >= 500 or status == httpx.codes.REQUEST_TIMEOUT:
        raise ObjectsUnavailable(f"{name}: the portal answered {status}: {words.strip()[:_WORDS_BYTES]}")
    raise ObjectRefused(status, words.strip()[:_WORDS_BYTES])
