"""What a service's container starts: `python -m valet_local.container SERVICE`.

It becomes the service (same process, so that signals reach it) after three things that `valet up` does elsewhere:
keys of model providers and of the object store are hidden from services that do not call them, a wrong `valet.toml` is
refused with its line, and the service's READY=1 is turned into a file, which is what the container's health check looks
at.
"""

import os
import select
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from valet_service.config_file import ConfigError

from valet_local import config
from valet_local.plan import SERVICE_MODULES, masked

READY = Path(tempfile.gettempdir()) / "valet.ready"
"""There from the service's READY=1 until its container stops (a health check cannot see the process end; the restart
policy does).
"""

_CHANNEL = str(READY.with_suffix(".notify"))


def main(arguments: list[str], environment: Mapping[str, str] = os.environ) -> None:
    """Returns only with a `SystemExit` that says what is wrong."""
    modules = dict(SERVICE_MODULES)
    if len(arguments) != 1 or arguments[0] not in modules:
        raise SystemExit(f"error: name one service: {', '.join(modules)}")
    service = arguments[0]
    try:
        found = config.load(Path(environment["VALET_DATA_DIR"]), environment=environment)
    except ConfigError as error:
        raise SystemExit(f"error: {error}") from None
    own = masked(environment, config.key_variables(found.config), config.object_variables(found.config), service)
    note_readiness(READY, _CHANNEL)
    os.execve(sys.executable, [sys.executable, "-P", "-m", modules[service]], {**own, "NOTIFY_SOCKET": _CHANNEL})


def note_readiness(file: Path, channel: str) -> None:
    """Have a small process wait for READY=1 on the datagram socket `channel`, make `file` and end.

    It is nobody's child (the container's init takes it), so the service, which does not know of it, need not wait
    for it; and it ends with the service, ready or not.
    """
    for path in (file, Path(channel)):
        path.unlink(missing_ok=True)
    service = os.pidfd_open(os.getpid())
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(channel)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        listening.close()
        os.close(service)
        return
    if os.fork():
        os._exit(0)
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        _wait(listening, service, file)
    finally:
        os._exit(0)


def _wait(listening: socket.socket, service: int, file: Path) -> None:
    while listening in select.select([listening, service], [], [])[0]:
        if b"READY=1" in listening.recv(4096).splitlines():
            file.touch()
            return


if __name__ == "__main__":
    main(sys.argv[1:])
