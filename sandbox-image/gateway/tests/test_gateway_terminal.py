"""Claims about the terminal, and about what outlives the gateway.

Real: the gateway and the process service (processes), shells. Not real: xterm.js, whose files are named and empty.
"""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp import WSMsgType, web
from valet_gateway.testing import GatewayProcess, Program, folder, free_port, spec, token
from valet_processes.testing import ProcessService

TIMEOUT = 40.0
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Ttyd:
    """A client of ttyd's protocol."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws
        self.seen = b""

    async def hello(self, columns: int = 80, rows: int = 24) -> None:
        await self.ws.send_str(msgspec.json.encode({"AuthToken": "", "columns": columns, "rows": rows}).decode())

    async def keys(self, text: str) -> None:
        await self.ws.send_bytes(b"0" + text.encode())

    async def until(self, text: bytes) -> None:
        """Read output until it has said this."""
        async with asyncio.timeout(TIMEOUT):
            while text not in self.seen:
                message = await self.ws.receive()
                assert message.type is WSMsgType.BINARY, (message, self.seen)
                if message.data[:1] == b"0":
                    self.seen += message.data[1:]

    async def ended(self) -> tuple[int, str]:
        """The close code and reason."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                message = await self.ws.receive()
                if message.type is WSMsgType.CLOSE:
                    return message.data, message.extra or ""
                assert message.type is WSMsgType.BINARY, message


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with folder() as path:
        for name in ("xterm/lib/xterm.js", "xterm/css/xterm.css", "addon-fit/lib/addon-fit.js"):
            file = Path(path) / "packages" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"/* {name} */")
        yield Path(path)


@pytest.fixture(scope="module")
def processes(place: Path) -> Iterator[ProcessService]:
    with ProcessService(place, {"PS1": "$ "}) as service:
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(place: Path, processes: ProcessService) -> AsyncIterator[GatewayProcess]:
    asked = spec(place, xterm_dir=str(place / "packages"))
    assert asked.processes_socket == processes.spec.socket
    async with GatewayProcess(asked) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    bearer = {"Authorization": f"Bearer {token()}"}
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), headers=bearer) as client:
        yield client


async def _terminal(gateway: GatewayProcess, client: aiohttp.ClientSession, *, hello: bool = True) -> Ttyd:
    terminal = Ttyd(await client.ws_connect(f"{gateway.url}/ttyd/ws", protocols=("tty",)))
    assert terminal.ws.protocol == "tty"
    if hello:
        await terminal.hello()
    return terminal


async def test_keys_reach_a_login_shell_in_the_workspace_and_its_output_comes_back(
    gateway: GatewayProcess, client: aiohttp.ClientSession, processes: ProcessService
) -> None:
    terminal = await _terminal(gateway, client)
    await terminal.keys("echo sum-$((40 + 2)) in $PWD as $0\r")
    await terminal.until(f"sum-42 in {processes.workspace} as".encode())
    await terminal.ws.close()


async def test_a_page_that_comes_back_gets_the_recent_output_and_two_pages_share_one_shell(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    first = await _terminal(gateway, client)
    await first.keys("echo remember-$((1 + 1))\r")
    await first.until(b"remember-2")
    await first.ws.close()
    second, third = await _terminal(gateway, client), await _terminal(gateway, client)
    await second.until(b"remember-2")
    await third.until(b"remember-2")
    await second.keys("echo both-$((1 + 2))\r")
    await third.until(b"both-3")
    await second.ws.close()
    await third.ws.close()


async def test_a_page_that_asks_is_told_where_the_output_ends_that_was_there_before_it(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    first = await _terminal(gateway, client)
    await first.keys("echo before-$((1 + 3))\r")
    await first.until(b"before-4")
    second = await _terminal(gateway, client, hello=False)
    await second.ws.send_str('{"columns":80,"rows":24,"marked":true}')
    seen = b""
    async with asyncio.timeout(TIMEOUT):
        while (message := await second.ws.receive()).data != b"h":
            assert message.type is WSMsgType.BINARY
            seen += message.data[1:]
    assert b"before-4" in seen
    await first.keys("echo after-$((1 + 4))\r")
    await second.until(b"after-5")
    await first.until(b"after-5")  # who does not ask is not told
    await first.ws.close()
    await second.ws.close()


async def test_the_shell_sees_the_size_of_the_page(gateway: GatewayProcess, client: aiohttp.ClientSession) -> None:
    terminal = await _terminal(gateway, client, hello=False)
    await terminal.hello(columns=101, rows=31)
    await terminal.keys("echo now $(stty size)\r")
    await terminal.until(b"now 31 101")
    await terminal.ws.send_bytes(b'1{"columns":102,"rows":32}')
    await terminal.keys("echo then $(stty size)\r")
    await terminal.until(b"then 32 102")
    await terminal.ws.close()


async def test_a_shell_that_ended_closes_the_page_and_the_next_page_gets_a_new_one(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    old = await _terminal(gateway, client)
    await old.keys("echo pid-$$-old; exit\r")
    assert await old.ended() == (1000, "the shell has ended")
    new = await _terminal(gateway, client)
    await new.keys("echo alive-$((3 + 4))\r")
    await new.until(b"alive-7")
    assert b"-old" not in new.seen
    await new.ws.close()


@pytest.mark.parametrize("first", ["ls\r", "[]", '{"columns":"x"}'])
async def test_a_first_message_that_is_no_size_ends_the_websocket(
    gateway: GatewayProcess, client: aiohttp.ClientSession, first: str
) -> None:
    terminal = await _terminal(gateway, client, hello=False)
    await terminal.ws.send_str(first)
    assert (await terminal.ended())[0] == 1002


async def test_the_page_is_made_of_files_of_this_gateway_only(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{gateway.url}/ttyd/") as response:
        page = await response.text()
        policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in page
    for name in ("xterm.js", "xterm.css", "addon-fit.js", "terminal.js", "terminal.css"):
        assert f'"{name}"' in page
        async with client.get(f"{gateway.url}/ttyd/{name}") as response:
            assert response.status == 200
    async with client.get(f"{gateway.url}/ttyd/token") as response:
        assert await response.json() == {"token": ""}
    for name in ("terminal.html", "absent.html", "xterm/package.json"):
        async with client.get(f"{gateway.url}/ttyd/{name}") as response:
            assert response.status == 404


async def test_a_websocket_of_a_terminal_needs_its_subprotocol(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(f"{gateway.url}/ttyd/ws")
    assert refused.value.status == 400


async def test_processes_are_listed_and_followed_through_the_gateway(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{gateway.url}/v1/processes?tag=terminal") as response:
        assert response.status == 200
        assert {item["tag"] for item in (await response.json())["items"]} <= {"terminal"}
    async with client.get(f"{gateway.url}/pty") as response:
        assert response.status == 200


async def test_a_killed_gateway_loses_no_process_no_output_no_tunnel_and_no_cookie(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    asked = {"command": "sh", "args": ["-c", "for n in $(seq 400); do echo line-$n; sleep 0.01; done"]}
    async with client.post(f"{gateway.url}/v1/processes", json=asked) as response:
        process = (await response.json())["id"]
        cookie = response.headers["Set-Cookie"].split(";")[0]
    url = f"{gateway.url}/v1/processes/{process}/connect?offset="
    tunnel = {"port": free_port(), "protocol": "http", "description": "kept", "keep_prefix": False}
    assert (await gateway.control("PUT", "/tunnels/kept", tunnel))[0] == 200

    got = b""
    async with asyncio.timeout(TIMEOUT):
        async with client.ws_connect(f"{url}0") as ws:
            while b"line-20\n" not in got:
                message = await ws.receive()
                if message.type is WSMsgType.BINARY:
                    got += message.data[1:]
            await gateway.kill()
        await gateway.start()
        headers = {"Cookie": cookie, "Origin": gateway.url}
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as browser,
            browser.ws_connect(f"{url}{len(got)}", headers=headers) as ws,
        ):
            async for message in ws:
                if message.type is WSMsgType.BINARY:
                    got += message.data[1:]
    assert got == b"".join(b"line-%d\n" % number for number in range(1, 401))
    assert (await gateway.control("GET", "/tunnels"))[1] == {"tunnels": [{"name": "kept", **tunnel}]}
    assert (await gateway.control("DELETE", "/tunnels/kept"))[1] == {"tunnels": []}
    assert (await gateway.control("DELETE", "/tunnels/kept"))[0] == 404


async def test_reserved_ports_are_refused_and_a_program_that_took_one_is_not_reached(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    opencode = free_port()
    assert (await gateway.control("PUT", "/tunnels/later", {"port": opencode}))[0] == 200
    said = {"url": f"http://127.0.0.1:{opencode}", "authorization": "Basic x"}
    assert (await gateway.control("PUT", "/opencode", said))[0] == 200
    for port in (opencode, gateway.spec.port, 0, 65_536):
        status, problem = await gateway.control("PUT", "/tunnels/x", {"port": port})
        assert (status, problem["code"]) == (422, "tunnel_port")
    async with client.get(f"{gateway.url}/t/later/") as response:
        assert response.status == 422
    await gateway.control("DELETE", "/tunnels/later")
    await gateway.control("DELETE", "/opencode")


async def test_a_ttyd_of_its_own_is_proxied_instead(gateway: GatewayProcess, client: aiohttp.ClientSession) -> None:
    async def ttyd(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/ws":
            ws = web.WebSocketResponse(protocols=("tty",))
            await ws.prepare(request)
            await ws.send_bytes(b"0from ttyd")
            await ws.close()
            return ws
        return web.Response(text=f"ttyd at {request.path}")

    async with Program(ttyd) as program:
        await gateway.control("PUT", "/services/ttyd", {"target": program.target})
        async with client.get(f"{gateway.url}/ttyd/") as response:
            assert await response.text() == "ttyd at /"
        async with client.ws_connect(f"{gateway.url}/ttyd/ws", protocols=("tty",)) as ws:
            assert ws.protocol == "tty"
            assert await ws.receive_bytes(timeout=TIMEOUT) == b"0from ttyd"
        assert (await gateway.control("DELETE", "/services/ttyd"))[0] == 200
    async with client.get(f"{gateway.url}/ttyd/token") as response:
        assert response.status == 200


async def test_the_key_is_in_no_file_and_no_argument_and_the_memory_is_closed_to_others(
    gateway: GatewayProcess,
) -> None:
    command = "from valet_gateway.app import guard_self; guard_self(); import ctypes; print(ctypes.CDLL(None).prctl(3))"
    guarded = await asyncio.create_subprocess_exec(sys.executable, "-c", command, stdout=asyncio.subprocess.PIPE)
    assert (await guarded.communicate())[0] == b"0\n"  # PR_GET_DUMPABLE
    key = gateway.spec.key.encode()
    process = Path(f"/proc/{gateway.pid}")
    for public in (process / "cmdline", process / "environ", gateway.log):
        assert key not in public.read_bytes()
    assert stat.S_IMODE(os.stat(gateway.spec.control_socket).st_mode) == 0o600
    assert gateway.spec.socket
    assert stat.S_IMODE(os.stat(gateway.spec.socket).st_mode) == 0o666


async def test_a_terminal_without_process_service_says_so_and_a_page_without_xterm_what_is_missing(
    place: Path, client: aiohttp.ClientSession
) -> None:
    alone = place / "alone"
    alone.mkdir()
    async with GatewayProcess(spec(alone)) as gateway:
        async with client.get(f"{gateway.url}/ttyd/") as response:
            assert response.status == 503
            assert "@xterm/xterm" in await response.text()
        terminal = await _terminal(gateway, client)
        code, reason = await terminal.ended()
        assert code == 1013
        assert "process service" in reason
        waiting = await _terminal(gateway, client, hello=False)
        assert await gateway.terminate() == 0
        assert (await waiting.ended())[0] == 1012
