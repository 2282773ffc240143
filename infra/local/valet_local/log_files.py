"""The log files of the supervised processes, kept from growing without end."""

import os
import shutil
from pathlib import Path
from typing import BinaryIO

import msgspec

from valet_local import limits


def open_log(directory: Path, name: str) -> BinaryIO:
    """The file a process writes its output to; appended, so that cutting it short is safe while it writes."""
    descriptor = os.open(directory / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


def trim(directory: Path, cap: int = limits.LOG_CAP_BYTES) -> None:
    """Move the content of every file over `cap` bytes to `<name>.log.1`.

    The processes keep their descriptors, so the file is copied and then emptied; what is written in the
    moment between the two is lost from the log.
    """
    for path in directory.glob("*.log"):
        if path.stat().st_size > cap:
            older = path.with_name(f"{path.name}.1")
            shutil.copyfile(path, older)
            older.chmod(0o600)
            os.truncate(path, 0)


def last_words(directory: Path, name: str, lines: int = limits.LOG_TAIL_LINES) -> str:
    """Why a process ended, as far as its log says, for a person: no stack trace, of JSON lines only the
    reason.
    """
    said = [words for line in _tail(directory / f"{name}.log") if (words := _words(line))]
    distinct = dict.fromkeys(reversed(said))  # a process that is started again says the same again
    return "\n".join(reversed(list(distinct)[:lines]))


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            return file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []


class _Line(msgspec.Struct, frozen=True):
    """What matters of a line that a service wrote (structlog JSON)."""

    event: str = ""
    level: str = ""
    reason: str = ""
    error: str = ""


def _words(line: str) -> str:
    if line.startswith((" ", "\t", "Traceback ")):
        return ""
    try:
        entry = msgspec.json.decode(line.encode(), type=_Line)
    except msgspec.DecodeError:
        return line.strip()
    if entry.level not in ("warning", "error", "critical"):
        return ""
    return ": ".join(filter(None, (entry.event, entry.reason or entry.error)))
