"""For tests of the runner: the portal's `/objects/…` on a unix socket, with a dictionary behind it."""

import asyncio
import contextlib
from pathlib import Path
from typing import Self


class ObjectServer:
    """Speaks HTTP/1.1 as the portal does; for one token. Use with `async with`."""

    def __init__(self, path: Path, *, token: str = "secret-token") -> None:
        self.path = path
        self.token = token
        self.stored: dict[str, bytes] = {}
        """Objects by name."""
        self.failures: list[int] = []
        """Statuses the next requests are answered with, instead of being carried out."""
        self.cut_after: int | None = None
        """Break a `GET` off after this many bytes."""
        self.requests: list[str] = []
        """First lines of the requests it got."""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = lines[0].split(" ")
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            self.requests.append(lines[0])
            status, content = self._answer(method, target.removeprefix("/objects/"), fields, body)
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode())
            writer.write(content[: self.cut_after] if method == "GET" else content)
            await writer.drain()
        writer.close()

    def _answer(self, method: str, name: str, fields: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if self.failures:
            return self.failures.pop(0), b"as the test wants it"
        if fields.get("authorization") != f"Bearer {self.token}":
            return 407, b"the portal wants the sandbox's token"
        if method == "PUT":
            self.stored[name] = body
            return 201, b"{}"
        found = self.stored.get(name)
        return (404, b"no such object") if found is None else (200, found)
