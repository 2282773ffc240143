"""One platform on one data directory, from the lock to the last process: what `valet up` becomes.

    python -m valet_local.platform --data-dir D --port P [--host H] [--config F] [--isolation KIND]
    [--with-parent]

It runs in a process of its own with few imports, because it lives as long as the platform does.
"""

import argparse
import asyncio
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
from valet_service.config_file import ConfigError

from valet_local import env_models, leftovers, lock
from valet_local.assembly import DEFAULT_PORT, Assembly, Options, assemble
from valet_local.disk_watch import DiskWatch
from valet_local.errors import LocalError
from valet_local.files import write_atomically
from valet_local.journal import Journal
from valet_local.layout import Layout, layout, prepare
from valet_local.supervisor import Supervisor

_PR_SET_PDEATHSIG = 1


async def run(options: Options) -> None:
    """Bring the platform up and hold it until SIGTERM or SIGINT. Raises `LocalError` and `ConfigError`."""
    places = layout(options.data_dir)
    prepare(places)
    with lock.acquire(places.lock):
        places.state.unlink(missing_ok=True)
        journal = Journal(places.logs / "supervisor.log", quiet=options.quiet)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        # In a thread, so that a stop is noticed meanwhile; it ends by itself within its time-outs.
        assembly = await asyncio.to_thread(assemble, places, options, journal)
        if stop.is_set():
            return
        supervisor = Supervisor(assembly.specs, assembly.edges)
        try:
            await _hold(supervisor, assembly, places, journal, stop)
        finally:
            places.state.unlink(missing_ok=True)
            journal.say("Stopping …")
            await supervisor.stop()
            killed = leftovers.end_sandboxes(places)
            leftovers.end_processes(places)
            journal.note("platform", "stopped", f"{killed} sandbox processes had to be killed" if killed else "")


async def _hold(
    supervisor: Supervisor, assembly: Assembly, places: Layout, journal: Journal, stop: asyncio.Event
) -> None:
    began = time.monotonic()
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(supervisor.start())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        return
    starting.result()
    write_atomically(places.state, msgspec.json.encode(assembly.state))
    journal.note("platform", "ready", f"{(time.monotonic() - began) * 1000:.0f} ms")
    journal.say(f"Valet is ready at {assembly.state.url}\nSign in with this token: {assembly.state.token}")
    listing = asyncio.create_task(
        env_models.refresh(
            places.data, assembly.config, Path(assembly.facts.programs["VALET_OPENCODE_BIN"]), os.environ, journal
        )
    )
    watch = DiskWatch(places, assembly.facts.nats_health or "", supervisor, journal)
    tasks = (asyncio.create_task(supervisor.tend()), asyncio.create_task(watch.run()))
    await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
    listing.cancel()
    await asyncio.gather(listing, return_exceptions=True)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options, with_parent = _parse(arguments)
    if with_parent and sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            return 1
    try:
        asyncio.run(run(options))
    except (LocalError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: list[str] | None) -> tuple[Options, bool]:
    parser = argparse.ArgumentParser(prog="valet up")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--isolation", choices=("bwrap", "none"))
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--services", type=lambda names: tuple(filter(None, names.split(","))))
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--with-parent", action="store_true", help="stop when the process that started this ends")
    given = vars(parser.parse_args(arguments))
    with_parent = given.pop("with_parent")
    return Options(**given), with_parent


if __name__ == "__main__":
    raise SystemExit(main())
