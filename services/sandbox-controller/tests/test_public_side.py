"""The way from outside to a sandbox's gateway: real sockets, the real portal; a small server plays the gateway."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from nats.aio.client import Client
from valet_protocol import ids, subjects
from valet_protocol.errors import Conflict
from valet_protocol.requests import Endpoint, GetEndpoint
from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import GatewayAway
from valet_sandbox_controller.portal import gateway_dial
from valet_sandbox_controller.portal.known_ports import KnownPorts
from valet_sandbox_controller.portal.public_side import Address, PublicSide, address
from valet_sandbox_controller.providers.storage import SOCKET, gateways
from valet_service import broker, rpc, tasks


class Gateway:
    """Answers every line with its name and the line, until a line `bye`."""

    def __init__(self, run_dir: Path, name: str = "one", session: str | None = None) -> None:
        self.session = session or ids.new_id()
        self.name = name
        self.folder = gateways(run_dir) / self.session
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> "Gateway":
        self.folder.mkdir(parents=True)
        self._server = await asyncio.start_unix_server(self._serve, self.folder / SOCKET)
        return self

    def stop(self) -> None:
        """As when a sandbox ends."""
        assert self._server
        self._server.close()
        shutil.rmtree(self.folder)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (line := await reader.readline()) not in (b"", b"bye\n"):
            writer.write(f"{self.name}: ".encode() + line)
            await writer.drain()
        writer.close()


async def said(url: str, line: str = "hello") -> str:
    """What comes back for a line; nothing where the connection is refused or closed."""
    parts = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(line.encode() + b"\n")
        answer = (await asyncio.wait_for(reader.readline(), 5)).decode().strip()
    except ConnectionError:
        return ""
    writer.close()
    return answer


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what it looks at belongs to another process
            await asyncio.sleep(0.05)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GATEWAY_LOOK", 0.02)


@pytest.fixture
async def public(run_dir: Path, quick: None) -> AsyncIterator[PublicSide]:
    side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address())
    keeping = asyncio.create_task(side.keep())
    yield side
    await tasks.end(keeping)
    side.close()


async def url_of(side: PublicSide, gateway: Gateway) -> str:
    return (await side.endpoint(GetEndpoint(session_id=gateway.session))).url


async def test_what_is_said_at_the_port_reaches_that_sessions_gateway_and_comes_back(
    public: PublicSide, run_dir: Path
) -> None:
    one, two = await Gateway(run_dir, "one").start(), await Gateway(run_dir, "two").start()
    urls = [await url_of(public, one), await url_of(public, two)]
    assert await asyncio.gather(*map(said, urls)) == ["one: hello", "two: hello"]
    assert await url_of(public, one) == urls[0]
    assert all(url.startswith("http://127.0.0.1:") for url in urls)


async def test_who_says_all_and_hangs_up_gets_the_answer(public: PublicSide, run_dir: Path) -> None:
    parts = urlsplit(await url_of(public, await Gateway(run_dir).start()))

    def ask() -> bytes:
        with socket.create_connection((parts.hostname, parts.port), 5) as client:
            client.sendall(b"hello\n")
            client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(100), b""))

    assert await asyncio.to_thread(ask) == b"one: hello\n"


async def test_a_session_without_a_running_gateway_is_refused(public: PublicSide, run_dir: Path) -> None:
    gateway = Gateway(run_dir)
    for session in (gateway.session, "../..", ""):
        with pytest.raises(Conflict) as refusal:
            await public.endpoint(GetEndpoint(session_id=session))
        assert refusal.value.code == "sandbox_not_running"
    gateway.folder.mkdir(parents=True)  # the sandbox is there, its gateway not yet
    with pytest.raises(Conflict, match="starting"):
        await url_of(public, gateway)


async def test_the_port_closes_with_the_sandbox_and_is_the_same_for_the_next(public: PublicSide, run_dir: Path) -> None:
    gateway = await Gateway(run_dir).start()
    url = await url_of(public, gateway)
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"hello\n")
    assert await asyncio.wait_for(reader.readline(), 5) == b"one: hello\n"
    gateway.stop()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()

    async def refused() -> bool:
        try:
            (await asyncio.open_connection(parts.hostname, parts.port))[1].close()
        except ConnectionRefusedError:
            return True
        return False

    await eventually(refused)
    again = await Gateway(run_dir, "again", gateway.session).start()

    async def back() -> bool:  # without anybody asking: the page in somebody's browser only reconnects
        return await said(url) == "again: hello"

    await eventually(back)
    assert await url_of(public, again) == url


async def test_a_port_that_somebody_took_meanwhile_is_replaced(run_dir: Path) -> None:
    gateway = await Gateway(run_dir).start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = KnownPorts(run_dir / "ports.json")
        ports.keep(gateway.session, taken.getsockname()[1])
        side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address())
        url = await url_of(side, gateway)
        assert urlsplit(url).port != taken.getsockname()[1]
        assert await said(url) == "one: hello"
    assert KnownPorts(run_dir / "ports.json").of(gateway.session) == urlsplit(url).port
    side.close()


async def test_browsers_elsewhere_are_given_the_name_by_which_they_know_this_machine(run_dir: Path) -> None:
    assert address(None) == Address(host="127.0.0.1", name="127.0.0.1")
    assert address("valet.example.org").name == "valet.example.org"
    gateway = await Gateway(run_dir).start()
    side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address(name="valet.example.org"))
    url = await url_of(side, gateway)
    assert url.startswith("http://valet.example.org:")
    assert await said(url.replace("valet.example.org", "127.0.0.1")) == "one: hello"
    side.close()


def test_the_ports_of_sessions_unused_for_longest_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KNOWN_PORTS", 2)
    ports = KnownPorts(tmp_path / "p")
    for session, port in (("a", 1), ("b", 2), ("a", 1), ("c", 3)):
        ports.keep(session, port)
    assert KnownPorts(tmp_path / "p").sessions() == ("a", "c")
    (tmp_path / "p").write_text("{")
    assert KnownPorts(tmp_path / "p").sessions() == ()


async def test_connections_beyond_the_limit_are_refused_and_the_others_stay(
    public: PublicSide, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GATEWAY_CONNECTIONS", 2)
    url = await url_of(public, await Gateway(run_dir).start())
    parts = urlsplit(url)
    held = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(2)]
    for reader, writer in held:
        writer.write(b"hello\n")
        assert await asyncio.wait_for(reader.readline(), 5) == b"one: hello\n"
    assert await said(url) == ""
    held[0][1].write(b"bye\n")
    held[0][1].close()

    async def free() -> bool:
        return await said(url) == "one: hello"

    await eventually(free)
    held[1][1].write(b"still\n")
    assert await asyncio.wait_for(held[1][0].readline(), 5) == b"one: still\n"
    held[1][1].close()


async def test_a_port_that_is_opened_during_a_look_stays(
    run_dir: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug class: what was seen before is held against what came after."""
    seen, opened = asyncio.Event(), asyncio.Event()

    async def look(function: Callable[[Path], frozenset[str]], path: Path) -> frozenset[str]:
        found = function(path)
        seen.set()
        await opened.wait()
        return found

    monkeypatch.setattr("valet_sandbox_controller.portal.public_side.asyncio.to_thread", look)
    side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address())
    keeping = asyncio.create_task(side.keep())
    await seen.wait()
    parts = urlsplit(await url_of(side, await Gateway(run_dir).start()))
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    opened.set()
    for _ in range(2):  # looks that began after it was opened
        seen.clear()
        await seen.wait()
    writer.write(b"hello\n")
    assert await asyncio.wait_for(reader.readline(), 5) == b"one: hello\n"
    writer.close()
    await tasks.end(keeping)
    side.close()


async def test_a_link_in_the_sockets_place_is_not_followed(run_dir: Path) -> None:
    gateway = await Gateway(run_dir).start()
    (await gateway_dial.dial(gateway.folder)).transport.abort()
    trap = gateways(run_dir) / ids.new_id()
    trap.mkdir()
    for make in (
        lambda: os.symlink(gateway.folder / SOCKET, trap / SOCKET),
        lambda: (trap / SOCKET).write_text("x"),
        lambda: (trap / SOCKET).mkdir(),
        lambda: os.mkfifo(trap / SOCKET),
    ):
        make()
        with pytest.raises(GatewayAway):
            await gateway_dial.dial(trap)
        shutil.rmtree(trap)
        trap.mkdir()


async def test_much_passes_whole_both_ways_when_who_reads_is_slow(public: PublicSide, run_dir: Path) -> None:
    gateway = await Gateway(run_dir).start()
    parts = urlsplit(await url_of(public, gateway))
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 16)
    lines = [b"%07d " % number + b"x" * 4000 + b"\n" for number in range(2000)]

    async def write() -> None:
        for line in lines:
            writer.write(line)
            await writer.drain()
        writer.write_eof()

    writing = asyncio.create_task(write())
    for line in lines:
        assert await asyncio.wait_for(reader.readline(), 20) == b"one: " + line
    assert await asyncio.wait_for(reader.read(), 5) == b""
    await writing
    writer.close()


@pytest.fixture
async def asking(servers) -> AsyncIterator[Client]:
    """As the api asks."""
    nc = await broker.connect(servers.broker.url, name="api", creds=str(servers.creds("api")))
    yield nc
    await broker.close(nc)


async def test_after_a_restart_of_the_portal_the_address_is_the_same(servers, start_service, asking: Client) -> None:
    gateway = await Gateway(servers.places.run).start()
    subject = subjects.service("portal", GetEndpoint.method)
    question = GetEndpoint(session_id=gateway.session)
    portal = start_service("portal")
    url = (await rpc.call(asking, subject, question, Endpoint)).url
    assert await said(url) == "one: hello"
    portal.stop()
    assert await said(url) == ""
    start_service("portal")

    async def back() -> bool:
        return await said(url) == "one: hello"

    await eventually(back)
    assert (await rpc.call(asking, subject, question, Endpoint)).url == url
    gateway.stop()
    with pytest.raises(Conflict):
        await rpc.call(asking, subject, question, Endpoint)
