"""Claims about the gateway as a process: security table, cookies, streaming, WebSockets.

Real: the gateway (a process), HTTP, WebSockets. Not real: the program behind it.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import jwt
import msgspec
import pytest
import pytest_asyncio
from aiohttp import WSMsgType, web
from valet_gateway import limits
from valet_gateway.testing import KEY, SESSION, TOOLS_TOKEN, GatewayProcess, Program, folder, spec, token
from yarl import URL

TIMEOUT = 20.0
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """What a request was when it came to the program behind."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: str

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


class Behind:
    """The program behind the gateway: it says what reached it."""

    def __init__(self) -> None:
        self.close_codes: asyncio.Queue[tuple[int | None, int]] = asyncio.Queue()
        self.go_on = asyncio.Event()
        self.sent = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.path:
            case "/ws":
                return await self._websocket(request)
            case "/ws-refused":
                return web.Response(status=403)
            case "/bytes":
                return await self._bytes(request, int(request.query["n"]))
            case "/count":
                count = 0
                async for piece in request.content.iter_any():
                    count += len(piece)
                return web.Response(text=str(count))
            case "/echo":
                response = web.StreamResponse()
                await response.prepare(request)
                async for piece in request.content.iter_any():
                    await response.write(piece)
                return response
            case "/events":
                return await self._events(request)
            case "/break-off":
                return await self._break_off(request)
            case "/redirect":
                return web.Response(status=302, headers={"Location": request.query["to"]})
            case "/cookies":
                response = web.Response()
                for cookie in ("mine=1; Path=/", "gateway_session=stolen; Path=/"):
                    response.headers.add("Set-Cookie", cookie)
                return response
            case "/config/providers":
                return web.json_response({"providers": [{"id": "p", "key": "sk-secret"}]})
            case _:
                body = (await request.read()).decode()
                fields = [(str(name), value) for name, value in request.headers.items()]
                reached = Reached(method=request.method, path=request.raw_path, headers=fields, body=body)
                return web.Response(body=msgspec.json.encode(reached), content_type="application/json")

    async def _websocket(self, request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(float(request.query.get("late", "0")))
        ws = web.WebSocketResponse(protocols=("tty", "b"), max_msg_size=0)
        await ws.prepare(request)
        count = 0
        async for message in ws:
            count += 1
            if message.type is WSMsgType.TEXT and message.data.startswith("close "):
                _, code, reason = message.data.split(" ", 2)
                await ws.close(code=int(code), message=reason.encode())
            elif message.type is WSMsgType.TEXT:
                await ws.send_str(message.data)
            else:
                await ws.send_bytes(message.data)
        if request.query.get("tell"):
            self.close_codes.put_nowait((ws.close_code, count))
        return ws

    async def _bytes(self, request: web.BaseRequest, left: int) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.sent = 0
        while left:
            piece = bytes(min(left, 1 << 18))
            await response.write(piece)
            left -= len(piece)
            self.sent += len(piece)
        return response

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        await self.go_on.wait()
        await response.write(b"data: second\n\n")
        return response

    async def _break_off(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> Behind:
    return Behind()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(behind: Behind) -> AsyncIterator[GatewayProcess]:
    with folder() as path:
        sockets = [str(Path(path) / name) for name in ("tools.sock", "processes.sock", "vnc.sock")]
        async with (
            Program(behind.answer) as program,
            Program(behind.answer) as app,
            Program(behind.answer, sockets[0]),
            Program(behind.answer, sockets[1]),
            Program(behind.answer, sockets[2]) as desktop,
            GatewayProcess(spec(Path(path), services={"vscode": program.target, "vnc": desktop.target})) as gateway,
        ):
            await gateway.control("PUT", "/tunnels/app", {"port": app.port})
            yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A client without cookies of its own accord."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as client:
        yield client


def _bearer(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


async def _reached(response: aiohttp.ClientResponse) -> Reached:
    assert response.status == 200, await response.text()
    return msgspec.json.decode(await response.read(), type=Reached)


async def _raw(gateway: GatewayProcess, data: bytes, *, until: bytes = b"\r\n\r\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.spec.port)
    try:
        writer.write(data)
        async with asyncio.timeout(TIMEOUT):
            return await reader.readuntil(until)
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        writer.close()


# -- the security table


def _forged(**changes: object) -> str:
    said = {"sub": "usr_1", "sid": SESSION, "svc": "*", "exp": 2**33, **changes}
    return jwt.encode({name: value for name, value in said.items() if value is not None}, KEY, algorithm="HS256")


def _unsigned() -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').decode().rstrip("=")
    return f"{head}.{_forged().split('.')[1]}."


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(_unsigned(), id="alg none"),
        pytest.param(jwt.encode({"sub": "u", "sid": SESSION, "svc": "*", "exp": 2**33}, "k" * 64), id="wrong key"),
        pytest.param(_forged(exp=1), id="expired"),
        pytest.param(_forged(sid="ses_other"), id="other session"),
        pytest.param(_forged(svc="ttyd"), id="other service"),
        pytest.param(_forged(svc=None), id="no service"),
        pytest.param(_forged(sub=None), id="nobody"),
        pytest.param("garbage", id="garbage"),
    ],
)
async def test_a_bad_token_is_refused_without_saying_why_and_never_logged(
    gateway: GatewayProcess, client: aiohttp.ClientSession, bad: str
) -> None:
    for ask in (
        client.get(f"{gateway.url}/vscode/x?token={bad}"),
        client.get(f"{gateway.url}/vscode/x", headers=_bearer(bad)),
        client.get(f"{gateway.url}/vscode/ws?token={bad}", headers={"Upgrade": "websocket", "Connection": "Upgrade"}),
    ):
        async with ask as response:
            assert response.status == 401
            assert response.content_type == "application/problem+json"
            assert "Set-Cookie" not in response.headers
            said = await response.text()
            assert not re.search("expired|signature|algorithm|another", said)
    log = gateway.log.read_text()
    assert "not_admitted" in log
    assert bad not in log or bad == "garbage"


async def test_no_good_token_is_ever_logged_whatever_becomes_of_its_request(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    good = token()
    for path in ("/vscode/x", "/t/nothing/", "/nowhere", "/vscode/../x", f"/t/app/{good}", "/t/app/break-off"):
        try:
            async with client.get(f"{gateway.url}{path}?token={good}") as response:
                await response.read()
        except aiohttp.ClientError:
            pass
    await _raw(gateway, f"GET /vscode/?token={good} HTTP/9.9\r\n\r\n".encode())
    await _raw(gateway, f"GET /vscode/?token={good} and more HTTP/1.1\r\n\r\n".encode())
    await _raw(
        gateway, f"GET /vscode/ HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {good}\r\nBad Header\r\n\r\n".encode()
    )
    signature = good.rpartition(".")[2]
    assert signature not in gateway.log.read_text()


async def test_a_token_in_a_url_reaches_no_program(gateway: GatewayProcess, client: aiohttp.ClientSession) -> None:
    good = token()
    referer = {"Referer": f"{gateway.url}/t/app/?token={good}"}
    async with client.get(
        URL(f"{gateway.url}/t/app/x?a=%31&token={good}&b", encoded=True), headers=referer
    ) as response:
        reached = await _reached(response)
    assert reached.path == "/x?a=%31&b"
    assert good not in json.dumps(msgspec.to_builtins(reached))
    async with client.get(f"{gateway.url}/t/app/x", headers=_bearer(good)) as response:
        assert (await _reached(response)).header("Authorization") == []


@pytest.mark.parametrize(
    "target",
    ["/t/app/../../v1/processes", "/t/app/%2e%2e/%2e%2e/v1/processes", "/t/app/..%2f..%2fx", "/t/app/%252e%252e/x"],
)
async def test_a_tunnels_path_cannot_leave_it(gateway: GatewayProcess, target: str) -> None:
    head = f"GET {target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token()}\r\n\r\n"
    assert (await _raw(gateway, head.encode())).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "head",
    [
        "POST /vscode/x HTTP/1.1\r\nHost: h\r\n{auth}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /vscode/x HTTP/1.1\r\nHost: h\r\n{auth}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST /vscode/x HTTP/1.1\r\nHost: h\r\n{auth}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST /vscode/x HTTP/1.0\r\nHost: h\r\n{auth}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /vscode/x HTTP/1.1\r\nHost: h\r\n{auth}Transfer-Encoding : chunked\r\n\r\n",
        "GET /vscode/x HTTP/1.1\r\nHost: h\r\n{auth}X: a\r\n b\r\n\r\n",
        "GET /vscode/x HTTP/1.1\r\n{auth}\r\n",
        "GET /vscode/x HTTP/1.1\r\nHost: h\r\nHost: g\r\n{auth}\r\n",
        "GET /vscode/x?a=\xff HTTP/1.1\r\nHost: h\r\n{auth}\r\n",
        "GET http://169.254.169.254/ HTTP/1.1\r\nHost: h\r\n{auth}\r\n",
        "GET /vscode/x HTTP/1.1\r\nHost: h\r\n{auth}X: " + "x" * 20_000 + "\r\n\r\n",
        "GET /vscode/" + "x" * 20_000 + " HTTP/1.1\r\nHost: h\r\n{auth}\r\n",
        "GET /vscode/x HTTP/1.1\r\nHost: h\r\n{auth}" + "X: x\r\n" * 200 + "\r\n",
    ],
    ids=[
        "both framings",
        "two lengths",
        "odd coding",
        "chunked 1.0",
        "space in name",
        "folded",
        "no host",
        "two hosts",
        "odd query",
        "absolute target",
        "long header",
        "long line",
        "many headers",
    ],
)
async def test_a_request_that_could_be_read_in_two_ways_or_is_oversized_is_refused(
    gateway: GatewayProcess, head: str
) -> None:
    said = await _raw(gateway, head.replace("{auth}", f"Authorization: Bearer {token()}\r\n").encode("latin-1"))
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")), said


@pytest.mark.parametrize("verb", ["CONNECT", "TRACE"])
async def test_connect_and_trace_are_refused(gateway: GatewayProcess, verb: str) -> None:
    target = "127.0.0.1:5432" if verb == "CONNECT" else "/vscode/"
    said = await _raw(gateway, f"{verb} {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 40")


@pytest.mark.parametrize("target", ["http://169.254.169.254:80", "http://10.0.0.1:80", "file:///etc/passwd"])
async def test_nothing_leads_to_another_host(gateway: GatewayProcess, target: str) -> None:
    assert (await gateway.control("PUT", "/services/ttyd", {"target": target}))[0] == 422
    assert (await gateway.control("PUT", "/opencode", {"url": target, "authorization": "x"}))[0] == 422
    assert (await gateway.control("PUT", "/tunnels/x", {"port": 80, "host": "10.0.0.1"}))[0] == 200
    status, body = await gateway.control("DELETE", "/tunnels/x")
    assert status == 200
    assert "10.0.0.1" not in json.dumps(body)


async def test_a_redirect_of_a_program_is_not_followed_but_passed_on_below_its_prefix(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    for to, seen in (("http://169.254.169.254/", "http://169.254.169.254/"), ("/login", "/t/app/login")):
        url = f"{gateway.url}/t/app/redirect?to={to}"
        async with client.get(url, headers=_bearer(token("t")), allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (302, seen)


async def test_the_agents_programs_reach_the_tools_and_a_person_only_the_tunnels(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    async with client.post(f"{gateway.url}/mcp", headers=_bearer(TOOLS_TOKEN), data="{}") as response:
        reached = await _reached(response)
    assert (reached.path, reached.body, reached.header("X-Valet-Subject")) == ("/mcp", "{}", ["agent"])
    assert reached.header("Authorization") == []
    async with client.get(f"{gateway.url}/api/tunnels", headers=_bearer(token("t", sub="usr_9"))) as response:
        assert (await _reached(response)).header("X-Valet-Subject") == ["usr_9"]
    for path, shown, status in (
        ("/api/tasks", token("*"), 403),
        ("/ttyd/", TOOLS_TOKEN, 401),
        ("/v1/processes", TOOLS_TOKEN, 401),
    ):
        async with client.get(f"{gateway.url}{path}", headers=_bearer(shown)) as response:
            assert response.status == status


async def test_the_agents_server_is_the_platforms_alone_and_shows_no_keys(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    platform = _bearer(token("opencode", sub="platform"))
    async with client.get(f"{gateway.url}/opencode/session", headers=platform) as response:
        assert response.status == 503
    said = {"url": gateway.spec.services["vscode"], "authorization": "Basic b3BlbmNvZGU6cA=="}
    assert (await gateway.control("PUT", "/opencode", said))[0] == 200
    async with client.get(f"{gateway.url}/opencode/session?a=1", headers=platform) as response:
        reached = await _reached(response)
        assert "Set-Cookie" not in response.headers
    assert (reached.path, reached.header("Authorization")) == ("/session?a=1", ["Basic b3BlbmNvZGU6cA=="])
    async with client.get(f"{gateway.url}/opencode/config/providers", headers=platform) as response:
        assert "sk-secret" not in await response.text()
    async with client.put(f"{gateway.url}/opencode/auth/openai", headers=platform, data="{}") as response:
        assert response.status == 403
    async with client.get(f"{gateway.url}/opencode/session", headers=_bearer(token("*"))) as response:
        assert response.status == 403
    assert (await gateway.control("DELETE", "/opencode"))[0] == 200


# -- cookies


def _jar(response: aiohttp.ClientResponse) -> str:
    return "; ".join(cookie.split(";")[0] for cookie in response.headers.getall("Set-Cookie"))


async def test_a_token_becomes_a_cookie_and_the_browsers_address_loses_it(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    url = f"{gateway.url}/vscode/x?a=1&token={token('vscode')}"
    browser = {"Accept": "text/html", "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}
    async with client.get(url, headers=browser, allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, "/vscode/x?a=1")
        jar = _jar(response)
        assert response.headers["Set-Cookie"].endswith("; Path=/; Max-Age=900; HttpOnly; SameSite=Lax")
    async with client.get(f"{gateway.url}/vscode/x", headers={"Cookie": f"{jar}; own=1"}) as response:
        assert (await _reached(response)).header("Cookie") == ["own=1"]
    async with client.get(f"{gateway.url}/t/app/", headers={"Cookie": jar}) as response:
        assert response.status == 401


async def test_a_program_cannot_set_or_end_the_gateways_cookie(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{gateway.url}/t/app/cookies?token={token()}") as response:
        set_by = [line for line in response.headers.getall("Set-Cookie") if "gateway_session" not in line]
        assert set_by == ["mine=1; Path=/t/app/"]
        assert "stolen" not in str(response.headers)


async def test_a_page_of_another_origin_gets_nothing_by_the_cookie(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{gateway.url}/vscode/x?token={token()}") as response:
        jar = _jar(response)
    own, neighbour = gateway.url, "http://127.0.0.1:1"
    async with client.ws_connect(f"{own}/vscode/ws", headers={"Cookie": jar, "Origin": own}) as ws:
        await ws.send_str("in")
        assert await ws.receive_str(timeout=TIMEOUT) == "in"
    for origin in (neighbour, "http://evil.example", "null"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(f"{own}/vscode/ws", headers={"Cookie": jar, "Origin": origin})
        assert refused.value.status == 403
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await client.ws_connect(f"{own}/vscode/ws", headers={"Cookie": jar})
    async with client.post(f"{own}/v1/processes", headers={"Cookie": jar, "Origin": neighbour}) as response:
        assert response.status == 403
    headers = {"Origin": neighbour}
    async with client.ws_connect(f"{own}/vscode/ws?token={token()}", headers=headers) as ws:  # whoever has a token
        await ws.send_str("in")
        assert await ws.receive_str(timeout=TIMEOUT) == "in"


async def test_pages_of_other_origins_read_the_processes_by_token_and_never_by_cookie(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    origin = {"Origin": "https://valet.example"}
    asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    async with client.options(f"{gateway.url}/v1/processes", headers=asked) as response:
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (204, "*")
        assert "Access-Control-Allow-Credentials" not in response.headers
    async with client.post(f"{gateway.url}/v1/processes", headers={**origin, **_bearer(token())}) as response:
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (200, "*")
        jar = _jar(response)
    for url in (f"{gateway.url}/v1/processes", f"{gateway.url}/vscode/x"):
        async with client.get(url, headers={"Cookie": jar}) as response:
            assert response.status == 200
            assert "Access-Control-Allow-Origin" not in response.headers
    async with client.options(f"{gateway.url}/vscode/x", headers=asked) as response:
        assert response.status == 401


# -- HTTP


async def test_a_gigantic_response_streams_through_in_little_memory_and_waits_for_its_reader(
    gateway: GatewayProcess, client: aiohttp.ClientSession, behind: Behind
) -> None:
    size = 64 << 20
    before = gateway.memory()
    async with client.get(f"{gateway.url}/vscode/bytes?n={size}", headers=_bearer(token())) as response:
        first = await response.content.readany()
        settled, sent = -1, behind.sent
        async with asyncio.timeout(TIMEOUT):
            while settled != sent:  # nobody reads: the program must come to a halt
                settled = sent
                await asyncio.sleep(0.2)
                sent = behind.sent
        assert settled < size // 2
        got = len(first)
        async for piece in response.content.iter_any():
            got += len(piece)
    assert got == size
    assert gateway.memory("VmHWM") - before < 16 << 20


async def test_a_gigantic_request_streams_through_in_little_memory(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    size = 64 << 20
    before = gateway.memory()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size >> 18):
            yield bytes(1 << 18)

    async with client.put(f"{gateway.url}/vscode/count", headers=_bearer(token()), data=pieces()) as response:
        assert await response.text() == str(size)
    assert gateway.memory("VmHWM") - before < 16 << 20


async def test_a_response_streams_while_its_request_does(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    echoed: asyncio.Queue[bytes] = asyncio.Queue()

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(5):
            yield b"piece %d" % number
            assert await echoed.get() == b"piece %d" % number

    async with asyncio.timeout(TIMEOUT):
        async with client.post(f"{gateway.url}/vscode/echo", headers=_bearer(token()), data=pieces()) as response:
            async for piece in response.content.iter_any():
                echoed.put_nowait(piece)


async def test_the_first_event_of_a_stream_arrives_before_the_second_exists(
    gateway: GatewayProcess, client: aiohttp.ClientSession, behind: Behind
) -> None:
    async with client.get(f"{gateway.url}/vscode/events", headers=_bearer(token())) as response:
        async with asyncio.timeout(TIMEOUT):
            assert await response.content.readline() == b"data: first\n"
            behind.go_on.set()
            assert (await response.content.read()).endswith(b"data: second\n\n")


async def test_a_response_that_broke_off_does_not_look_whole(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{gateway.url}/vscode/break-off", headers=_bearer(token())) as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_a_verb_a_body_and_the_head_of_a_request_arrive(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    headers = {**_bearer(token()), "X-Forwarded-For": "6.6.6.6", "Content-Encoding": "x", "Expect": "100-continue"}
    async with client.patch(f"{gateway.url}/vscode/a%2Fb", headers=headers, data=b"body") as response:
        reached = await _reached(response)
    assert (reached.method, reached.path, reached.body) == ("PATCH", "/a%2Fb", "body")
    assert reached.header("X-Forwarded-Prefix") == ["/vscode"]
    assert reached.header("X-Forwarded-For") == ["127.0.0.1"]
    assert reached.header("Content-Encoding") == ["x"]
    assert reached.header("Expect") == []


async def test_what_is_not_there_says_which_and_what_to_do(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    await gateway.control("PUT", "/tunnels/down", {"port": 1})
    async with client.get(f"{gateway.url}/t/down/", headers=_bearer(token())) as response:
        problem = await response.json(content_type="application/problem+json")
        assert (response.status, problem["code"]) == (502, "backend_down")
        assert "'down'" in problem["detail"]
        assert "port 1" in problem["detail"]
    browser = {**_bearer(token()), "Accept": "text/html"}
    async with client.get(f"{gateway.url}/t/down/", headers=browser) as response:
        assert (response.status, response.content_type) == (502, "text/html")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(f"{gateway.url}/t/down/ws", headers=_bearer(token()))
    assert refused.value.status == 502
    await gateway.control("DELETE", "/tunnels/down")


async def test_health_is_open_and_the_desktop_opens_with_its_websocket_below_the_prefix(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{gateway.url}/health") as response:
        assert (await response.json())["healthy"] is True
    async with client.get(f"{gateway.url}/vnc/", headers=_bearer(token("vnc")), allow_redirects=False) as response:
        assert "path=vnc/websockify" in response.headers["Location"]
    async with client.get(f"{gateway.url}/vnc/vnc.html", headers=_bearer(token("vnc"))) as response:
        assert (await _reached(response)).path.startswith("/vnc.html?autoconnect=true&")


# -- WebSockets


async def test_subprotocol_close_code_and_reason_of_the_program_reach_the_client(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    url = f"{gateway.url}/vscode/ws"
    async with client.ws_connect(url, headers=_bearer(token()), protocols=("a", "b")) as ws:
        assert ws.protocol == "b"
        await ws.send_str("close 4321 enough of this")
        message = await ws.receive(timeout=TIMEOUT)
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 4321, "enough of this")


async def test_the_clients_close_code_reaches_the_program_after_all_it_sent(
    gateway: GatewayProcess, client: aiohttp.ClientSession, behind: Behind
) -> None:
    ws = await client.ws_connect(f"{gateway.url}/vscode/ws?tell=1", headers=_bearer(token()))
    for _ in range(500):
        await ws.send_bytes(b"x" * 100)
    await ws.close(code=4777)
    async with asyncio.timeout(TIMEOUT):
        assert await behind.close_codes.get() == (4777, 500)


async def test_frames_sent_before_the_program_opens_arrive_in_order(gateway: GatewayProcess) -> None:
    def frame(data: bytes) -> bytes:
        return bytes([0x81, 0x80 | len(data), 0, 0, 0, 0]) + data

    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.spec.port)
    writer.write(
        f"GET /vscode/ws?late=0.5 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token()}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "\r\n".encode()
    )
    for number in range(50):
        writer.write(frame(b"early %02d" % number))
    async with asyncio.timeout(TIMEOUT):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        for number in range(50):
            assert await reader.readexactly(10) == b"\x81\x08early %02d" % number
    writer.close()


async def test_a_refused_websocket_keeps_the_programs_status(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(f"{gateway.url}/vscode/ws-refused", headers=_bearer(token()))
    assert refused.value.status == 403


async def test_an_oversized_message_is_refused_by_its_length_alone(gateway: GatewayProcess) -> None:
    head = (
        f"GET /vscode/ws HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token()}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.spec.port)
    writer.write(head.encode() + bytes([0x82, 0xFF]) + (1 << 40).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 1000)
    async with asyncio.timeout(TIMEOUT):
        await reader.readuntil(b"\r\n\r\n")
        said = await reader.readexactly(4)
        reason = await reader.readexactly(said[1] - 2)
    assert (said[0], int.from_bytes(said[2:4], "big")) == (0x88, 1009)
    assert str(limits.MESSAGE_BYTES) in reason.decode()
    writer.close()


async def test_two_hundred_websockets_live_side_by_side(gateway: GatewayProcess, client: aiohttp.ClientSession) -> None:
    async def one(number: int) -> bool:
        url = f"{gateway.url}/vscode/ws"
        async with client.ws_connect(url, headers=_bearer(token()), compress=0) as ws:
            everybody.release()
            await together.wait()
            await ws.send_str(str(number))
            return await ws.receive_str(timeout=TIMEOUT) == str(number)

    everybody, together = asyncio.Semaphore(0), asyncio.Event()
    async with asyncio.timeout(TIMEOUT):
        running = [asyncio.create_task(one(number)) for number in range(200)]
        for _ in running:
            await everybody.acquire()
        together.set()
        assert all(await asyncio.gather(*running))
