"""Claims about the object store, the same for both: a real broker, and a server that speaks S3 on a real socket."""

import asyncio
import hashlib
import os
import urllib.request
from collections.abc import AsyncIterator, Iterator

import pytest
from moto.server import ThreadedMotoServer
from nats.aio.client import Client
from valet_service import config_file, limits, object_store
from valet_service.errors import BadSettings, ObjectNotFound, ObjectStoreUnavailable, ObjectTooLarge
from valet_service.object_store import ObjectInfo, ObjectStore, Stored

NAME = "sessions/01JABCDEFGHJKMNPQRSTVWXYZ0/saved/01J-turn.1"
LARGE = 3 * limits.S3_PART_BYTES + 12_345
"""More than one part of S3 and many messages of JetStream, and a multiple of neither."""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["jetstream", "s3"])
def store(request: pytest.FixtureRequest, nc: Client) -> ObjectStore:
    if request.param == "jetstream":
        return object_store.open_store(config_file.Objects(), nc=nc)
    endpoint: str = request.getfixturevalue("s3")
    bucket = f"test-{os.urandom(6).hex()}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT"), timeout=10).close()
    text = f'[objects]\nstore = "s3"\nbucket = "{bucket}"\nendpoint = "{endpoint}"\n'
    config = config_file.parse(text + 'access_key_env = "ID"\nsecret_key_env = "KEY"\n')
    return object_store.open_store(config.objects, nc=nc, environ={"ID": "key", "KEY": "secret"})


async def _pieces(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def _broken(content: bytes, error: Exception) -> AsyncIterator[bytes]:
    async for piece in _pieces(content):
        yield piece
    raise error


async def _read(store: ObjectStore, name: str) -> bytes:
    return b"".join([chunk async for chunk in store.get(name)])


@pytest.mark.parametrize("size", [0, 1, limits.OBJECT_CHUNK_BYTES, LARGE])
async def test_what_was_put_comes_back(store: ObjectStore, size: int) -> None:
    content = os.urandom(size)
    stored = await store.put(NAME, _pieces(content), limit=size)
    assert stored == Stored(bytes=size, sha256=hashlib.sha256(content).hexdigest())
    assert await _read(store, NAME) == content
    assert await store.stat(NAME) == ObjectInfo(name=NAME, bytes=size)


async def test_what_is_not_there_is_said_to_be_missing(store: ObjectStore) -> None:
    for attempt in (store.stat(NAME), _read(store, NAME), store.copy(NAME, "a/b")):
        with pytest.raises(ObjectNotFound, match=NAME):
            await attempt
    await store.delete(NAME)
    assert await store.list("sessions/") == ()


async def test_a_put_replaces_what_had_the_name(store: ObjectStore) -> None:
    await store.put(NAME, _pieces(b"old" * 100_000), limit=1 << 20)
    await store.put(NAME, _pieces(b"new"), limit=1 << 20)
    assert await _read(store, NAME) == b"new"
    assert await store.list("sessions/") == (NAME,)


@pytest.mark.parametrize("size", [1000, LARGE])
async def test_a_put_that_fails_half_way_leaves_nothing_and_what_was_there_stays(store: ObjectStore, size: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await store.put(NAME, _broken(bytes(size), ZeroDivisionError()), limit=1 << 30)
    with pytest.raises(ObjectNotFound):
        await store.stat(NAME)
    assert await store.list("sessions/") == ()
    await store.put(NAME, _pieces(b"old"), limit=10)
    with pytest.raises(ZeroDivisionError):
        await store.put(NAME, _broken(bytes(size), ZeroDivisionError()), limit=1 << 30)
    assert await _read(store, NAME) == b"old"


@pytest.mark.parametrize("limit", [10, LARGE - 1])
async def test_the_limit_is_enforced_before_everything_has_come(store: ObjectStore, limit: int) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 100_000
            yield bytes(100_000)

    with pytest.raises(ObjectTooLarge) as caught:
        await store.put(NAME, endless(), limit=limit)
    assert caught.value.limit == limit
    assert taken < limit + 200_000 + limits.S3_PART_BYTES * limits.S3_PARTS_AT_ONCE
    with pytest.raises(ObjectNotFound):
        await store.stat(NAME)


async def test_a_put_that_is_cancelled_leaves_nothing(store: ObjectStore) -> None:
    begun = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield bytes(LARGE)
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(store.put(NAME, stuck(), limit=1 << 30))
    await asyncio.wait_for(begun.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ObjectNotFound):
        await store.stat(NAME)


async def test_a_copy_stands_by_itself(store: ObjectStore) -> None:
    content = os.urandom(300_000)
    await store.put(NAME, _pieces(content), limit=1 << 20)
    await store.copy(NAME, "sessions/OTHER/saved/fork")
    await store.copy(NAME, "sessions/OTHER/saved/fork")
    await store.delete(NAME)
    assert await _read(store, "sessions/OTHER/saved/fork") == content
    with pytest.raises(ObjectNotFound):
        await store.stat(NAME)


async def test_a_list_is_of_one_folder(store: ObjectStore) -> None:
    for name in ("sessions/A/saved/2", "sessions/A/saved/1", "sessions/A/attachments/x", "sessions/AB/saved/1"):
        await store.put(name, _pieces(b"x"), limit=1)
    assert await store.list("sessions/A/saved/") == ("sessions/A/saved/1", "sessions/A/saved/2")
    assert len(await store.list("sessions/A/")) == 3
    await store.delete("sessions/A/saved/1")
    assert await store.list("sessions/A/saved/") == ("sessions/A/saved/2",)


async def test_two_puts_of_one_name_leave_one_of_them_whole(store: ObjectStore) -> None:
    contents = [bytes([number]) * (1 << 20) for number in range(4)]
    await asyncio.gather(*(store.put(NAME, _pieces(content), limit=1 << 20) for content in contents))
    assert await _read(store, NAME) in contents


@pytest.mark.parametrize("name", ["", "/", "a//b", "a/../b", "./a", "a/.", "a b", "a/%2e", "ü", "a/", "x" * 513])
async def test_what_is_no_name_is_refused(store: ObjectStore, name: str) -> None:
    assert not object_store.is_name(name)
    with pytest.raises(ValueError, match="name of an object"):
        await store.put(name, _pieces(b""), limit=1)
    with pytest.raises(ValueError, match="name of an object"):
        await _read(store, name)


async def test_a_large_object_passes_through_little_memory(store: ObjectStore) -> None:
    size, piece = 60 << 20, bytes(1 << 20)

    async def many() -> AsyncIterator[bytes]:
        for _ in range(size >> 20):
            yield piece

    await store.put("warm/up", _pieces(bytes(1 << 20)), limit=1 << 20)
    before = _resident()
    await store.put(NAME, many(), limit=size)
    if hasattr(store, "_nc"):  # the S3 server of the test lives in this process, and holds what it is given
        assert _resident() - before < 15 << 20
    before, total = _resident(), 0
    async for chunk in store.get(NAME):
        total += len(chunk)
        assert len(chunk) <= 2 << 20
    assert total == size
    if hasattr(store, "_nc"):
        assert _resident() - before < 15 << 20


async def test_an_s3_server_that_is_away_is_named_unavailable(nc: Client) -> None:
    config = config_file.Objects(
        store="s3", bucket="none", endpoint="http://127.0.0.1:9", access_key_env="ID", secret_key_env="KEY"
    )
    store = object_store.open_store(config, nc=nc, environ={"ID": "a", "KEY": "b"})
    with pytest.raises(ObjectStoreUnavailable, match="S3"):
        await store.stat(NAME)


def test_a_key_that_is_not_set_is_named() -> None:
    config = config_file.Objects(store="s3", bucket="abc", access_key_env="MY_ID", secret_key_env="MY_KEY")
    with pytest.raises(BadSettings, match="MY_ID"):
        object_store.open_store(config, nc=Client(), environ={})


def _resident() -> int:
    """Bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
