"""Objects in JetStream, in the layout of NATS's own object store, so that its tools read and write the same bucket.

An object is a row of messages `$O.<bucket>.C.<nuid>` and one `$O.<bucket>.M.<name in base64>` that says which and how
many; that last one replaces its predecessor in one step, which is what makes a put atomic. The client library's object
store is not used: it reads into memory and had not read 200 MB after 100 seconds (measured; two seconds here), it waits
for ever when the broker goes away, and removes an object's content when only the last answer was lost.
"""

# nats-py leaves its options untyped; what this module hands on is typed.
# pyright: reportUnknownMemberType=false

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterable, AsyncIterator
from datetime import UTC, datetime

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.nuid import NUID

from valet_service import broker, jetstream_batches, jetstream_upload, limits, logs
from valet_service.credentials import OBJECT_BUCKET
from valet_service.errors import ObjectNotFound, ObjectStoreUnavailable
from valet_service.object_store import LEFT_BEHIND, SLOW_PUT, Measured, ObjectInfo, Stored, check_name, check_prefix

_log = logs.get(__name__)

BUCKET = OBJECT_BUCKET
STREAM = f"OBJ_{BUCKET}"
_CHUNKS = f"$O.{BUCKET}.C."
_META = f"$O.{BUCKET}.M."
_DIGEST = "SHA-256="

_WRONG_LAST_SEQUENCE = 10071
_NAME_IN_USE = 10058
_NOT_FOUND = 404


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    max_chunk_size: int = limits.OBJECT_CHUNK_BYTES


class _Meta(msgspec.Struct, frozen=True, kw_only=True):
    """The message that makes chunks an object (NATS ADR-20)."""

    name: str
    bucket: str = BUCKET
    nuid: str
    size: int
    chunks: int
    digest: str
    mtime: str = ""
    deleted: bool = False
    options: _Options = _Options()


class _Problem(msgspec.Struct, frozen=True, kw_only=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    data: bytes = b""
    time: str = ""
    """RFC 3339, by the broker's clock."""


class _State(msgspec.Struct, frozen=True, kw_only=True):
    subjects: dict[str, int] | None = None


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What JetStream says to any request made here."""

    error: _Problem | None = None
    message: _Message | None = None
    state: _State | None = None
    total: int = 0


class JetStreamObjects:
    """The bucket `VALET`. It is made at its first use by whoever uses it first."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc
        self._names = NUID()
        self._made = False

    async def put(self, name: str, chunks: AsyncIterable[bytes], *, limit: int) -> Stored:
        check_name(name)
        await self._ensure_bucket()
        nuid = self._names.next().decode()
        measured = Measured(chunks, limit)
        began = time.time()
        try:
            count = await jetstream_upload.upload(self._nc, _CHUNKS + nuid, measured)
            await self._check_whole(nuid, count, began)
        except BaseException:
            await self._drop(nuid)
            raise
        stored = measured.stored()
        digest = _DIGEST + base64.urlsafe_b64encode(measured.digest).decode()
        now = datetime.fromtimestamp(time.time(), UTC).isoformat()
        replaced = await self._commit(
            _Meta(name=name, nuid=nuid, size=stored.bytes, chunks=count, digest=digest, mtime=now)
        )
        try:
            await self._check_whole(nuid, count, began)
        except ObjectStoreUnavailable:
            await self.delete(name)
            raise
        if replaced is not None:
            await self._drop(replaced.nuid)
        return stored

    async def get(self, name: str) -> AsyncIterator[bytes]:
        meta = await self._find(name)
        digest = hashlib.sha256()
        seq = 0
        for _ in range(meta.chunks):
            seq, chunk = await self._chunk(meta, seq + 1)
            digest.update(chunk)
            yield chunk
        if base64.urlsafe_b64encode(digest.digest()).decode() != meta.digest.removeprefix(_DIGEST):
            raise ObjectStoreUnavailable(f"the object {name!r} is damaged: its content is not what was stored")

    async def stat(self, name: str) -> ObjectInfo:
        return ObjectInfo(name=name, bytes=(await self._find(name)).size)

    async def copy(self, source: str, target: str) -> None:
        size = (await self.stat(source)).bytes
        await self.put(target, self.get(source), limit=size)

    async def delete(self, name: str) -> None:
        check_name(name)
        meta, seq = await self._read_meta(name)
        if seq == 0:
            return
        await self._purge(_META + _encoded(name))
        if meta is not None:
            await self._drop(meta.nuid)

    async def list(self, prefix: str) -> tuple[str, ...]:
        check_prefix(prefix)
        found = [_decoded(subject) async for subject in self._subjects(f"{_META}>")]
        return tuple(sorted(name for name in found if name is not None and name.startswith(prefix)))

    async def sweep(self) -> int:
        # what is there now, and then what is an object: chunks that are put meanwhile are not looked at
        suspects = {subject.removeprefix(_CHUNKS) async for subject in self._subjects(f"{_CHUNKS}>")}
        if not suspects:
            return 0
        async for record in jetstream_batches.messages(self._nc, STREAM, f"{_META}>", batch=limits.PULL_BATCH):
            meta = _understood(record, "an object")
            if not meta.deleted:
                suspects.discard(meta.nuid)
        swept = 0
        for nuid in suspects:
            if time.time() - await self._latest(nuid) > LEFT_BEHIND:
                await self._purge(_CHUNKS + nuid)
                swept += 1
        return swept

    async def close(self) -> None:
        return None

    async def _find(self, name: str) -> _Meta:
        check_name(name)
        meta, _ = await self._read_meta(name)
        if meta is None:
            raise ObjectNotFound(name)
        return meta

    async def _read_meta(self, name: str) -> tuple[_Meta | None, int]:
        """What is stored under a name, and the sequence of the message that says so (0 for none)."""
        body = msgspec.json.encode({"last_by_subj": _META + _encoded(name)})
        answer = await self._ask(f"$JS.API.STREAM.MSG.GET.{STREAM}", body)
        if _missing(answer):
            return None, 0
        _check(answer)
        if answer.message is None:
            raise ObjectStoreUnavailable("the broker's answer about an object was not understood")
        meta = _understood(answer.message.data, f"the object {name!r}")
        return (None if meta.deleted else meta), answer.message.seq

    async def _commit(self, meta: _Meta) -> _Meta | None:
        """Make the chunks that are stored the object of that name; gives what it replaced.

        An answer that was lost is no failure: the record is read again, and it may be ours.
        """
        before: _Meta | None = None
        problem: Exception | None = None
        for attempt in range(limits.OBJECT_ATTEMPTS):
            if problem is not None and attempt:
                await asyncio.sleep(limits.OBJECT_RETRY_WAIT)
            found, seq = await self._read_meta(meta.name)
            if found is not None and found.nuid == meta.nuid:
                return before
            before, problem = found, None
            headers = {"Nats-Rollup": "sub", "Nats-Expected-Last-Subject-Sequence": str(seq)}
            try:
                message = await self._nc.request(
                    _META + _encoded(meta.name), msgspec.json.encode(meta), limits.OBJECT_TIMEOUT, headers=headers
                )
                answer = msgspec.json.decode(message.data, type=_Answer)
            except (nats.errors.Error, OSError, TimeoutError, msgspec.MsgspecError) as error:
                problem = error
                continue
            if answer.error is None:
                return before
            if answer.error.err_code != _WRONG_LAST_SEQUENCE:  # else somebody else has put it meanwhile: look again
                _check(answer)
        raise ObjectStoreUnavailable(f"the object {meta.name!r} could not be stored: {broker.words(problem)}")

    async def _chunk(self, meta: _Meta, after: int) -> tuple[int, bytes]:
        """The object's next message at or behind a sequence of the stream."""
        body = msgspec.json.encode({"seq": after, "next_by_subj": _CHUNKS + meta.nuid})
        message = await self._request(f"$JS.API.DIRECT.GET.{STREAM}", body)
        sequence = message.headers.get("Nats-Sequence") if message.headers else None
        if sequence is None:
            raise ObjectStoreUnavailable(f"the object {meta.name!r} was replaced while it was read; read it again")
        return int(sequence), message.data

    async def _latest(self, nuid: str) -> float:
        """When the last of these chunks was stored, in seconds since 1970; now, if they are gone."""
        body = msgspec.json.encode({"last_by_subj": _CHUNKS + nuid})
        answer = await self._ask(f"$JS.API.STREAM.MSG.GET.{STREAM}", body)
        if _missing(answer) or answer.message is None:
            return time.time()
        return datetime.fromisoformat(answer.message.time).timestamp()

    async def _check_whole(self, nuid: str, count: int, began: float) -> None:
        """Raises `ObjectStoreUnavailable` if a put took so long that its chunks were taken for left behind: its source
        was slow, or this machine was asleep."""
        if not count or time.time() - began < SLOW_PUT:
            return
        here = 0
        body = msgspec.json.encode({"subjects_filter": _CHUNKS + nuid})
        answer = await self._ask(f"$JS.API.STREAM.INFO.{STREAM}", body)
        if answer.state is not None:
            here = (answer.state.subjects or {}).get(_CHUNKS + nuid, 0)
        if here != count:
            raise ObjectStoreUnavailable("the object came so slowly that its beginning is gone; send it again")

    async def _subjects(self, pattern: str) -> AsyncIterator[str]:
        offset = 0
        while True:
            body = msgspec.json.encode({"subjects_filter": pattern, "offset": offset})
            answer = await self._ask(f"$JS.API.STREAM.INFO.{STREAM}", body)
            if _missing(answer):
                return
            _check(answer)
            page = (answer.state.subjects if answer.state else None) or {}
            for subject in page:
                yield subject
            offset += len(page)
            if not page or offset >= answer.total:
                return

    async def _drop(self, nuid: str) -> None:
        """Remove chunks that no object has (any more); what cannot be removed now only takes room."""
        try:
            await self._purge(_CHUNKS + nuid)
        except ObjectStoreUnavailable as error:
            _log.warning("object_chunks_left_behind", nuid=nuid, error=str(error))

    async def _purge(self, subject: str) -> None:
        answer = await self._ask(f"$JS.API.STREAM.PURGE.{STREAM}", msgspec.json.encode({"filter": subject}))
        if not _missing(answer):
            _check(answer)

    async def _ensure_bucket(self) -> None:
        if self._made:
            return
        if _missing(await self._ask(f"$JS.API.STREAM.INFO.{STREAM}", b"")):
            answer = await self._ask(f"$JS.API.STREAM.CREATE.{STREAM}", msgspec.json.encode(stream_config()))
            if answer.error is not None and answer.error.err_code != _NAME_IN_USE:  # somebody was faster
                _check(answer)
        self._made = True

    async def _ask(self, subject: str, body: bytes) -> _Answer:
        message = await self._request(subject, body)
        try:
            return msgspec.json.decode(message.data, type=_Answer)
        except msgspec.MsgspecError as error:
            raise ObjectStoreUnavailable(f"the broker's answer was not understood: {error}") from error

    async def _request(self, subject: str, body: bytes) -> Msg:
        """Ask something that changes nothing when it is asked twice; outlasts a restart of the broker."""
        problem: Exception | None = None
        for attempt in range(limits.OBJECT_ATTEMPTS):
            if attempt:
                await asyncio.sleep(limits.OBJECT_RETRY_WAIT)
            try:
                return await broker.request(self._nc, subject, body, timeout=limits.OBJECT_TIMEOUT)
            except (nats.errors.Error, OSError, TimeoutError) as error:
                problem = error
        raise ObjectStoreUnavailable(f"the object store does not answer: {broker.words(problem)}")


def stream_config() -> dict[str, object]:
    """The bucket as the stream it is."""
    return {
        "name": STREAM,
        "subjects": [f"{_CHUNKS}>", f"{_META}>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "num_replicas": 1,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }


def _understood(record: bytes, what: str) -> _Meta:
    try:
        return msgspec.json.decode(record, type=_Meta)
    except msgspec.MsgspecError as error:
        raise ObjectStoreUnavailable(f"the record of {what} is not understood: {error}") from error


def _encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _decoded(subject: str) -> str | None:
    try:
        return base64.urlsafe_b64decode(subject.removeprefix(_META)).decode()
    except ValueError:
        return None  # not one of ours


def _missing(answer: _Answer) -> bool:
    return answer.error is not None and answer.error.code == _NOT_FOUND


def _check(answer: _Answer) -> None:
    if answer.error is not None:
        raise ObjectStoreUnavailable(f"the broker refuses an object: {answer.error.description}")
