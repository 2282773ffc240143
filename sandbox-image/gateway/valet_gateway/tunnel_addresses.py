"""A unix socket for each tunnel, on which its program's `/` is at the root: what is outside makes an origin of it.

Most development servers make links from the root of their host, which no prefix can serve. An origin of its own also
keeps a tunnel's page away from the editor and the terminal.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from valet_service import logs

from valet_gateway import limits
from valet_gateway.server import Connections

log = logs.get(__name__)

_PREFIX = "t-"
"""Of the sockets' names. The portal knows them by it."""


class _Address:
    """A tunnel's socket and who is connected to it."""

    def __init__(self, connections: Connections, server: asyncio.AbstractServer) -> None:
        self._connections = connections
        self._server = server

    async def close(self) -> None:
        """Take no more, and end what is open."""
        self._server.close()
        await self._connections.shutdown(limits.LAST_ANSWERS)


class TunnelAddresses:
    """The sockets of the tunnels there are, beside the gateway's own; none where it has none."""

    def __init__(self, folder: Path | None, serve: Callable[[str], Connections]) -> None:
        """`serve` makes the server of one tunnel, by its name."""
        self._folder = folder
        self._serve = serve
        self._open: dict[str, _Address] = {}
        self._lock = asyncio.Lock()

    async def settle(self, names: Iterable[str]) -> None:
        """These tunnels and no others are to have one. A tunnel without is still reached at `/t/<name>/`."""
        if self._folder is None:
            return
        wanted = list(names)
        async with self._lock:
            for name in [each for each in self._open if each not in wanted]:
                self._remove(name)
                await self._open.pop(name).close()
            for name in wanted:
                if name not in self._open:
                    await self._make(self._folder, name)

    async def take_over(self, names: Iterable[str]) -> None:
        """Make them after a start: what a gateway before us left is replaced, or removed if its tunnel is gone."""
        wanted = list(names)
        if self._folder is not None:
            for left in self._folder.glob(f"{_PREFIX}*"):
                if left.name.removeprefix(_PREFIX) not in wanted:
                    self._remove(left.name.removeprefix(_PREFIX))
        await self.settle(wanted)

    async def close(self) -> None:
        """End what is open. The sockets' names stay: the next gateway takes them over."""
        await asyncio.gather(*(address.close() for address in self._open.values()))

    async def _make(self, folder: Path, name: str) -> None:
        connections = self._serve(name)
        try:
            listening = _listen(folder, f"{_PREFIX}{name}")
            server = await asyncio.get_running_loop().create_unix_server(connections, sock=listening)
        except OSError as error:
            log.warning("tunnel_has_no_address", tunnel=name, reason=error.strerror or str(error))
            return
        self._open[name] = _Address(connections, server)

    def _remove(self, name: str) -> None:
        assert self._folder is not None
        with contextlib.suppress(OSError):
            (self._folder / f"{_PREFIX}{name}").unlink()


def _listen(folder: Path, name: str) -> socket.socket:
    """A socket of that name, in the place of one that is there: there is always one. Raises `OSError`."""
    fresh = f".{name}"
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=directory)
        # a unix socket's path may have 107 bytes only, and the folder's may take most of them
        short = f"/proc/self/fd/{directory}/{fresh}"
        path = short if os.path.isdir("/proc/self/fd") else str(folder / fresh)
        listening.bind(path)
        os.chmod(path, 0o666)  # as the gateway's own: the folder says who can come
        os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        listening.close()
        raise
    finally:
        os.close(directory)
    return listening
