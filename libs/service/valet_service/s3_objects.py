"""Objects on a server that speaks S3, through `obstore`."""

# one of obstore's overloads is for arrow tables, which it leaves untyped
# pyright: reportUnknownMemberType=false

from collections.abc import AsyncIterable, AsyncIterator, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from valet_service import limits
from valet_service.errors import ObjectNotFound, ObjectStoreUnavailable
from valet_service.object_store import Measured, ObjectInfo, Stored, check_name, check_prefix

if TYPE_CHECKING:
    from obstore.store import S3Config


class S3Objects:
    """A bucket, which must be there. Without keys the machine's own credentials (a role) are used."""

    def __init__(
        self, *, bucket: str, endpoint: str | None, region: str, access_key: str | None, secret_key: str | None
    ) -> None:
        config: S3Config = {"region": region}
        if endpoint is not None:
            config["endpoint"] = endpoint
        if access_key is not None and secret_key is not None:
            config["access_key_id"] = access_key
            config["secret_access_key"] = secret_key
        self._store = S3Store(
            bucket,
            config=config,
            client_options={
                "allow_http": endpoint is not None and endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=limits.CONNECT_TIMEOUT),
                "timeout": timedelta(seconds=limits.S3_TRANSFER_TIMEOUT),
            },
            retry_config={
                "max_retries": limits.OBJECT_ATTEMPTS - 1,
                "retry_timeout": timedelta(seconds=limits.S3_RETRY_TIMEOUT),
            },
        )

    async def put(self, name: str, chunks: AsyncIterable[bytes], *, limit: int) -> Stored:
        check_name(name)
        measured = Measured(chunks, limit)
        source = aiter(measured)
        head = bytearray()
        async for chunk in source:
            head += chunk
            if len(head) > limits.S3_PART_BYTES:
                break
        with _refusals(name, missing="the bucket of [objects] in valet.toml is not there"):
            if len(head) <= limits.S3_PART_BYTES:
                await obstore.put_async(self._store, name, bytes(head), use_multipart=False)
            else:
                # in parts; when the source fails they are given up, so that nothing of it is ever seen
                await obstore.put_async(
                    self._store,
                    name,
                    _joined(bytes(head), source),
                    use_multipart=True,
                    chunk_size=limits.S3_PART_BYTES,
                    max_concurrency=limits.S3_PARTS_AT_ONCE,
                )
        return measured.stored()

    async def get(self, name: str) -> AsyncIterator[bytes]:
        check_name(name)
        with _refusals(name):
            found = await obstore.get_async(self._store, name)
            async for chunk in found.stream(min_chunk_size=limits.OBJECT_CHUNK_BYTES):
                yield bytes(chunk)

    async def stat(self, name: str) -> ObjectInfo:
        check_name(name)
        with _refusals(name):
            return ObjectInfo(name=name, bytes=(await obstore.head_async(self._store, name))["size"])

    async def copy(self, source: str, target: str) -> None:
        check_name(source)
        check_name(target)
        with _refusals(source):
            await obstore.copy_async(self._store, source, target)

    async def delete(self, name: str) -> None:
        check_name(name)
        with _refusals(name):
            try:
                await obstore.delete_async(self._store, name)
            except FileNotFoundError:
                return

    async def list(self, prefix: str) -> tuple[str, ...]:
        check_prefix(prefix)
        found: list[str] = []
        with _refusals(prefix):
            async for page in obstore.list(self._store, prefix):
                found += [entry["path"] for entry in page]
        return tuple(sorted(found))

    async def sweep(self) -> int:
        # parts of uploads that were never completed are listed by no call of the library's: the bucket's own life-cycle
        # rule removes them (docs/operations.md)
        return 0

    async def close(self) -> None:
        return None


async def _joined(head: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for chunk in rest:
        yield chunk


@contextmanager
def _refusals(name: str, missing: str = "") -> Generator[None]:
    """The library's errors as ours; errors of the source of a put pass. `missing` is what "not found" means here,
    where it is not the object."""
    try:
        yield
    except FileNotFoundError:
        raise (ObjectStoreUnavailable(missing) if missing else ObjectNotFound(name)) from None
    except BaseError as error:
        # the library's text goes on with pages of its own structures
        reason = str(error).partition("\n")[0]
        raise ObjectStoreUnavailable(f"the S3 server could not serve the object {name!r}: {reason}") from error
