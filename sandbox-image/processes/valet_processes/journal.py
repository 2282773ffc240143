"""Records of processes on disk, so that a service that was killed can say what became of them."""

import contextlib
import os
from pathlib import Path

import msgspec
from valet_protocol.errors import ProtocolError
from valet_service import logs

from valet_processes.registry import Kept

_log = logs.get(__name__)


class Journal:
    """One small file per process, replaced whole. A full disk costs the memory of a restart, not the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, kept: Kept) -> None:
        """Note what a process is now."""
        path = self._path(kept.info.id)
        fresh = path.with_suffix(".new")
        try:
            fresh.write_bytes(msgspec.json.encode(kept))
            os.replace(fresh, path)
        except OSError as error:
            _log.warning("record_not_written", process=kept.info.id, error=str(error))

    def remove(self, id: str) -> None:
        """Its record is gone; twice is once."""
        with contextlib.suppress(OSError):
            self._path(id).unlink(missing_ok=True)

    def read(self) -> list[Kept]:
        """Every record of earlier lives, oldest first; what cannot be read is removed."""
        found: list[Kept] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Kept))
            except (OSError, msgspec.MsgspecError, ProtocolError) as error:
                _log.warning("record_unreadable", file=path.name, error=str(error))
                path.unlink(missing_ok=True)
        return found

    def _path(self, id: str) -> Path:
        return self._folder / f"{id}.json"
