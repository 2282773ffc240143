"""The receiving side of systemd's sd_notify protocol: a service says READY=1 when it can serve."""

import asyncio
import socket
from pathlib import Path


class ReadySocket:
    """A datagram socket for one service, open as long as the supervisor runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ready = asyncio.Event()
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.bind(str(path))
        path.chmod(0o600)
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def forget(self) -> None:
        """A new process starts: what an older one said does not count."""
        self._receive()
        self._ready.clear()

    async def wait(self) -> None:
        """Wait for READY=1."""
        await self._ready.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _receive(self) -> None:
        while True:
            try:
                message = self._socket.recv(4096)
            except BlockingIOError:
                return
            if b"READY=1" in message.split(b"\n"):
                self._ready.set()
