"""For tests of the tools: values for every declaration, a platform that answers, and a gateway's control socket."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx
import httpx2
import mcp
import msgspec
from aiohttp import web
from mcp.client.streamable_http import streamable_http_client
from msgspec import inspect
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import Refused, Unprocessable
from valet_protocol.requests import Reply
from valet_protocol.tools import FILLED_IN, TOOLS, Tool
from valet_service import rpc

from valet_runner.testing import search_path
from valet_runner.tools import skills

_WAIT = 60.0
_WORDS = ("sample", "https://example.org/")


def values(tool: type[Tool]) -> dict[str, Any]:
    """A value for each field of a tool, by the name it has in JSON."""
    return {
        field.encode_name: _value(field.type)
        for field in cast(inspect.StructType, inspect.type_info(tool)).fields
        if field.encode_name not in FILLED_IN
    }


def reply(tool: type[Tool]) -> Reply:
    """A reply of a tool, with a value in every field."""
    return msgspec.convert(_value(inspect.type_info(tool.reply)), tool.reply)


def _value(kind: inspect.Type) -> Any:
    match kind:
        case inspect.StrType():
            return next(word for word in _WORDS if re.search(kind.pattern or "", word))
        case inspect.IntType():
            return kind.ge or 1
        case inspect.FloatType():
            return 1.5
        case inspect.BoolType():
            return True
        case inspect.LiteralType():
            return sorted(kind.values, key=str)[0]
        case inspect.ListType():
            return [_value(kind.item_type)]
        case inspect.DictType():
            return {"sample": _value(kind.value_type)}
        case inspect.UnionType():
            return _value(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.StructType():
            return {field.encode_name: _value(field.type) for field in kind.fields}
        case _:
            return 1


def http_client(path: Path) -> httpx.AsyncClient:
    """For `/api` on a unix socket."""
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    return httpx.AsyncClient(transport=transport, base_url="http://tools", timeout=_WAIT)


@asynccontextmanager
async def mcp_client(path: Path) -> AsyncIterator[mcp.Client]:
    """For `/mcp` on a unix socket. Enter and leave it in one task."""
    async with (
        httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(path)), timeout=_WAIT) as http,
        mcp.Client(streamable_http_client("http://tools/mcp", http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def tcp_door(path: Path) -> AsyncIterator[str]:
    """A unix socket on a TCP port as well, for programs that know no other; gives its URL."""

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        target.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def opencode(binary: Path, folder: Path, config: dict[str, Any]) -> AsyncIterator[httpx.AsyncClient]:
    """OpenCode without the runner, with our skills."""
    (folder / "config").mkdir()
    (folder / "work").mkdir(exist_ok=True)
    (folder / "config" / "opencode.json").write_text(json.dumps(config))
    skills.install(folder / "config")
    environ = {
        "PATH": search_path(),
        "HOME": str(folder),
        "OPENCODE_CONFIG": str(folder / "config" / "opencode.json"),
        "OPENCODE_CONFIG_DIR": str(folder / "config"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "OPENCODE_DISABLE_EMBEDDED_WEB_UI": "1",
        "npm_config_registry": "http://127.0.0.1:1",
        "npm_config_fetch_retries": "0",
    }
    process = await asyncio.create_subprocess_exec(
        binary, "serve", "--port", "0", cwd=folder / "work", env=environ, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    try:
        async with asyncio.timeout(_WAIT):
            url = None
            while url is None:
                line = (await process.stdout.readline()).decode()
                assert line, "OpenCode has ended"
                url = re.search(r"listening on (http://\S+)", line)
        async with httpx.AsyncClient(base_url=url[1], timeout=_WAIT) as http:
            yield http
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Services:
    """Stands for the services of the platform: answers what it was told to for one session, and remembers what came."""

    def __init__(self, nc: Client, session_id: str) -> None:
        self._nc = nc
        self._session_id = session_id
        self.asked: list[Tool] = []
        self.refusal: Refused | None = None
        """What the next request is refused with."""

    async def serve(self, *tools: type[Tool]) -> None:
        """Answer these."""
        for tool in tools:
            await rpc.serve(
                self._nc, subjects.sandbox_request(self._session_id, tool.name), tool, self._answer, queue="stand-in"
            )

    async def serve_all(self) -> None:
        """Answer all that are not answered in a sandbox."""
        await self.serve(*(tool for tool in TOOLS if tool.served_by == "platform"))

    async def _answer(self, request: Tool) -> Reply:
        self.asked.append(request)
        refusal, self.refusal = self.refusal, None
        if refusal:
            raise refusal
        return reply(type(request))


class ControlSocket:
    """Stands for a gateway's control socket, as far as tunnels go."""

    def __init__(self, path: str, *, refused_ports: tuple[int, ...] = ()) -> None:
        self._path = path
        self._refused = refused_ports
        self.tunnels: dict[str, dict[str, Any]] = {}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Until the end of the block."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/tunnels", self._list),
                web.put("/tunnels/{name}", self._put),
                web.delete("/tunnels/{name}", self._delete),
            ]
        )
        runner = web.AppRunner(app)
        await runner.setup()
        await web.UnixSite(runner, self._path).start()
        try:
            yield
        finally:
            await runner.cleanup()

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"tunnels": list(self.tunnels.values())})

    async def _put(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        if wanted["port"] in self._refused:
            problem = Unprocessable("port_refused", "This port is the gateway's own.").problem()
            return web.Response(body=msgspec.json.encode(problem), status=problem.status)
        self.tunnels[request.match_info["name"]] = {"name": request.match_info["name"], **wanted}
        return await self._list(request)

    async def _delete(self, request: web.Request) -> web.Response:
        gone = self.tunnels.pop(request.match_info["name"], None)
        if gone is None:
            problem = {"title": "Not found", "status": 404, "code": "tunnel_not_found"}
            return web.json_response(problem, status=404)
        return web.Response(status=200)
