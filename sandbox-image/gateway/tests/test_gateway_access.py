"""Claims about who may stay in a sandbox when the session's log says that they take part no more.

Real: the gateway (a process), HTTP, WebSockets. Not real: the program behind it, the runner that tells it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import WSMsgType, web
from valet_gateway import admission, cookies, limits, routes
from valet_gateway.admission import Access, Door, Shown
from valet_gateway.cookies import Grant
from valet_gateway.directory import Directory
from valet_gateway.errors import NotAdmitted
from valet_gateway.server import Connections, Gateway
from valet_gateway.testing import KEY, SESSION, TOOLS_TOKEN, GatewayProcess, Program, folder, spec, token
from valet_protocol.errors import Unavailable

TIMEOUT = 20.0
DOOR = Door(session_id=SESSION, key=KEY, tools_token=TOOLS_TOKEN)
FAR = 2**40

# -- the decision


@pytest.mark.parametrize(
    ("subject", "given_at", "allowed"),
    [
        pytest.param("owner", 0, True, id="the owner, by a token of any age"),
        pytest.param("bob", 59, False, id="by what they had before they were taken out and let in again"),
        pytest.param("bob", 60, True, id="from the fact that let them in on"),
        pytest.param("bob", 200, True, id="later than this was known"),
        pytest.param("eve", 0, False, id="who may not, by a token that knows nothing of the log"),
        pytest.param("eve", 100, False, id="who may not, at the very moment of which this is known"),
        pytest.param("eve", 101, True, id="who was let in after this was known"),
        pytest.param("platform", 0, True, id="the platform itself"),
    ],
)
def test_who_may_be_here_and_by_what_was_given_when(subject: str, given_at: int, allowed: bool) -> None:
    assert Access(seq=100, since={"owner": 0, "bob": 60}).allows(subject, given_at) is allowed


def test_tokens_and_cookies_are_judged_alike() -> None:
    access = Access(seq=100, since={"usr_1": 60})
    route = routes.find("/ttyd/")
    for seq, allowed in ((0, False), (59, False), (60, True)):
        for shown in (
            Shown(bearer=token(seq=seq)),
            Shown(url_token=token("ttyd", seq=seq)),
            Shown(cookies=(Grant(sub="usr_1", until={"*": FAR}, seq=seq),)),
        ):
            if allowed:
                assert admission.admit(route, shown, DOOR, access, time.time()).seq == seq
            else:
                with pytest.raises(NotAdmitted):
                    admission.admit(route, shown, DOOR, access, time.time())


def test_nobody_is_let_in_before_it_is_known_who_may_but_the_agent_and_the_platform() -> None:
    for shown in (Shown(bearer=token()), Shown(cookies=(Grant(sub="usr_1", until={"*": FAR}),))):
        with pytest.raises(Unavailable):
            admission.admit(routes.find("/ttyd/"), shown, DOOR, None, time.time())
    with pytest.raises(NotAdmitted):
        admission.admit(routes.find("/ttyd/"), Shown(bearer=token(seconds=-1)), DOOR, None, time.time())
    platform = Shown(bearer=token("opencode", sub="platform"))
    assert admission.admit(routes.find("/opencode/x"), platform, DOOR, None, time.time()).subject == "platform"
    assert (
        admission.admit(routes.find("/mcp"), Shown(bearer=TOOLS_TOKEN, inside=True), DOOR, None, 0).subject == "agent"
    )


def test_a_new_token_does_not_bring_back_what_a_cookie_opened_before_its_user_was_taken_out() -> None:
    access = Access(seq=100, since={"usr_1": 60})
    for seq, kept in ((59, {"ttyd"}), (60, {"ttyd", "vscode"})):
        shown = Shown(url_token=token("ttyd", seq=90), cookies=(Grant(sub="usr_1", until={"vscode": FAR}, seq=seq),))
        grant = admission.admit(routes.find("/ttyd/"), shown, DOOR, access, time.time()).grant
        assert grant is not None
        assert (set(grant.until), grant.seq) == (kept, 90)


def test_a_cookie_of_before_there_were_sequences_is_as_old_as_can_be() -> None:
    grant = cookies.unseal(KEY, cookies.seal(KEY, Grant(sub="usr_1", until={"*": FAR})))
    assert grant is not None
    assert grant.seq == 0
    assert not Access(seq=9, since={"usr_1": 5}).allows(grant.sub, grant.seq)


# -- the gateway


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/ws":
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            await ws.send_str(message.data)
        return ws
    if request.path == "/endless":
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        await asyncio.Event().wait()
    if request.path == "/taken-in":
        await request.read()
    return web.Response(text="here")


in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[GatewayProcess]:
    with folder() as path:
        async with (
            Program(_answer) as program,
            Program(_answer) as app,
            GatewayProcess(spec(Path(path), services={"vscode": program.target})) as gateway,
        ):
            await gateway.control("PUT", "/tunnels/app", {"port": app.port})
            yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout) as made:
        yield made


async def _status(client: aiohttp.ClientSession, url: str, **how: object) -> int:
    async with client.get(url, **how) as response:  # type: ignore[arg-type]
        return response.status


async def _ended(ws: aiohttp.ClientWebSocketResponse) -> int | None:
    async with asyncio.timeout(TIMEOUT):
        message = await ws.receive()
    return message.data if message.type is WSMsgType.CLOSE else None


async def _speaks(ws: aiohttp.ClientWebSocketResponse) -> None:
    await ws.send_str("still there")
    assert await ws.receive_str(timeout=TIMEOUT) == "still there"


async def _broken_off(response: aiohttp.ClientResponse) -> None:
    with pytest.raises(aiohttp.ClientError):
        async with asyncio.timeout(TIMEOUT):
            await response.content.read()


@in_one_loop
async def test_whoever_is_taken_out_loses_all_that_is_open_and_nobody_else_does(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    await gateway.access(50, {"usr_1": 0, "bob": 10})
    mine = await client.ws_connect(f"{gateway.url}/vscode/ws?token={token(seq=5)}")
    theirs = f"token={token(sub='bob', seq=20)}"
    tabs = [await client.ws_connect(f"{gateway.url}/{at}/ws?{theirs}") for at in ("vscode", "t/app")]
    async with client.get(f"{gateway.url}/vscode/x?{theirs}") as response:
        jar = {"Cookie": response.headers["Set-Cookie"].partition(";")[0], "Origin": gateway.url}
    tabs.append(await client.ws_connect(f"{gateway.url}/vscode/ws", headers=jar))
    reading = await client.get(f"{gateway.url}/vscode/endless?{theirs}")
    assert await reading.content.readexactly(5) == b"begun"
    my_reading = await client.get(f"{gateway.url}/vscode/endless?token={token()}")
    going_on = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await going_on.wait()

    writing = asyncio.create_task(client.post(f"{gateway.url}/vscode/taken-in?{theirs}", data=pieces()))
    for tab in tabs:
        await _speaks(tab)

    assert await gateway.access(60, {"usr_1": 0}) == 200
    assert [await _ended(tab) for tab in tabs] == [1008, 1008, 1008]
    await _broken_off(reading)
    with pytest.raises(aiohttp.ClientError):
        await asyncio.wait_for(writing, TIMEOUT)
    await _speaks(mine)
    assert await my_reading.content.readexactly(5) == b"begun"
    assert not my_reading.content.is_eof()
    for how in ({"headers": jar}, {"params": {"token": token(sub="bob", seq=59)}}, {"params": {"token": theirs[6:]}}):
        assert await _status(client, f"{gateway.url}/vscode/x", **how) == 401
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(f"{gateway.url}/t/app/ws", **how)  # type: ignore[arg-type]
        assert refused.value.status == 401
    assert "60" not in (await (await client.get(f"{gateway.url}/vscode/x", headers=jar)).text())
    assert "bob may not be here" in gateway.log.read_text()
    my_reading.close()
    await mine.close()


@in_one_loop
async def test_somebody_let_in_again_comes_in_by_what_they_get_then_whether_the_gateway_has_heard_of_it_or_not(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    await gateway.access(100, {"usr_1": 0})
    at = f"{gateway.url}/vscode/x"
    assert await _status(client, at, params={"token": token(sub="bob", seq=90)}) == 401
    ws = await client.ws_connect(f"{gateway.url}/vscode/ws?token={token(sub='bob', seq=120)}")
    await gateway.access(130, {"usr_1": 0, "bob": 110})
    await _speaks(ws)
    assert await _status(client, at, params={"token": token(sub="bob", seq=110)}) == 200
    assert await _status(client, at, params={"token": token(sub="bob", seq=90)}) == 401
    await ws.close()


@in_one_loop
async def test_somebody_who_does_not_answer_the_goodbye_is_cut_off_all_the_same(gateway: GatewayProcess) -> None:
    await gateway.access(200, {"usr_1": 0, "bob": 150})
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.spec.port)
    writer.write(
        f"GET /vscode/ws?token={token(sub='bob', seq=160)} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode()
    )
    async with asyncio.timeout(TIMEOUT):
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        await gateway.access(201, {"usr_1": 0})
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1 << 20)
    writer.close()


@in_one_loop
async def test_a_gateway_that_was_killed_lets_nobody_in_before_it_is_told_who_may(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    await gateway.access(300, {"usr_1": 0})
    await gateway.kill()
    await gateway.start(writers=None)
    removed = {"token": token(sub="bob", seq=250)}
    for params in (removed, {"token": token()}):
        async with client.get(f"{gateway.url}/vscode/x", params=params) as response:
            assert (response.status, (await response.json())["code"]) == (503, "starting")
    assert await _status(client, f"{gateway.url}/health") == 200
    await gateway.access(300, {"usr_1": 0})
    assert await _status(client, f"{gateway.url}/vscode/x", params={"token": token()}) == 200
    assert await _status(client, f"{gateway.url}/vscode/x", params=removed) == 401


@in_one_loop
async def test_who_took_the_tools_token_along_gets_nothing_by_it_from_outside(gateway: GatewayProcess) -> None:
    bearer = {"Authorization": f"Bearer {TOOLS_TOKEN}"}
    assert gateway.spec.socket
    for connector, status in ((aiohttp.UnixConnector(gateway.spec.socket), 401), (aiohttp.TCPConnector(), 503)):
        async with aiohttp.ClientSession(connector=connector, headers=bearer) as client:
            assert await _status(client, f"{gateway.url}/mcp") == status


@in_one_loop
async def test_connections_by_which_nobody_was_let_in_make_way_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS", 4)
    with folder() as path:
        async with Program(_answer) as program:
            asked = spec(Path(path), services={"vscode": program.target})
            gateway = Gateway(asked, Directory(asked))
            gateway.visits.access = Access(seq=0, since={"usr_1": 0})
            server = web.ServerRunner(Connections(gateway.handle))
            await server.setup()
            at = str(Path(path) / "in.sock")
            await web.UnixSite(server, at).start()
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(at)) as client:
                ws = await client.ws_connect(f"http://x/vscode/ws?token={token()}")
                strangers = [await asyncio.open_unix_connection(at) for _ in range(12)]
                assert await _status(client, "http://x/vscode/x", params={"token": token()}) == 200
                await _speaks(ws)
                assert await asyncio.wait_for(strangers[0][0].read(), TIMEOUT) == b""
                for _, writer in strangers:
                    writer.close()
                await ws.close()
            await gateway.close()
            await server.cleanup()


@in_one_loop
async def test_only_the_process_that_started_the_gateway_tells_it_anything(gateway: GatewayProcess) -> None:
    program = await asyncio.create_subprocess_exec(
        "python3",
        "-c",
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        ' b = b\'{"seq":9999,"since":{"eve":0}}\';'
        " s.sendall(b'PUT /access HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n'"
        " % len(b) + b); print(s.recv(99))",
        gateway.spec.control_socket,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(program.communicate(), TIMEOUT)
    assert b" 403 " in said
    status, problem = await gateway.control("PUT", "/access", {"seq": "x"})
    assert (status, problem["code"]) == (400, "bad_document")
