"""Which port each session and each tunnel had (by `Opening.key`), kept over restarts of the portal: a link that was
given out stays good."""

import os
from pathlib import Path

import msgspec
from valet_service import logs

from valet_sandbox_controller import limits

_log = logs.get(__name__)


class KnownPorts:
    """A file of ports, the most recently used last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports = _read(path)

    def known(self) -> tuple[str, ...]:
        """Everything that has a port."""
        return tuple(self._ports)

    def of(self, key: str) -> int:
        """Its port; 0 for any."""
        return self._ports.get(key, 0)

    def all(self) -> dict[str, int]:
        """Each one's port, the most recently used last."""
        return dict(self._ports)

    def keep(self, key: str, port: int) -> None:
        """This one's port is this from now on, and no other's any more. Those unused for longest are forgotten, and so
        are those of the same session's tunnels."""
        if self._ports.get(key) == port and next(reversed(self._ports)) == key:
            return
        for other in [each for each, its in self._ports.items() if each == key or its == port]:
            del self._ports[other]
        self._ports[key] = port
        tunnels = [each for each in self._ports if each.startswith(key.partition("/")[0] + "/")]
        for other in tunnels[: -limits.TUNNEL_PORTS]:
            del self._ports[other]
        while len(self._ports) > limits.KNOWN_PORTS:
            del self._ports[next(iter(self._ports))]
        self._write()

    def forget(self, key: str) -> None:
        """It has none any more."""
        if self._ports.pop(key, None) is not None:
            self._write()

    def _write(self) -> None:
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            fresh.write_bytes(msgspec.json.encode(self._ports))
            fresh.replace(self._path)
        except OSError as error:
            _log.warning("ports_not_kept", reason=error.strerror or str(error))


def _read(path: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        _log.warning("ports_unreadable", path=str(path), reason=str(error))
        return {}
