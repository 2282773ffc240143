"""Several small services in one process: `python -m valet_service.host knowledge=valet_knowledge …`.

For one machine, where most of what a small service needs is its libraries in memory. Each stays a package that runs by
itself too, and has its own credentials: `VALET_NATS_CREDS` names the directory that holds `<service>.creds`.
"""

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from valet_service import lifecycle, tasks
from valet_service.errors import BadSettings
from valet_service.settings import Settings

# not at the top: `lifecycle` sees to it that structlog brings nothing along
from structlog.contextvars import bind_contextvars  # isort: skip

Main = Callable[[Settings, asyncio.Event], Awaitable[None]]


async def together(mains: Mapping[str, Main], settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set or one of them ends, which ends them all: whoever started the process starts it again.
    Raises what one of them raised."""
    waiting = set(mains)
    running = [asyncio.create_task(_run(name, main, settings, stop, waiting)) for name, main in mains.items()]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.wait(running)
    finally:
        await tasks.end(*(task for task in running if not task.done()))
    for task in running:
        task.result()


async def _run(name: str, main: Main, settings: Settings, stop: asyncio.Event, waiting: set[str]) -> None:
    """One of them. The process is ready when none is `waiting` any more."""

    def ready() -> None:
        waiting.discard(name)
        if not waiting:
            lifecycle.notify("READY=1")

    # both hold for this task and those it makes
    lifecycle.say_ready.set(ready)
    bind_contextvars(service=name)
    await main(own_settings(settings, name), stop)


def own_settings(settings: Settings, service: str) -> Settings:
    """The settings of one service of several."""
    if settings.nats_creds is None:
        return settings
    creds = Path(settings.nats_creds)
    if not creds.is_dir():
        raise BadSettings(f"VALET_NATS_CREDS={creds}: where several services run, name the directory of their files")
    return msgspec.structs.replace(settings, nats_creds=str(creds / f"{service}.creds"))


def main(arguments: Sequence[str]) -> None:
    """Run the services named as `service=package`; each package has its `main` in its module `app`."""
    pairs = [argument.partition("=") for argument in arguments]
    if not pairs or not all(name and package for name, _, package in pairs):
        raise SystemExit("error: name the services and their packages: knowledge=valet_knowledge …")
    mains: dict[str, Main] = {name: importlib.import_module(f"{package}.app").main for name, _, package in pairs}
    lifecycle.run("+".join(mains), lambda settings, stop: together(mains, settings, stop))


if __name__ == "__main__":
    main(sys.argv[1:])
