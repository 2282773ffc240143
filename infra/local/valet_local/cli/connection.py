"""Which platform a command speaks to: the one that is named, the one that runs, or one of its own."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import typer

from valet_local import launch, provision
from valet_local.assembly import Options
from valet_local.cli import limits, progress
from valet_local.cli.terminal import Terminal
from valet_local.client import endpoint
from valet_local.client.endpoint import Endpoint
from valet_local.layout import Layout, layout, prepare


@contextmanager
def running_or_own(
    data_dir: Path, url: str | None, token: str | None, terminal: Terminal, *, options: Options
) -> Iterator[Endpoint]:
    """The platform to use; if none runs on the data directory, one is started and stopped again at the end.

    Raises `LocalError`s.
    """
    found = endpoint.named(url, token, os.environ) or endpoint.of_platform(data_dir)
    if found is not None:
        yield found
        return
    terminal.tell(f"No platform runs on {data_dir}; starting one for this session")
    with own(options, terminal) as platform:
        yield Endpoint(url=platform.state.url, token=platform.state.token)
        terminal.tell("Stopping the platform; the session is kept")


@contextmanager
def own(options: Options, terminal: Terminal) -> Iterator[launch.Platform]:
    """A platform for the duration, with what is fetched and started shown. Raises `LocalError`s."""
    places = layout(options.data_dir)
    prepare(places)
    try:
        with progress.shown() as report:
            provision.ensure_tools(places, progress=report)
        with _starts_told(places, terminal):
            # From this very thread: the kernel ends the platform when the thread that started it ends.
            platform = launch.start(options)
        with platform:
            yield platform
    except KeyboardInterrupt:  # while nothing of a session runs yet, or any more
        terminal.tell("Interrupted.")
        raise typer.Exit(130) from None


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a line of `supervisor.log` that is shown."""

    process: str
    event: str
    detail: str = ""


@contextmanager
def _starts_told(places: Layout, terminal: Terminal) -> Iterator[None]:
    """Tell what the supervisor writes into its journal meanwhile."""
    path = places.logs / "supervisor.log"
    position = path.stat().st_size if path.exists() else 0
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(path, position, over, terminal), daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _tell(path: Path, position: int, over: threading.Event, terminal: Terminal) -> None:
    rest = b""
    while True:
        last = over.wait(limits.JOURNAL_LOOK)
        if path.exists():
            with path.open("rb") as file:
                file.seek(position)
                read = file.read()
            position += len(read)
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                _tell_line(line, terminal)
        if last:
            return


def _tell_line(line: bytes, terminal: Terminal) -> None:
    try:
        note = msgspec.json.decode(line, type=_Note)
    except msgspec.DecodeError:
        return  # a line of another version of the journal: it is news, not more
    if note.event in ("ready", "died", "killed"):
        detail = f"  {note.detail}" if note.detail else ""
        terminal.tell(f"  {note.process} {note.event}{detail}")
