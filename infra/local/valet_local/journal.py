"""What the supervisor tells: everything to its log as JSON lines, the important to the terminal."""

import contextlib
import datetime
import sys
from pathlib import Path

import msgspec


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `D/logs/supervisor.log`."""

    timestamp: str
    process: str
    event: str
    detail: str


class Journal:
    """Writes to the log, and to the terminal unless told to be quiet."""

    def __init__(self, path: Path, *, quiet: bool) -> None:
        self._path = path
        self._quiet = quiet

    def note(self, process: str, event: str, detail: str) -> None:
        """Something happened to a process. A death is shown, the rest only logged. On a full disk it is only shown."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = msgspec.json.encode(Entry(timestamp=now, process=process, event=event, detail=detail))
        with contextlib.suppress(OSError), self._path.open("ab", buffering=0) as file:
            file.write(line + b"\n")
        if event in ("died", "killed"):
            self.say(f"{process} {event}: {detail}")

    def say(self, text: str) -> None:
        """Tell the person at the terminal."""
        if not self._quiet:
            print(text, file=sys.stderr if text.startswith("warning") else sys.stdout, flush=True)
