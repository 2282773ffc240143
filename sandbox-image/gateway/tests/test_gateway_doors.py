"""Claims about what who comes gets while a service does not run: a page in a browser, a document for a program.

Real: the gateway (a process), HTTP. Not real: the runner's door, and the service behind it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from valet_gateway import routes
from valet_gateway.testing import GatewayProcess, Program, folder, free_port, spec, token

pytestmark = pytest.mark.asyncio(loop_scope="module")

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Dest": "document"}


class Door:
    """A service that does not run yet."""

    def __init__(self) -> None:
        self.state = "starting"

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        problem = {"title": "x", "status": 503, "detail": f"<b> is {self.state}", "code": "x"}
        return web.json_response(problem, status=503, headers={"X-Valet-Door": self.state})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door() -> Door:
    return Door()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(door: Door) -> AsyncIterator[GatewayProcess]:
    with folder() as path:
        async with (
            Program(door.answer) as program,
            Program(door.answer) as app,
            GatewayProcess(spec(Path(path), services={"vscode": program.target})) as gateway,
        ):
            await gateway.control("PUT", "/tunnels/app", {"port": app.port})
            yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    bearer = {"Authorization": f"Bearer {token()}"}
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), headers=bearer) as client:
        yield client


async def test_a_browser_gets_a_page_that_comes_again_by_itself_while_a_service_starts(
    gateway: GatewayProcess, client: aiohttp.ClientSession, door: Door
) -> None:
    door.state = "starting"
    async with client.get(f"{gateway.url}/vscode/?folder=/w", headers=BROWSER) as response:
        page = await response.text()
        assert (response.status, response.headers["Retry-After"]) == (503, "2")
        assert response.content_type == "text/html"
        assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert '<meta http-equiv="refresh" content="2">' in page
    assert "&lt;b&gt; is starting" in page
    async with client.get(f"{gateway.url}/vscode/static/x.js") as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "2")
        assert response.content_type == "application/problem+json"
        assert (await response.json())["code"] == "service_starting"
        assert "X-Valet-Door" not in response.headers


async def test_a_service_that_could_not_start_says_why_on_a_page_that_waits_for_the_person(
    gateway: GatewayProcess, client: aiohttp.ClientSession, door: Door
) -> None:
    door.state = "failed"
    async with client.get(f"{gateway.url}/vscode/", headers=BROWSER) as response:
        page = await response.text()
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert "refresh" not in page
    assert "&lt;b&gt; is failed" in page
    assert '<a href="">Try again</a>' in page
    async with client.get(f"{gateway.url}/vscode/") as response:
        assert (await response.json())["code"] == "service_failed"


async def test_a_service_that_ended_a_moment_ago_is_one_that_starts(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    await gateway.control("PUT", "/services/vscode", {"target": f"http://127.0.0.1:{free_port()}"})
    async with client.get(f"{gateway.url}/vscode/", headers=BROWSER) as response:
        assert response.status == 503
        assert "refresh" in await response.text()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(f"{gateway.url}/vscode/ws")
    assert refused.value.status == 503


async def test_a_service_this_machine_does_not_have_says_how_to_get_it(
    gateway: GatewayProcess, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{gateway.url}/vnc/vnc.html?autoconnect=1&reconnect=1&resize=x&path=x") as response:
        assert response.status == 404
        assert "x11vnc" in (await response.json())["detail"]
    async with client.get(f"{gateway.url}/vnc/", headers=BROWSER) as response:
        page = await response.text()
        assert response.status == 404
    assert "Debian: xvfb" in page
    assert "refresh" not in page


async def test_a_program_behind_a_tunnel_does_not_speak_for_the_runner(
    gateway: GatewayProcess, client: aiohttp.ClientSession, door: Door
) -> None:
    door.state = "starting"
    async with client.get(f"{gateway.url}/t/app/", headers=BROWSER) as response:
        assert (await response.json())["title"] == "x"


@pytest.mark.parametrize(
    ("path", "query", "leads_to"),
    [
        ("/vnc/", "", "/vnc/vnc.html?autoconnect=true&reconnect=true&resize=scale&path=vnc/websockify"),
        ("/vnc/vnc_lite.html", "", "/vnc/vnc.html?autoconnect=true&reconnect=true&resize=scale&path=vnc/websockify"),
        (
            "/vnc/vnc.html",
            "resize=remote&autoconnect=0",
            "/vnc/vnc.html?resize=remote&autoconnect=0&reconnect=true&path=vnc/websockify",
        ),
        ("/vnc/vnc.html", "autoconnect=true&reconnect=true&resize=scale&path=vnc/websockify", None),
        ("/vnc/app/ui.js", "", None),
        ("/vscode/", "", None),
        ("/t/vnc/vnc.html", "", None),
    ],
)
async def test_the_desktop_is_connected_at_once_and_fits_the_window(
    path: str, query: str, leads_to: str | None
) -> None:
    assert routes.desktop_page(routes.find(path), query) == leads_to
