"""The way from outside to a sandbox's gateway: real sockets, the real portal; a small server plays the gateway."""

import asyncio
import os
import secrets
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from nats.aio.client import Client
from valet_gateway.testing import GatewayProcess
from valet_gateway.testing import spec as gateway_spec
from valet_protocol import ids, subjects
from valet_protocol.errors import Conflict, NotFound
from valet_protocol.requests import Endpoint, GetEndpoint
from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import GatewayAway
from valet_sandbox_controller.portal import gateway_dial, port_choice
from valet_sandbox_controller.portal.known_ports import KnownPorts
from valet_sandbox_controller.portal.port_choice import InUse
from valet_sandbox_controller.portal.public_address import Address, address
from valet_sandbox_controller.portal.public_side import PublicSide
from valet_sandbox_controller.providers.storage import SOCKET, gateways
from valet_service import broker, rpc, sandbox_token, tasks
from valet_service.config_file import Sandbox
from valet_service.errors import BadSettings


class Gateway:
    """Answers every line with its name and the line, until a line `bye`."""

    def __init__(self, run_dir: Path, name: str = "one", session: str | None = None) -> None:
        self.session = session or ids.new_id()
        self.name = name
        self.folder = gateways(run_dir) / self.session
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> "Gateway":
        self.folder.mkdir(parents=True)
        await self.listen()
        return self

    async def listen(self, name: str = SOCKET) -> None:
        """As when a gateway of the same sandbox starts again, or makes a tunnel's socket."""
        self._server = await asyncio.start_unix_server(self._serve, self.folder / name)

    def kill(self) -> None:
        """The gateway alone: its sandbox is still there, and the socket's name."""
        assert self._server
        self._server.close()

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


async def test_a_tunnel_has_a_port_of_its_own_as_long_as_it_is_there(run_dir: Path, quick: None) -> None:
    ports = KnownPorts(run_dir / "ports.json")
    side = PublicSide(gateways(run_dir), ports, Address())
    keeping = asyncio.create_task(side.keep())
    gateway = await Gateway(run_dir, "gateway").start()

    def ask(tunnel: str) -> Awaitable[Endpoint]:
        return side.endpoint(GetEndpoint(session_id=gateway.session, tunnel=tunnel))

    for name in ("app", "../s", "", "x" * 64):
        with pytest.raises(NotFound) as refusal:
            await ask(name)
        assert refusal.value.code == "no_tunnel_address"
    app = Gateway(run_dir, "app", gateway.session)
    await app.listen("t-app")
    url = (await ask("app")).url
    assert await asyncio.gather(said(url), said(await url_of(side, gateway))) == ["app: hello", "gateway: hello"]
    assert (await ask("app")).url == url
    (app.folder / "t-app").unlink()  # as the gateway does when the tunnel is deleted
    app.kill()

    async def closed() -> bool:
        return await said(url) == ""

    await eventually(closed)
    await app.listen("t-app")
    assert (await ask("app")).url == url
    assert KnownPorts(run_dir / "ports.json").of(f"{gateway.session}/app") == urlsplit(url).port
    await tasks.end(keeping)
    side.close()


async def test_a_tunnels_port_gives_way_to_a_gateway_and_takes_nobodys(run_dir: Path) -> None:
    side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address(ports=free_range(2)))
    one, two = await Gateway(run_dir, "one").start(), await Gateway(run_dir, "two").start()
    urls = [await url_of(side, one)]
    for name in ("app", "api"):
        await Gateway(run_dir, name, one.session).listen(f"t-{name}")
    app = GetEndpoint(session_id=one.session, tunnel="app")
    urls.append((await side.endpoint(app)).url)
    with pytest.raises(Conflict) as refusal:
        await side.endpoint(GetEndpoint(session_id=one.session, tunnel="api"))
    assert refusal.value.code == "sandbox_ports_in_use"
    # the gateway's port is unused for longer, but the tunnel is reached by the gateway as well
    assert await url_of(side, two) == urls[1]
    with pytest.raises(Conflict):
        await side.endpoint(app)
    side.close()


def test_a_session_keeps_so_many_ports_of_its_tunnels_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug class: one agent that makes tunnels without end costs the others their addresses."""
    monkeypatch.setattr(limits, "TUNNEL_PORTS", 2)
    ports = KnownPorts(tmp_path / "p")
    for number, key in enumerate(("a", "b", "a/x", "b/x", "a/y", "a/z"), start=1):
        ports.keep(key, number)
    assert ports.known() == ("a", "b", "b/x", "a/y", "a/z")


async def test_who_comes_while_the_gateway_restarts_waits_for_it(public: PublicSide, run_dir: Path) -> None:
    gateway = await Gateway(run_dir).start()
    url = await url_of(public, gateway)
    gateway.kill()
    waiting = [asyncio.create_task(said(url, f"hello {number}")) for number in range(3)]

    async def held() -> bool:
        port = public._open[gateway.session]  # nothing outside can tell that they wait
        return port.held == len(waiting)

    await eventually(held)
    (gateway.folder / SOCKET).unlink()
    await gateway.listen()
    assert await asyncio.gather(*waiting) == [f"one: hello {number}" for number in range(3)]


async def test_who_has_waited_in_vain_is_told_to_come_again(
    public: PublicSide, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await Gateway(run_dir).start()
    parts = urlsplit(await url_of(public, gateway))
    gateway.kill()
    monkeypatch.setattr(limits, "GATEWAY_HOLD", 0.2)
    for head, kind, words in (
        (
            b"GET /ttyd/?token=a HTTP/1.1\r\nHost: h\r\nAccept: text/html,*/*\r\n\r\n",
            b"text/html",
            b'http-equiv="refresh"',
        ),
        (b"POST /v1/processes HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{", b"problem+json", b"sandbox_starting"),
        (b"hello\n", b"", b""),
    ):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(head)
        try:
            answer = await asyncio.wait_for(reader.read(), 10)
        except ConnectionResetError:
            answer = b""
        assert answer.startswith(b"HTTP/1.1 503 ") == bool(kind)
        assert (b"Retry-After: 2\r\n" in answer) == bool(kind)
        assert kind in answer
        assert words in answer
        assert b"token" not in answer
        writer.close()


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


async def test_after_a_restart_no_port_outside_of_the_range_and_nobody_elses_is_opened(
    run_dir: Path, quick: None
) -> None:
    one, two, three = [await Gateway(run_dir, name).start() for name in ("one", "two", "three")]
    ports = free_range(3)
    with socket.create_server(("127.0.0.1", ports[0])):
        known = KnownPorts(run_dir / "ports.json")
        for gateway, port in ((one, ports[0]), (two, ports[1]), (three, free_range(1)[0])):
            known.keep(gateway.session, port)
        side = PublicSide(gateways(run_dir), known, Address(ports=ports))
        keeping = asyncio.create_task(side.keep())

        async def settled() -> bool:
            return KnownPorts(run_dir / "ports.json").known() == (two.session,)

        await eventually(settled)
        assert await said(f"http://127.0.0.1:{ports[1]}") == "two: hello"
        assert await url_of(side, one) == f"http://127.0.0.1:{ports[2]}"
        await tasks.end(keeping)
        side.close()


async def test_browsers_elsewhere_are_given_the_name_by_which_they_know_this_machine(run_dir: Path) -> None:
    assert address(Sandbox(), {}) == Address(host="127.0.0.1", name="127.0.0.1")
    assert address(Sandbox(public_host="valet.example.org"), {}) == Address(host="0.0.0.0", name="valet.example.org")
    gateway = await Gateway(run_dir).start()
    side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address(name="valet.example.org"))
    url = await url_of(side, gateway)
    assert url.startswith("http://valet.example.org:")
    assert await said(url.replace("valet.example.org", "127.0.0.1")) == "one: hello"
    side.close()


def test_in_a_container_the_environment_says_where_the_ports_are() -> None:
    environ = {"VALET_SANDBOX_LISTEN": "0.0.0.0", "VALET_SANDBOX_PORTS": "20000-20001"}
    told = address(Sandbox(public_ports="30000-30001"), environ)
    assert told == Address(host="0.0.0.0", name="127.0.0.1", ports=range(20000, 20002))
    assert told.url(20001) == "http://127.0.0.1:20001"
    with pytest.raises(BadSettings, match="VALET_SANDBOX_PORTS='20000'"):
        address(Sandbox(), {"VALET_SANDBOX_PORTS": "20000"})
    with pytest.raises(BadSettings, match="VALET_SANDBOX_LISTEN='valet"):
        address(Sandbox(), {"VALET_SANDBOX_LISTEN": "valet.example.org"})


def test_behind_a_proxy_people_are_given_its_addresses() -> None:
    told = address(Sandbox(public_ports="20000-20001", public_url="https://{port}.valet.example.org"), {})
    assert (told.host, told.url(20001)) == ("127.0.0.1", "https://20001.valet.example.org")


def test_ports_nobody_had_come_first_and_then_those_unused_for_longest() -> None:
    ports, known = range(10, 15), {"a": 11, "b": 10, "elsewhere": 99, "c": 12}
    assert list(port_choice.to_try(ports, 12, {10}, known)) == [12, 13, 14, 11]
    assert list(port_choice.to_try(ports, 99, {13, 14}, known)) == [11, 10, 12]  # it had one before there was a range
    assert list(port_choice.to_try(None, 7, {7}, known)) == [7, 0]
    idle = InUse(key="idle", used=2.0, connections=0)
    busy = InUse(key="busy", used=1.0, connections=1)
    assert port_choice.gives_way([busy, idle, InUse(key="later", used=3.0, connections=0)]) == "idle"
    assert port_choice.gives_way([busy]) is None


def free_range(count: int) -> range:
    """Ports that follow each other and are free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            first = probe.getsockname()[1]
        ports = range(first, first + count)
        if all(is_free(port) for port in ports):
            return ports


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except (OSError, OverflowError):
        return False
    return True


async def gets(side: PublicSide, session_id: str, url: str) -> bool:
    """Whether the session's address is this one; not while connections are being closed."""
    try:
        return (await side.endpoint(GetEndpoint(session_id=session_id))).url == url
    except Conflict:
        return False


async def test_when_all_ports_are_taken_the_one_unused_for_longest_gives_its_port_up(
    run_dir: Path, quick: None
) -> None:
    ports = free_range(2)
    side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address(ports=ports))
    keeping = asyncio.create_task(side.keep())
    one, two, three, four = [await Gateway(run_dir, name).start() for name in ("one", "two", "three", "four")]
    urls = [await url_of(side, one), await url_of(side, two)]
    assert {urlsplit(url).port for url in urls} == set(ports)
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(urls[0]).port)
    writer.write(b"hello\n")
    assert await asyncio.wait_for(reader.readline(), 5) == b"one: hello\n"

    # `one` is older but somebody is connected to it
    assert await url_of(side, three) == urls[1]
    assert await said(urls[1]) == "three: hello"
    assert KnownPorts(run_dir / "ports.json").all() == {
        one.session: urlsplit(urls[0]).port,
        three.session: urlsplit(urls[1]).port,
    }
    # who lost its port asks again, and gets one as soon as any is idle
    await eventually(lambda: gets(side, two.session, urls[1]))
    held = await asyncio.open_connection("127.0.0.1", urlsplit(urls[1]).port)
    held[1].write(b"hello\n")
    assert await asyncio.wait_for(held[0].readline(), 5) == b"two: hello\n"
    with pytest.raises(Conflict, match=r"\[sandbox\] public_ports") as refusal:
        await url_of(side, four)
    assert refusal.value.code == "sandbox_ports_in_use"
    assert f"{ports[0]}-{ports[-1]}" in refusal.value.detail
    # a sandbox that ends leaves its port to whoever asks next
    one.stop()
    assert await asyncio.wait_for(reader.read(), 10) == b""

    await eventually(lambda: gets(side, four.session, urls[0]))
    for each in (writer, held[1]):
        each.close()
    await tasks.end(keeping)
    side.close()


async def real_gateway(run_dir: Path, *, secure: bool) -> tuple[GatewayProcess, str]:
    """`python -m valet_gateway` where a sandbox's would be, and a person's token for it."""
    session, key = ids.new_id(), secrets.token_hex(16)
    folder = gateways(run_dir) / session
    folder.mkdir(parents=True)
    own = run_dir / session[-6:]
    own.mkdir()
    spec = msgspec.structs.replace(
        gateway_spec(own), session_id=session, key=key, socket=str(folder / SOCKET), port=None, secure=secure
    )
    claims = sandbox_token.Claims(sub="usr_1", sid=session, svc="*", exp=int(time.time()) + 600)
    return GatewayProcess(spec), sandbox_token.mint(key, claims)


async def test_an_old_link_never_opens_the_session_that_has_the_port_now(run_dir: Path) -> None:
    """Bug class: a port given away takes people, or what their browsers send by themselves, to another's sandbox."""
    side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address(ports=free_range(1)))
    (first, token), (second, other) = (
        await real_gateway(run_dir, secure=False),
        await real_gateway(run_dir, secure=True),
    )
    async with first, second, httpx.AsyncClient(trust_env=False, timeout=15) as browser:
        url = (await side.endpoint(GetEndpoint(session_id=first.spec.session_id))).url
        assert (await browser.get(f"{url}/ttyd", params={"token": token})).status_code == 308
        assert browser.cookies  # it would be let in without the token from now on
        assert (await browser.get(f"{url}/v1/processes")).status_code != 401
        await browser.aclose()

        await eventually(lambda: gets(side, second.spec.session_id, url))
        async with httpx.AsyncClient(trust_env=False, timeout=15, cookies=browser.cookies) as same_browser:
            for path in ("/v1/processes", "/ttyd/", "/vscode/", "/t/app/", "/api/tunnels"):
                assert (await same_browser.get(url + path)).status_code == 401, path
                assert (await same_browser.get(url + path, params={"token": token})).status_code == 401, path
                bearer = {"Authorization": f"Bearer {token}"}
                assert (await same_browser.get(url + path, headers=bearer)).status_code == 401, path
            let_in = await same_browser.get(f"{url}/ttyd", params={"token": other})
            assert let_in.status_code == 308
            given = let_in.headers.get_list("set-cookie")
            assert given
            assert all("; Secure" in cookie for cookie in given)  # behind a proxy with TLS
    side.close()


def test_the_ports_of_sessions_unused_for_longest_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KNOWN_PORTS", 2)
    ports = KnownPorts(tmp_path / "p")
    for session, port in (("a", 1), ("b", 2), ("a", 1), ("c", 3)):
        ports.keep(session, port)
    assert KnownPorts(tmp_path / "p").known() == ("a", "c")
    (tmp_path / "p").write_text("{")
    assert KnownPorts(tmp_path / "p").known() == ()


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

    async def look(function: Callable[[Path, set[str]], frozenset[str]], path: Path, keys: set[str]) -> frozenset[str]:
        found = function(path, keys)
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
