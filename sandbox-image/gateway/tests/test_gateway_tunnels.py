"""Claims about tunnels: an address of its own for each, where its program is at the root; and what they are told of the
programs behind when those do not answer.

Real: the gateway (a process), HTTP, WebSockets. Not real: the program behind it.
"""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp import WSMsgType, web
from valet_gateway import limits
from valet_gateway.testing import TOOLS_TOKEN, GatewayProcess, Program, folder, spec, token
from valet_protocol.sandbox_spec import GatewaySpec

TIMEOUT = 20.0
URL = "http://127.0.0.1:4567"
WRITERS = {"usr_1": 0}
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Development:
    """A development server: its links, its cookie, its redirect and its WebSocket are at the root of its host."""

    port = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.path:
            case "/":
                if request.headers.get("Upgrade"):
                    ws = web.WebSocketResponse()
                    await ws.prepare(request)
                    async for message in ws:
                        await ws.send_str(f"back: {message.data}")
                    return ws
                headers = {"Set-Cookie": "theirs=1; Path=/; Domain=127.0.0.1", "Content-Security-Policy": "img-src *"}
                return web.Response(text='<script src="/app.js">', content_type="text/html", headers=headers)
            case "/go":
                return web.Response(status=302, headers={"Location": request.query["to"] % {"port": self.port}})
            case "/refuses":
                problem = {"title": "No", "status": 422, "detail": "rows must be a number", "code": "bad_size"}
                return web.json_response(problem, status=422)
            case "/package.json":
                return web.Response(status=404)
            case "/refuses-without-words":
                return web.Response(status=403, text="go away")
            case _:
                named = ("host", "x-forwarded-prefix", "x-forwarded-host", "cookie", "x-valet-subject")
                said = {name: request.headers.get(name) for name in named}
                return web.json_response({"path": request.raw_path, **said})


def asked(path: Path, program: Program) -> GatewaySpec:
    services = {"vscode": program.target, "vnc": program.target}
    return msgspec.structs.replace(spec(path, services=services), frame_ancestors=["https://valet.example.org"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[GatewayProcess]:
    server = Development()
    with folder() as path:
        async with (
            Program(server.answer) as program,
            Program(server.answer, str(Path(path) / "processes.sock")),
            GatewayProcess(asked(Path(path), program)) as gateway,
            Program(server.answer) as app,
        ):
            server.port = app.port
            assert (await gateway.control("PUT", "/tunnels/app", {"port": app.port}))[0] == 200
            yield gateway


def at(gateway: GatewayProcess, name: str) -> aiohttp.ClientSession:
    """Who comes to a tunnel's own address."""
    assert gateway.spec.socket
    connector = aiohttp.UnixConnector(str(Path(gateway.spec.socket).with_name(f"t-{name}")))
    return aiohttp.ClientSession(URL, connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers=BEARER)


BEARER = {"Authorization": f"Bearer {token('t')}"}
BROWSER = {"Accept": "text/html", "Sec-Fetch-Dest": "document"}


async def test_a_tunnels_own_address_has_its_program_at_the_root(gateway: GatewayProcess) -> None:
    async with at(gateway, "app") as client:
        for path in ("/api/x?y=1", "/vscode/", "/t/app/", "/v1/processes", "/health", "/static.png", "/.vite/x"):
            async with client.get(path) as response:
                said = await response.json()
            assert (said["path"], said["x-forwarded-prefix"]) == (path, None)
            assert (said["host"], said["x-forwarded-host"]) == ("127.0.0.1:4567", "127.0.0.1:4567")
        async with client.ws_connect("/") as ws:
            await ws.send_str("hot")
            assert (await ws.receive(TIMEOUT)).data == "back: hot"
        async with client.get("/") as response:
            assert [each for each in response.headers.getall("Set-Cookie") if "theirs" in each] == ["theirs=1; Path=/"]
        for to, location in (
            ("/next", "/next"),
            ("next", "next"),
            ("http://127.0.0.1:%(port)s/a?b=1", "/a?b=1"),
            ("http://localhost:%(port)s", "/"),
            ("http://localhost:%(port)s//elsewhere.org/", "/elsewhere.org/"),
            ("https://elsewhere.org/x", "https://elsewhere.org/x"),
        ):
            async with client.get("/go", params={"to": to}, allow_redirects=False) as response:
                assert response.headers["Location"] == location


async def test_who_may_come_to_a_tunnels_own_address_is_the_same_as_by_the_gateway(gateway: GatewayProcess) -> None:
    async with at(gateway, "app") as client:
        for headers, status in (
            ({"Authorization": ""}, 401),
            ({"Authorization": f"Bearer {token('vscode')}"}, 401),
            ({"Authorization": f"Bearer {TOOLS_TOKEN}"}, 401),
            ({"Authorization": f"Bearer {token(sub='usr_2')}"}, 401),
            ({"Service-Worker": "script"}, 403),
        ):
            async with client.get("/x", headers=headers) as response:
                assert response.status == status, headers
        async with client.get("/..%2fx", headers=BROWSER) as response:
            assert response.status == 400
        query = {"token": token("t"), "a": "1"}
        async with client.get(
            URL + "//elsewhere.org/", params=query, headers=BROWSER, allow_redirects=False
        ) as response:
            assert (response.status, response.headers["Location"]) == (303, "/elsewhere.org/?a=1")
            cookie = response.headers["Set-Cookie"]
        assert "; Path=/;" in cookie
        alone = {"Authorization": "", "Cookie": f"{cookie.split(';')[0]}; theirs=1"}
        async with client.get("/x", headers=alone) as response:
            assert (await response.json())["cookie"] == "theirs=1"
        # by a cookie, for a page of the editor's origin or another sandbox's: the same host name, another port
        for origin, status in (("http://127.0.0.1:4567", 101), ("http://127.0.0.1:9999", 403)):
            handshake = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
            handshake |= {"Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(), "Origin": origin}
            async with client.get("/", headers=alone | handshake) as response:
                assert response.status == status


async def test_the_address_comes_and_goes_with_its_tunnel_and_is_there_again_after_a_kill(
    gateway: GatewayProcess,
) -> None:
    assert gateway.spec.socket
    beside = Path(gateway.spec.socket).parent
    status, said = await gateway.control("GET", "/tunnels")
    assert status == 200
    tunnels = msgspec.convert(said["tunnels"], list[dict[str, str | int | bool]])
    name = "A.b_c-" + "x" * 57
    assert (await gateway.control("PUT", f"/tunnels/{name}", {"port": tunnels[0]["port"]}))[0] == 200
    async with at(gateway, name) as client, client.ws_connect("/") as ws:
        await gateway.kill()
        assert (await ws.receive(TIMEOUT)).type in (WSMsgType.CLOSED, WSMsgType.ERROR, WSMsgType.CLOSE)
    (beside / "t-left").touch()
    await gateway.start()
    assert not (beside / "t-left").exists()
    async with at(gateway, name) as client:
        async with client.get("/x") as response:
            assert response.status == 200
        async with client.ws_connect("/") as ws:
            assert (await gateway.control("DELETE", f"/tunnels/{name}"))[0] == 200
            assert (await ws.receive(TIMEOUT)).type is not WSMsgType.TEXT
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get("/x")
    assert not (beside / f"t-{name}").exists()
    async with at(gateway, "app") as client, client.get("/x") as response:
        assert response.status == 200


async def test_who_is_put_out_of_the_sandbox_is_put_out_at_a_tunnels_own_address(gateway: GatewayProcess) -> None:
    async with at(gateway, "app") as client, client.ws_connect("/") as ws:
        assert await gateway.access(5, {}) == 200
        closed = await ws.receive(TIMEOUT)
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, 1008)
        async with client.get("/x") as response:
            assert response.status == 401
        assert await gateway.access(0, WRITERS) == 200


async def test_a_server_that_keeps_its_prefix_is_asked_with_it(gateway: GatewayProcess) -> None:
    _, said = await gateway.control("GET", "/tunnels")
    port = msgspec.convert(said["tunnels"], list[dict[str, str | int | bool]])[0]["port"]
    tunnel = {"port": port, "keep_prefix": True}
    assert (await gateway.control("PUT", "/tunnels/kept", tunnel))[0] == 200
    async with aiohttp.ClientSession(gateway.url, headers=BEARER) as client:
        async with client.get("/t/kept/a?b=1") as response:
            said = await response.json()
            assert (said["path"], said["x-forwarded-prefix"]) == ("/t/kept/a?b=1", None)
        async with client.get("/t/app/a?b=1") as response:
            said = await response.json()
            assert (said["path"], said["x-forwarded-prefix"]) == ("/a?b=1", "/t/app")
    async with at(gateway, "kept") as client:
        async with client.get("/", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (307, "/t/kept/")
        async with client.get("/t/kept/a") as response:
            assert (await response.json())["path"] == "/t/kept/a"
    assert (await gateway.control("DELETE", "/tunnels/kept"))[0] == 200


async def test_pages_are_shown_in_frames_of_their_own_origin_and_the_platforms_only(gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession(gateway.url, headers={"Authorization": f"Bearer {token()}"}) as client:
        for path, theirs in (("/vscode/", ["img-src *"]), ("/t/app/", ["img-src *"]), ("/ttyd/", None)):
            async with client.get(path) as response:
                policies = response.headers.getall("Content-Security-Policy")
            assert sum("frame-ancestors 'self' https://valet.example.org" in each for each in policies) == 1
            assert theirs is None or policies[: len(theirs)] == theirs
        async with client.get("/vscode/x.json") as response:
            assert "Content-Security-Policy" not in response.headers


async def test_a_refused_websocket_says_what_the_program_said_and_no_path_of_the_sandbox(
    gateway: GatewayProcess,
) -> None:
    handshake = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    handshake |= {"Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode()}
    async with aiohttp.ClientSession(gateway.url, headers={"Authorization": f"Bearer {token()}"}) as client:
        async with client.get("/t/app/refuses", headers=handshake) as response:
            said = await response.json()
            assert (response.status, said["code"], said["detail"]) == (422, "bad_size", "rows must be a number")
        async with client.get("/v1/processes/refuses-without-words", headers=handshake) as response:
            said = await response.json()
        assert said["code"] == "websocket_refused"
        assert "unix:" not in json.dumps(said)


async def test_while_the_runner_is_away_a_client_of_the_tools_is_told_so_in_its_own_protocol(
    gateway: GatewayProcess,
) -> None:
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "x"}}
    async with aiohttp.ClientSession(gateway.url, headers={"Authorization": f"Bearer {TOOLS_TOKEN}"}) as client:
        async with client.post("/mcp", json=call) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, str(limits.RETRY_AFTER))
            said = await response.json()
        assert (said["id"], said["error"]["code"]) == (7, -32000)
        assert "starting again" in said["error"]["message"]
        async with client.get("/api/tasks") as response:
            assert (response.status, (await response.json())["code"]) == (503, "service_starting")


async def test_a_method_that_is_not_taken_is_refused_in_the_words_of_the_platform(gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession(gateway.url, headers={"Authorization": f"Bearer {token()}"}) as client:
        for method, path in (("POST", "/health"), ("DELETE", "/ttyd/"), ("TRACE", "/t/app/")):
            async with client.request(method, path) as response:
                assert (response.status, (await response.json())["code"]) == (405, "method_not_allowed")
                assert response.headers["Allow"].startswith("GET, HEAD")


async def test_what_novnc_asks_for_and_lacks_is_no_error_in_its_page(gateway: GatewayProcess) -> None:
    bearer = {"Authorization": f"Bearer {token()}"}
    async with (
        aiohttp.ClientSession(gateway.url, headers=bearer) as client,
        client.get("/vnc/package.json") as response,
    ):
        assert (response.status, await response.json()) == (200, {})
