"""A development server behind a tunnel, as a person's browser has it: at an address of its own, without being told.

Real: Chromium, the portal's public side, the gateway (a process). Not real: the sandbox around it, and the server,
which makes its links from the root of its host as Vite and Next do.
"""

import asyncio
import threading
import time
from base64 import b64decode
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from harness.browser import CHROMIUM, Page
from harness.waiting import until
from valet_gateway.testing import GatewayProcess, Program, folder
from valet_gateway.testing import spec as gateway_spec
from valet_protocol import ids
from valet_protocol.requests import GetEndpoint
from valet_sandbox_controller.portal.known_ports import KnownPorts
from valet_sandbox_controller.portal.public_address import Address
from valet_sandbox_controller.portal.public_side import PublicSide
from valet_sandbox_controller.providers.storage import SOCKET, gateways
from valet_service import sandbox_token

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: chromium)")

KEY = "k" * 32
DOT = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")
APP = (
    """<!doctype html><link rel="icon" href="data:,"><img id="dot" src="/static.png"><script src="/main.js"></script>"""
)
SCRIPT = """
const told = window.told = {dot: () => document.querySelector("#dot").naturalWidth}
fetch("/api/x").then(answer => answer.json()).then(said => { told.api = said })
fetch("/old").then(answer => answer.text()).then(said => { told.redirected = said })
const socket = new WebSocket(`ws://${location.host}/`, "vite-hmr")
socket.onopen = () => socket.send("hot")
socket.onmessage = event => { told.hot = event.data }
const elsewhere = new URLSearchParams(location.search).get("gateway")
if (elsewhere) {
  fetch(`${elsewhere}/ttyd/token`, {credentials: "include"})
    .then(answer => answer.text()).then(said => { told.stolen = said }, () => { told.stolen = null })
  const shell = new WebSocket(`${elsewhere.replace("http", "ws")}/ttyd/ws`, "tty")
  shell.onopen = () => { told.shell = true }
  shell.onerror = () => { told.shell = false }
  const frame = document.createElement("iframe")
  frame.src = `${elsewhere}/ttyd/`
  frame.onload = () => { told.framed = true }
  document.body.append(frame)
}
"""


async def serve(request: web.BaseRequest) -> web.StreamResponse:
    """The development server."""
    match request.path:
        case "/" if request.headers.get("Upgrade"):
            ws = web.WebSocketResponse(protocols=("vite-hmr",))
            await ws.prepare(request)
            async for message in ws:
                await ws.send_str(f"reload {message.data}")
            return ws
        case "/":
            response = web.Response(text=APP, content_type="text/html")
            response.set_cookie("app", "its-own", path="/", httponly=True)
            return response
        case "/main.js":
            return web.Response(text=SCRIPT, content_type="text/javascript")
        case "/static.png":
            return web.Response(body=DOT, content_type="image/png")
        case "/api/x":
            return web.json_response({"cookie": request.headers.get("Cookie")})
        case "/old":
            return web.Response(status=302, headers={"Location": "/new"})
        case "/new":
            return web.Response(text="arrived")
        case _:
            return web.Response(status=404)


class Place:
    """A session's gateway with a tunnel, and the ports that lead there."""

    def __init__(self, run_dir: Path) -> None:
        self.session = ids.new_id()
        self._loop = asyncio.new_event_loop()
        self._side = PublicSide(gateways(run_dir), KnownPorts(run_dir / "ports.json"), Address())
        at = gateways(run_dir) / self.session
        at.mkdir(parents=True)
        self.gateway = GatewayProcess(
            msgspec.structs.replace(
                gateway_spec(run_dir), session_id=self.session, key=KEY, socket=str(at / SOCKET), port=None
            )
        )
        self._program = Program(serve)
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    async def start(self) -> None:
        await self._program.__aenter__()
        await self.gateway.start({"usr_1": 0})
        assert (await self.gateway.control("PUT", "/tunnels/app", {"port": self._program.port}))[0] == 200

    async def stop(self) -> None:
        self._side.close()
        await self.gateway.kill()
        await self._program.__aexit__(None, None, None)

    def end(self) -> None:
        self.run(self.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def address(self, tunnel: str | None = None) -> str:
        question = GetEndpoint(session_id=self.session, tunnel=tunnel)
        return self.run(self._side.endpoint(question)).url

    def token(self) -> str:
        claims = sandbox_token.Claims(sub="usr_1", sid=self.session, svc="*", exp=int(time.time()) + 600)
        return sandbox_token.mint(KEY, claims)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with folder() as path:
        place = Place(Path(path))
        place.run(place.start())
        yield place
        place.end()


def frames(page: Page) -> list[str]:
    """What the frames in a page show."""
    tree = page._call("Page.getFrameTree")["frameTree"]
    return [child["frame"]["url"] for child in tree.get("childFrames", [])]


def test_a_server_with_links_from_the_root_works_and_its_page_reaches_nothing_else(place: Place, page: Page) -> None:
    page.open(f"{place.address()}/ttyd/?token={place.token()}")  # the browser has a cookie that opens everything
    page.until("location.search === '' && document.title !== ''", "the terminal's page")
    page.open(f"{place.address('app')}/?gateway={place.address()}&token={place.token()}")
    page.until("window.told?.hot", "the message by the WebSocket")
    assert page.value("location.pathname + location.search").startswith("/?gateway=")
    page.until("'stolen' in told && 'shell' in told && told.framed && told.api && told.redirected", "all of it")
    assert page.value("told.dot()") == 1
    assert page.value("told.hot") == "reload hot"
    assert page.value("told.redirected") == "arrived"
    assert page.value("told.api") == {"cookie": "app=its-own"}  # its own cookie, and none of the gateway's
    assert page.value("told.stolen") is None
    assert page.value("told.shell") is False
    assert frames(page) == ["chrome-error://chromewebdata/"]  # the terminal is not shown in a frame of this page


def test_a_page_that_is_opened_while_the_gateway_is_away_comes_when_it_is_back(place: Place, page: Page) -> None:
    url = f"{place.address('app')}/?token={place.token()}"
    place.run(place.gateway.kill())
    page.open(f"{url}&late")
    place.run(place.gateway.start({"usr_1": 0}))
    until(lambda: page.value("window.told?.hot"), 60, "the page of the tunnel")
    assert page.value("location.search") == "?late"
