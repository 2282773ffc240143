"""Which port each session's public side had, kept over restarts of the portal: a link that was given out stays good."""

import os
from pathlib import Path

import msgspec
from valet_service import logs

from valet_sandbox_controller import limits

_log = logs.get(__name__)


class KnownPorts:
    """A file of ports by session, the most recently used last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports = _read(path)

    def sessions(self) -> tuple[str, ...]:
        """Every session that has a port."""
        return tuple(self._ports)

    def of(self, session_id: str) -> int:
        """The session's port; 0 for any."""
        return self._ports.get(session_id, 0)

    def all(self) -> dict[str, int]:
        """The port of each session, the most recently used last."""
        return dict(self._ports)

    def keep(self, session_id: str, port: int) -> None:
        """This session's port is this one from now on, and no other session's any more. The sessions unused for
        longest are forgotten."""
        if self._ports.get(session_id) == port and next(reversed(self._ports)) == session_id:
            return
        for other in [each for each, its in self._ports.items() if each == session_id or its == port]:
            del self._ports[other]
        self._ports[session_id] = port
        while len(self._ports) > limits.KNOWN_PORTS:
            del self._ports[next(iter(self._ports))]
        self._write()

    def forget(self, session_id: str) -> None:
        """This session has none any more."""
        if self._ports.pop(session_id, None) is not None:
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
