"""Wiring of the process service: what serves what, how it starts and ends."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web
from valet_protocol.sandbox_spec import ProcessesSpec
from valet_service import logs

from valet_processes import config, limits, self_guard
from valet_processes.connect import ConnectRoutes
from valet_processes.connections import Connections
from valet_processes.errors import BadSpec
from valet_processes.events_stream import EventRoutes
from valet_processes.http_api import ProcessRoutes
from valet_processes.manager import Manager
from valet_processes.once import Once
from valet_processes.opencode_pty import PtyRoutes
from valet_processes.replies import refusals, reply

_log = logs.get(__name__)


def main() -> None:
    """Serve until SIGTERM. Exit status 0 for an orderly end, else 1."""
    logs.configure("processes")
    self_guard.guard_self()
    try:
        spec = config.load()
        asyncio.run(_main(spec))
    except (BadSpec, OSError) as error:
        _log.error("stopped", reason=str(error))
        sys.exit(1)


async def _main(spec: ProcessesSpec) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(spec, adopts=True):
        print("READY", flush=True)
        await stop.wait()
    _log.info("stopped")


@contextlib.asynccontextmanager
async def serving(spec: ProcessesSpec, *, adopts: bool, patience: float = limits.PATIENCE) -> AsyncIterator[Manager]:
    """The service on its socket; leaving it ends every process. `patience` is a client's, see `limits.PATIENCE`.

    Raises `OSError` where the socket or the folder for outputs cannot be made.
    """
    async with Manager(spec, adopts=adopts) as manager:
        connections = Connections()
        application = web.Application(middlewares=[refusals, Once().middleware], client_max_size=limits.BODY_BYTES)
        application.add_routes(
            [
                web.get("/health", _health),
                *ProcessRoutes(manager).routes(),
                *ConnectRoutes(manager, connections, patience).routes(),
                *EventRoutes(manager, connections).routes(),
                *PtyRoutes(manager, connections, spec.environment, patience).routes(),
            ]
        )
        runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=limits.SERVICE_STOP_CLIENTS,
            handler_cancellation=True,
        )
        await runner.setup()
        try:
            _unlink(spec.socket)  # of a service that was killed: the runner runs one at a time
            await web.UnixSite(runner, spec.socket).start()
            os.chmod(spec.socket, 0o600)
            yield manager
        finally:
            await manager.stop()
            await runner.cleanup()
            _unlink(spec.socket)


def _unlink(socket: str) -> None:
    Path(socket).unlink(missing_ok=True)


async def _health(request: web.Request) -> web.StreamResponse:
    return reply({"healthy": True})
