"""The life of a service process: event loop, signals, readiness, never outliving its supervisor."""

import asyncio
import ctypes
import importlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import uvloop
from valet_protocol.errors import ProtocolError

from valet_service import lean, limits, logs
from valet_service.errors import ServiceError
from valet_service.settings import Settings, load

# here, because every service imports this module before anything that uses the broker
with lean.without("aiohttp"):
    importlib.import_module("nats.aio.transport")

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2


def notify(message: str) -> None:
    """Tell the supervisor something by systemd's `sd_notify` protocol; nothing if it does not listen."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        try:
            channel.sendto(message.encode(), "\0" + path[1:] if path.startswith("@") else path)
        except OSError as error:
            logs.get(__name__).warning("notify_failed", error=str(error))


def ready() -> None:
    """The service can do its work now."""
    say_ready.get()()


say_ready: ContextVar[Callable[[], None]] = ContextVar("say_ready", default=lambda: notify("READY=1"))
"""What `ready` does: where a process is more than one service (`host`), it is ready when all of them are."""


def die_with_parent() -> None:
    """Have the kernel end this process when its supervisor dies (Linux; elsewhere the supervisor must do it): in order,
    unless the supervisor has asked for another signal."""
    if sys.platform != "linux" or not os.environ.get("NOTIFY_SOCKET"):
        return
    prctl, chosen = ctypes.CDLL(None).prctl, ctypes.c_int(0)
    prctl(_PR_GET_PDEATHSIG, ctypes.byref(chosen))
    if not chosen.value:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def run(name: str, main: Callable[[Settings, asyncio.Event], Awaitable[None]]) -> None:
    """Run a service: `main(settings, stop)` serves until `stop` is set and then ends in order.

    SIGTERM and SIGINT set `stop`; a `main` that has not ended `limits.STOP_GRACE` later is cancelled. An error of
    ours ends the process with status 1 and its message, without a stack trace.
    """
    die_with_parent()
    logs.configure(name)  # so that bad settings are a log line too
    try:
        settings = load()
        logs.configure(name, settings.log_level)
        uvloop.run(_serve(settings, main))
    except (ServiceError, ProtocolError) as error:
        logs.get(__name__).error("stopped", reason=str(error))
        raise SystemExit(1) from None


async def _serve(settings: Settings, main: Callable[[Settings, asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    work = asyncio.ensure_future(main(settings, stop))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    _, late = await asyncio.wait((work,), timeout=limits.STOP_GRACE if stop.is_set() else None)
    if late:
        logs.get(__name__).warning("stop_took_too_long", seconds=limits.STOP_GRACE)
        work.cancel()
        await asyncio.wait((work,), timeout=limits.STOP_KILL)
        if not work.done() or work.cancelled():
            return
    await work
