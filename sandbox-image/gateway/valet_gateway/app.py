"""The gateway's process: its spec from standard input, its sockets, its end."""

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from aiohttp import web
from valet_protocol.sandbox_spec import GatewaySpec
from valet_service import logs

from valet_gateway import limits
from valet_gateway.control import Control
from valet_gateway.directory import Directory
from valet_gateway.errors import BadSpec, GatewayError
from valet_gateway.server import Connections, Gateway
from valet_gateway.tunnel_addresses import TunnelAddresses
from valet_gateway.tunnel_file import TunnelFile

_PR_SET_DUMPABLE = 4

log = logs.get(__name__)


def main() -> None:
    """Run until told to stop."""
    logs.configure("gateway")
    # a library's own words may quote a request, and a request may hold a token
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    guard_self()
    _allow_connections()
    try:
        spec = read_spec(sys.stdin.buffer.read())
        uvloop.run(serve(spec))
    except (GatewayError, OSError) as error:
        log.error("failed", error=str(error))
        sys.exit(1)


def guard_self() -> None:
    """Make memory and environment unreadable to other processes of this user: the agent's commands are (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _allow_connections() -> None:
    """Each connection has one to a program beside it; the usual 1024 files would be too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * limits.CONNECTIONS + limits.OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _unforeseen(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What no code of ours has caught: its kind, not its words, which may quote a request."""
    log.error("unforeseen", what=context.get("message"), error=type(context.get("exception")).__name__)


def read_spec(document: bytes) -> GatewaySpec:
    """Raises `BadSpec`."""
    try:
        spec = msgspec.json.decode(document, type=GatewaySpec)
    except msgspec.MsgspecError as error:
        raise BadSpec(f"standard input is no spec of a gateway: {error}") from None
    if len(spec.key) < 32 or not spec.tools_token:
        raise BadSpec("the spec's key (at least 32 characters) and tools_token must not be empty")
    return spec


async def serve(spec: GatewaySpec) -> None:
    """Serve until SIGTERM or SIGINT. Raises `BadTarget`, `OSError` if a port or socket cannot be had."""
    asyncio.get_running_loop().set_exception_handler(_unforeseen)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    file = TunnelFile(spec.state_dir)
    directory = Directory(spec, file.load())
    gateway = Gateway(spec, directory)
    public = web.ServerRunner(connections := Connections(gateway.handle), shutdown_timeout=limits.LAST_ANSWERS)
    addresses = TunnelAddresses(
        Path(spec.socket).parent if spec.socket else None,
        lambda name: Connections(gateway.of_tunnel(name), connections.together),
    )
    orders = Control(directory, file, gateway.visits, addresses).app()
    control = web.AppRunner(orders, access_log=None, shutdown_timeout=limits.LAST_ANSWERS)
    await control.setup()
    await public.setup()
    try:
        await _listen(control, spec.control_socket, mode=0o600)
        if spec.socket:
            # who comes there is judged by what is shown; the folder says who can come at all
            await _listen(public, spec.socket, mode=0o666)
        if spec.port is not None:
            await web.TCPSite(public, spec.host, spec.port).start()
        await addresses.take_over(tunnel.name for tunnel in directory.tunnels)
        log.info("serving", port=spec.port, socket=spec.socket, tunnels=len(directory.tunnels))
        print("READY", flush=True)
        await stop.wait()
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.STOP):
                await gateway.close()
                await asyncio.gather(public.cleanup(), addresses.close())
                await control.cleanup()


async def _listen(runner: web.BaseRunner, path: str, *, mode: int) -> None:
    """Serve on a unix socket; one that a gateway before us left is taken over."""
    _make_way(path)
    old = os.umask(0o177)
    try:
        await web.UnixSite(runner, path).start()
    finally:
        os.umask(old)
    os.chmod(path, mode)


def _make_way(path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).unlink(missing_ok=True)
