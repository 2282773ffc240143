"""The platform of a chaos run: `valet up`'s own parts, but its services reach broker and database through links.

python -m valet_local.chaos.host       setup: a line of JSON (`Setup`); it stops when its input ends
"""

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from valet_local import leftovers, lock
from valet_local.assembly import Options, assemble
from valet_local.errors import LocalError
from valet_local.files import write_atomically
from valet_local.journal import Journal
from valet_local.layout import layout, prepare
from valet_local.plan import ProcessSpec
from valet_local.supervisor import Supervisor


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and where its services find their servers."""

    data_dir: str
    config: str
    log_level: str
    nats_urls: dict[str, str]
    """Of each service."""
    database_urls: dict[str, str]


def linked(spec: ProcessSpec, setup: Setup) -> ProcessSpec:
    """A process with its own ways to the servers; servers stay as they are."""
    environment: Mapping[str, str] = spec.environment
    for name, urls in (("VALET_NATS_URL", setup.nats_urls), ("VALET_DATABASE_URL", setup.database_urls)):
        if name in environment and spec.name in urls:
            environment = {**environment, name: urls[spec.name]}
    return msgspec.structs.replace(spec, environment=environment)


async def run(setup: Setup, stop: asyncio.Event) -> None:
    """Hold it up until `stop` is set. Raises `LocalError`s."""
    places = layout(Path(setup.data_dir))
    prepare(places)
    with lock.acquire(places.lock):
        journal = Journal(places.logs / "supervisor.log", quiet=True)
        options = Options(
            data_dir=places.data, port=0, config=Path(setup.config), quiet=True, log_level=setup.log_level
        )
        assembly = await asyncio.to_thread(assemble, places, options, journal)
        supervisor = Supervisor(tuple(linked(spec, setup) for spec in assembly.specs), assembly.edges)
        try:
            began = time.monotonic()
            await _either(supervisor.start(), stop)
            if stop.is_set():
                return
            write_atomically(places.state, msgspec.json.encode(assembly.state))
            journal.note("platform", "ready", f"{(time.monotonic() - began) * 1000:.0f} ms")
            await _either(supervisor.tend(), stop)
        finally:
            places.state.unlink(missing_ok=True)
            await supervisor.stop()
            leftovers.end_sandboxes(places)
            leftovers.end_processes(places)


async def _either(work: object, stop: asyncio.Event) -> None:
    """Until the work is done or `stop` is set. Raises what the work raises."""
    working = asyncio.ensure_future(work)  # type: ignore[arg-type]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
        return
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def _main() -> None:
    setup = msgspec.json.decode(await asyncio.to_thread(sys.stdin.buffer.readline), type=Setup)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)  # nothing comes any more but the end
    await run(setup, stop)


def main() -> int:
    """The exit status."""
    try:
        asyncio.run(_main())
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
