"""The portal's `/objects/…` at the level of the wire, in front of a real broker. The runner's side is played here."""

import asyncio
import hashlib
import json
import os
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from valet_protocol import ids
from valet_sandbox_controller import limits, portal_token
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal import object_names
from valet_service import broker
from valet_service.errors import ObjectNotFound
from valet_service.jetstream_objects import JetStreamObjects

pytestmark = pytest.mark.usefixtures("shared_portal")


class Runner:
    """A runner's HTTP to the portal."""

    def __init__(self, servers, session: str) -> None:
        self._socket = str(servers.places.run / "portal" / "portal.sock")
        secret = (servers.places.keys / "secret").read_bytes()
        self.session = session
        self.token = portal_token.mint(secret, session, 1, int(time.time()) + 60)

    def name(self, rest: str = "saved/turn") -> str:
        return f"sessions/{self.session}/{rest}"

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._socket)

    def head(self, method: str, target: str, *fields: str, token: str | None = None) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", "Host: portal"]
        lines += [f"Authorization: Bearer {self.token if token is None else token}", *fields, "", ""]
        return "\r\n".join(lines).encode()

    async def ask(self, method: str, name: str, body: bytes | None = None, *fields: str) -> tuple[int, bytes]:
        """One request on a connection of its own: status and body of the answer."""
        reader, writer = await self.open()
        length = () if body is None else (f"Content-Length: {len(body)}",)
        writer.write(self.head(method, f"/objects/{name}", *length, *fields) + (body or b""))
        status, content = await answered(reader)
        writer.close()
        return status, content


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode()
    length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length:"))
    return int(head.split(" ")[1]), await asyncio.wait_for(reader.readexactly(length), 20)


@pytest.fixture
def runner(servers) -> Runner:
    return Runner(servers, ids.new_id())


@pytest.fixture
async def store(servers) -> AsyncIterator[JetStreamObjects]:
    nc: Client = await nats.connect(servers.broker.url, user_credentials=str(servers.creds("api")))
    yield JetStreamObjects(nc)
    await broker.close(nc)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_work_that_was_put_is_there_for_everybody_and_for_the_runner(
    runner: Runner, store: JetStreamObjects
) -> None:
    content = os.urandom(3_000_000)
    status, said = await runner.ask("PUT", runner.name(), content)
    assert status == 201
    assert json.loads(said) == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert b"".join([chunk async for chunk in store.get(runner.name())]) == content
    assert await runner.ask("GET", runner.name()) == (200, content)


async def test_one_connection_serves_puts_and_gets_in_chunks_and_by_length(runner: Runner) -> None:
    reader, writer = await runner.open()
    for number in range(3):
        target = f"/objects/{runner.name(f'saved/{number}')}"
        writer.write(runner.head("PUT", target, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")
        assert (await answered(reader))[0] == 201
        writer.write(runner.head("GET", target))
        assert await answered(reader) == (200, b"hello!")
    writer.close()


async def test_an_attachment_is_read_and_cannot_be_written(runner: Runner, store: JetStreamObjects) -> None:
    name = runner.name("attachments/picture")
    await store.put(name, _once(b"pixels"), limit=10)
    assert await runner.ask("GET", name) == (200, b"pixels")
    status, reason = await runner.ask("PUT", name, b"other")
    assert (status, b"only its work" in reason) == (403, True)
    assert await runner.ask("GET", name) == (200, b"pixels")


async def test_another_sessions_objects_are_out_of_reach(runner: Runner, store: JetStreamObjects) -> None:
    other = ids.new_id()
    await store.put(f"sessions/{other}/saved/turn", _once(b"secret"), limit=10)
    for method, body in (("GET", None), ("PUT", b"x")):
        for name in (f"sessions/{other}/saved/turn", f"sessions/{runner.session}x/saved/y", "saved/turn"):
            status, reason = await runner.ask(method, name, body)
            assert (status, b"own session" in reason) == (403, True), name
    assert [chunk async for chunk in store.get(f"sessions/{other}/saved/turn")] == [b"secret"]


async def test_what_is_not_there_is_404(runner: Runner) -> None:
    status, reason = await runner.ask("GET", runner.name("saved/none"))
    assert (status, runner.name("saved/none") in reason.decode()) == (404, True)


@pytest.mark.parametrize("token", ["", "nonsense"])
async def test_without_a_valid_token_nothing_is_served(runner: Runner, token: str) -> None:
    reader, writer = await runner.open()
    writer.write(runner.head("GET", f"/objects/{runner.name()}", token=token))
    assert (await answered(reader))[0] == 407
    writer.close()


@pytest.mark.parametrize(
    "target",
    [
        "/objects/",
        "/objects/sessions/S/saved/../../T/saved/x",
        "/objects/sessions/S/saved/..",
        "/objects/sessions/S/saved/./x",
        "/objects/sessions/S//saved/x",
        "/objects//sessions/S/saved/x",
        "/objects/sessions%2FS%2Fwork%2Fx",
        "/objects/sessions/S/saved/%2e%2e/x",
        "/objects/sessions/S/saved/x?y",
        "/objects/sessions/S/saved/x#y",
        "/objects/sessions/S/saved/\xfc",
        "/objects",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_path_that_means_another_place_than_it_says_is_refused(method: str, target: str) -> None:
    with pytest.raises(BadPortalRequest) as caught:
        object_names.permitted("S", method, target)
    assert caught.value.status == 400


@pytest.mark.parametrize("method", ["DELETE", "POST", "HEAD", "get"])
def test_nothing_but_get_and_put_is_served(method: str) -> None:
    with pytest.raises(BadPortalRequest) as caught:
        object_names.permitted("S", method, "/objects/sessions/S/saved/x")
    assert caught.value.status == 405


async def test_an_object_that_says_it_is_too_large_is_refused_before_it_comes(runner: Runner) -> None:
    reader, writer = await runner.open()
    writer.write(
        runner.head("PUT", f"/objects/{runner.name()}", f"Content-Length: {limits.OBJECT_BYTES + 1}") + bytes(100_000)
    )
    status, reason = await answered(reader)
    assert (status, str(limits.OBJECT_BYTES) in reason.decode()) == (413, True)
    writer.close()


async def test_an_object_that_grows_too_large_is_refused_in_words_and_leaves_nothing(
    runner: Runner, shared_portal, store: JetStreamObjects
) -> None:
    await runner.ask("PUT", runner.name("saved/warm"), b"up")
    before = _resident(shared_portal.process.pid)
    reader, writer = await runner.open()
    writer.write(runner.head("PUT", f"/objects/{runner.name()}", "Transfer-Encoding: chunked"))
    piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    peak = 0
    try:
        for _ in range((limits.OBJECT_BYTES >> 20) + 8):
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), 10)
            peak = max(peak, _resident(shared_portal.process.pid) - before)
    except ConnectionError:
        pass  # hung up on after the answer
    status, reason = await answered(reader)
    assert (status, b"larger" in reason) == (413, True)
    assert peak < 24 << 20, "the object is held in memory"
    with pytest.raises(ObjectNotFound):
        await store.stat(runner.name())
    writer.close()


async def test_a_large_object_is_read_with_flat_memory_at_the_readers_pace(runner: Runner, shared_portal) -> None:
    content = bytes(40 << 20)
    assert (await runner.ask("PUT", runner.name(), content))[0] == 201
    before = _resident(shared_portal.process.pid)
    reader, writer = await runner.open()
    writer.write(runner.head("GET", f"/objects/{runner.name()}"))
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    total, peak = 0, 0
    while total < len(content):
        total += len(await asyncio.wait_for(reader.read(1 << 20), 10))
        peak = max(peak, _resident(shared_portal.process.pid) - before)
    assert total == len(content)
    assert peak < 16 << 20
    writer.close()


async def test_a_runner_that_hangs_up_half_way_leaves_nothing_and_what_was_there_stays(
    runner: Runner, store: JetStreamObjects
) -> None:
    await runner.ask("PUT", runner.name(), b"whole")
    _, writer = await runner.open()
    writer.write(runner.head("PUT", f"/objects/{runner.name()}", "Content-Length: 9000000") + bytes(5_000_000))
    await writer.drain()
    writer.close()
    await _until_only_whole_objects_are_left(store)
    assert await runner.ask("GET", runner.name()) == (200, b"whole")


async def test_a_body_may_be_asked_for_before_it_is_sent(runner: Runner) -> None:
    reader, writer = await runner.open()
    writer.write(runner.head("PUT", f"/objects/{runner.name()}", "Content-Length: 2", "Expect: 100-continue"))
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"hi")
    assert (await answered(reader))[0] == 201
    writer.close()


async def test_a_put_without_a_body_is_refused(runner: Runner) -> None:
    assert (await runner.ask("PUT", runner.name()))[0] == 411
    assert (await runner.ask("PUT", runner.name(), b""))[0] == 201
    assert await runner.ask("GET", runner.name()) == (200, b"")


async def _until_only_whole_objects_are_left(store: JetStreamObjects) -> None:
    """Every message of the bucket is one that an object needs."""
    deadline = time.monotonic() + 10
    while True:
        info = await store._nc.jetstream().stream_info("OBJ_VALET")
        needed = 0
        for name in await store.list("sessions/"):
            meta = await store._find(name)
            needed += meta.chunks + 1
        if info.state.messages == needed:
            return
        assert time.monotonic() < deadline, (info.state.messages, needed)
        await asyncio.sleep(0.05)


def _resident(pid: int) -> int:
    """Bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
