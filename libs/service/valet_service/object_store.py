"""Where files go that are too large for events: saved work and attachments.

Names are paths: `sessions/<session>/saved/<turn>`, `sessions/<session>/attachments/<attachment>`. Two stores keep the
same promises (the tests run over both): JetStream's object store, which needs nothing besides the broker, and any
server that speaks S3, by `[objects]` in `valet.toml`.
"""

import hashlib
import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Protocol

import msgspec
from nats.aio.client import Client

from valet_service import config_file
from valet_service.errors import (
    BadSettings,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreUnavailable,
    ObjectTooLarge,
)

__all__ = [
    "Measured",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectStore",
    "ObjectStoreError",
    "ObjectStoreUnavailable",
    "ObjectTooLarge",
    "Stored",
    "is_name",
    "open_store",
]

NAME_LONGEST = 512
"""Characters of a name: S3 takes 1,024 bytes."""

LEFT_BEHIND = 6 * 3600.0
"""Seconds after which parts that no object has are a crash's: whoever puts an object gives up after half a minute
without a piece of it, or is asleep with its machine, and finds that out (SLOW_PUT)."""

SLOW_PUT = 3600.0
"""Seconds after which a put makes sure that nothing of it was taken for left behind; well before it can be."""

_SEGMENT = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]+")


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """An object as it was put."""

    bytes: int
    """Its size."""
    sha256: str
    """Of the content, hexadecimal."""


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows of an object without reading it."""

    name: str
    bytes: int
    """Its size."""


class ObjectStore(Protocol):
    """Objects by name. Everything streams: memory stays flat whatever an object's size.

    Every call may raise `ObjectStoreUnavailable`, and `ValueError` for a name that is none (`is_name`).
    """

    async def put(self, name: str, chunks: AsyncIterable[bytes], *, limit: int) -> Stored:
        """Store an object, in place of one of the same name.

        It is there whole when this returns, and not at all before: readers see the old one until then. Raises
        `ObjectTooLarge` as soon as more than `limit` bytes have come. When it fails, for whatever reason, nothing of
        it is visible, and what was there before still is.
        """
        ...

    def get(self, name: str) -> AsyncIterator[bytes]:
        """The content: `async for chunk in store.get(name)`. Raises `ObjectNotFound` at the first step.

        Content that is not what was put, or an object replaced while it is being read, ends in
        `ObjectStoreUnavailable`, never in a short or mixed file.
        """
        ...

    async def stat(self, name: str) -> ObjectInfo:
        """Its size. Raises `ObjectNotFound`."""
        ...

    async def copy(self, source: str, target: str) -> None:
        """Make `target` the same as `source`, with the promises of `put`. Raises `ObjectNotFound`."""
        ...

    async def delete(self, name: str) -> None:
        """Remove an object; none of that name is fine."""
        ...

    async def list(self, prefix: str) -> tuple[str, ...]:
        """The names of all objects below a folder, sorted; `prefix` ends with `/`."""
        ...

    async def sweep(self) -> int:
        """Remove what crashes in the middle of a put or a delete have left that nobody sees; how much that was.

        Harmless to puts that are under way, and to others that sweep at the same time.
        """
        ...

    async def close(self) -> None:
        """Give up what the store holds of its own. The broker's connection is not its own."""
        ...


def is_name(name: str) -> bool:
    """Whether this can be an object's name: segments of letters, digits, `_`, `-` and `.`, joined by `/`.

    None of them is empty, `.` or `..`, so that a name never means another place than it says.
    """
    return len(name) <= NAME_LONGEST and all(_SEGMENT.fullmatch(segment) for segment in name.split("/"))


def check_name(*names: str) -> None:
    """Raises `ValueError` for what is no name."""
    for name in names:
        if not is_name(name):
            raise ValueError(f"{name[:80]!r} cannot be the name of an object")


def check_prefix(prefix: str) -> None:
    """Raises `ValueError` for what is no folder."""
    if not prefix.endswith("/") or not is_name(prefix[:-1]):
        raise ValueError(f"{prefix[:80]!r} is not a folder of objects; it ends with a slash")


class Measured:
    """Chunks on their way into a store: counted, hashed, and ended by `ObjectTooLarge` at the first byte too many."""

    def __init__(self, chunks: AsyncIterable[bytes], limit: int) -> None:
        self._chunks = chunks
        self._limit = limit
        self._digest = hashlib.sha256()
        self._bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            self._bytes += len(chunk)
            if self._bytes > self._limit:
                raise ObjectTooLarge(self._limit)
            self._digest.update(chunk)
            if chunk:
                yield chunk

    @property
    def digest(self) -> bytes:
        """SHA-256 of what has passed."""
        return self._digest.digest()

    def stored(self) -> Stored:
        """What has passed."""
        return Stored(bytes=self._bytes, sha256=self._digest.hexdigest())


def open_store(objects: config_file.Objects, *, nc: Client, environ: Mapping[str, str] = os.environ) -> ObjectStore:
    """The store that `[objects]` names; `nc` is used where that is JetStream's. Nothing is connected to yet.

    Raises `BadSettings` when a variable that should hold a key is not set.
    """
    # one of the two is needed, and the other costs memory (S3's is a library of 15 MB)
    if objects.store == "jetstream":
        from valet_service.jetstream_objects import JetStreamObjects

        return JetStreamObjects(nc)
    from valet_service.s3_objects import S3Objects

    return S3Objects(
        bucket=objects.bucket or "",
        endpoint=objects.endpoint,
        region=objects.region,
        access_key=_key(objects.access_key_env, environ),
        secret_key=_key(objects.secret_key_env, environ),
    )


def _key(variable: str | None, environ: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    value = environ.get(variable)
    if not value:
        raise BadSettings(
            f"{variable} is not set; [objects] in valet.toml says that it holds a key of the object store"
        )
    return value
