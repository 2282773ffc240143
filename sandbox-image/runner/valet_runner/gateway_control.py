"""Telling the gateway who may come in and what runs here: OpenCode's address, the services it passes people on to.

The gateway may be restarted at any time and remembers none of it, so what it is to know is kept here and said again.
OpenCode's password is part of it, and the agent is of the same user: it could put a socket of its own in the place of
the gateway's. What is said is therefore said only to the process that the runner has started.
"""

import asyncio
import socket
import struct
from collections.abc import Callable

import msgspec
from valet_protocol.requests import Writers
from valet_service import logs

from valet_runner import limits
from valet_runner.errors import ServiceUnavailable

_log = logs.get(__name__)


class _Access(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    since: dict[str, int]


class _Opencode(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    authorization: str


class _Service(msgspec.Struct, frozen=True, kw_only=True):
    target: str


class GatewayControl:
    """What the gateway is to know. `pid` gives its process, none while there is no gateway."""

    def __init__(self, path: str, *, pid: Callable[[], int | None]) -> None:
        self._path = path
        self._pid = pid
        self._wanted: dict[str, bytes | None] = {}
        self._unsaid: set[str] = set()
        self._news = asyncio.Event()

    def access(self, writers: Writers) -> None:
        """These may be in the sandbox from now on, and nobody else. (Of all there is to say it is said first.)"""
        self._want("/access", msgspec.json.encode(_Access(seq=writers.seq, since=writers.since)))

    def opencode(self, url: str, authorization: str) -> None:
        """OpenCode runs there from now on."""
        self._want("/opencode", msgspec.json.encode(_Opencode(url=url, authorization=authorization)))

    def no_opencode(self) -> None:
        """It does not run at the moment."""
        self._want("/opencode", None)

    def service(self, name: str, target: str) -> None:
        """`/<name>/` leads there from now on."""
        self._want(f"/services/{name}", msgspec.json.encode(_Service(target=target)))

    def started(self) -> None:
        """A new gateway serves, and knows nothing."""
        self._unsaid = {target for target, body in self._wanted.items() if body is not None}
        self._news.set()

    async def run(self) -> None:
        """Say what has changed, until cancelled. What cannot be said is said again, or to the next gateway."""
        while True:
            await self._news.wait()
            self._news.clear()
            for target in sorted(self._unsaid):
                pid, body = self._pid(), self._wanted[target]
                if pid is None:
                    break  # the next one is told all of it
                try:
                    await _request(self._path, pid, "DELETE" if body is None else "PUT", target, body or b"")
                except (ServiceUnavailable, OSError, TimeoutError) as error:
                    _log.warning("gateway_not_told", what=target, reason=str(error) or type(error).__name__)
                    asyncio.get_running_loop().call_later(limits.CONTROL_RETRY_WAIT, self._news.set)
                    continue
                if self._wanted[target] == body:
                    self._unsaid.discard(target)

    def _want(self, target: str, body: bytes | None) -> None:
        self._wanted[target] = body
        self._unsaid.add(target)
        self._news.set()


async def _request(path: str, pid: int, method: str, target: str, body: bytes) -> None:
    async with asyncio.timeout(limits.CONTROL_TIMEOUT):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            _check_peer(writer.get_extra_info("socket"), pid)
            writer.write(
                f"{method} {target} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            status = (await reader.readline()).split(b" ")[1:2]
        finally:
            writer.close()
    gone = method == "DELETE" and status == [b"404"]
    if not gone and (not status or not status[0].startswith(b"2")):
        raise ServiceUnavailable(f"the gateway answered {b' '.join(status).decode() or 'nothing'} to {method} {target}")


def _check_peer(connected: socket.socket, pid: int) -> None:
    if not hasattr(socket, "SO_PEERCRED"):
        return
    found, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if found != pid:
        raise ServiceUnavailable(f"process {found} listens in the place of the gateway, which is process {pid}")
