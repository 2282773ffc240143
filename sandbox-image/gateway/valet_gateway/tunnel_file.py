"""The tunnels on disk, so that they are there after a restart of the gateway."""

import os
from pathlib import Path

import msgspec
from valet_protocol.events.machine import Tunnel
from valet_service import logs

from valet_gateway.tunnels import Tunnels

log = logs.get(__name__)


class TunnelFile:
    """`tunnels.json` in the state folder."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / "tunnels.json"

    def load(self) -> Tunnels:
        """Those kept; none if there is no file, or one that cannot be read, which is put aside."""
        try:
            return tuple(msgspec.json.decode(self._path.read_bytes(), type=list[Tunnel]))
        except FileNotFoundError:
            return ()
        except (msgspec.MsgspecError, OSError) as error:
            aside = self._path.with_suffix(".unreadable")
            log.error("tunnels_unreadable", error=str(error), kept_as=str(aside))
            os.replace(self._path, aside)
            return ()

    def save(self, tunnels: Tunnels) -> None:
        """Keep these. A crash leaves the old file or the new one. Raises `OSError`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(tunnels)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path)
