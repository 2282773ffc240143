"""The disk the platform writes to: whether there is room, and for what."""

import shutil
from pathlib import Path
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from valet_protocol.errors import Unavailable
from valet_service import broker_health

from valet_api import limits

_OWN = ("", "nats", "postgres")
"""Where the platform itself writes, below the data directory; each may be a disk of its own."""


class Disk:
    """`health` is the URL of the broker's health page, None where it has none that can be reached."""

    def __init__(self, data_dir: Path, health: str | None) -> None:
        self._data_dir = data_dir
        self._health = health

    def full(self) -> str | None:
        """Why nothing can be stored, in words, or None."""
        free, place = self._least(_OWN)
        if free >= limits.DISK_FULL_BYTES:
            return None
        return (
            f"The platform's disk is full ({free >> 20} MB are free at {place}). Whoever runs the platform must free "
            "some space there; everything then goes on by itself."
        )

    async def broken(self) -> str | None:
        """Why the platform cannot work, in words, or None; asks the broker, too."""
        said = None if self._health is None else await broker_health.complaint(self._health, limits.READY_WAIT)
        if (full := self.full()) is not None:
            return full
        if broker_health.cannot_write(said):
            return f"The broker cannot write the log and is started again: {said}."
        return None

    def require_room(self) -> None:
        """For what can wait. Raises `Unavailable` when the rest of the disk is for what runs already."""
        free, place = self._least((*_OWN, "sandboxes"))
        if free < limits.DISK_RESERVE_BYTES:
            least = limits.DISK_RESERVE_BYTES >> 20
            raise Unavailable(
                "disk_nearly_full",
                f"Only {free >> 20} MB are free at {place}, and the last {least} MB are kept for sessions that run. "
                "End sessions that nobody needs, their workspaces go with them; or ask whoever runs the platform for "
                "room.",
            )

    def _least(self, below: tuple[str, ...]) -> tuple[int, Path]:
        places = [path for name in below if (path := self._data_dir / name).exists()]
        return min(((shutil.disk_usage(path).free, path) for path in places), key=lambda found: found[0])


def needs_room(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard: what is refused first when the disk fills up."""
    disk: Disk = connection.app.state.disk
    disk.require_room()
