"""Sessions out of sessions: fork, export, import."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from valet_protocol.requests import SessionView

from valet_local.client import backoff, bodies, limits
from valet_local.client.errors import ExportChanged, NotReachable
from valet_local.client.transport import Interrupted, Transport, path_of, reason_of

LINES = "application/jsonl"


class Fork(SessionView, frozen=True, kw_only=True):
    """A session as it was just forked."""

    left_out: str = ""
    """What it has not taken over, and why."""


class Transfer(Transport):
    """Part of the client."""

    async def fork(self, session_id: str, *, message_id: str | None = None, title: str | None = None) -> Fork:
        """A new session with the conversation and the files as they were at a message, or as they are now."""
        body = bodies.NewFork(message_id=message_id, title=title)
        path = path_of(session_id, "fork")
        return await self.write("POST", path, Fork, body, timeout=limits.TRANSFER_TIMEOUT)

    async def import_session(self, file: Path, *, title: str | None = None) -> SessionView:
        """A session from an export."""
        query: dict[str, str | int] = {"title": title} if title is not None else {}
        return await self.upload("/api/import", SessionView, file, LINES, query=query)

    async def export(self, session_id: str, *, files: bool = False) -> AsyncIterator[bytes]:
        """Everything that happened, as JSON lines in pieces; with `files` what its messages and its agent need. A cut
        connection is made up for: what was there before comes again the same, and is passed over.

        Raises `ExportChanged` where it does not come the same.
        """
        path = path_of(session_id, "export") + ("?files=true" if files else "")
        given, of = 0, ""
        alive_at = time.monotonic()
        tries = backoff.waits(random.random())
        while True:
            position = 0
            try:
                async with self.stream(path, timeout=limits.TRANSFER_TIMEOUT) as response:
                    now = response.headers.get("Valet-Export", "")
                    if files and given and now != of:
                        raise ExportChanged(session_id)
                    of = now
                    async for piece in response.aiter_bytes():
                        position += len(piece)
                        if position > given:
                            fresh = piece[-(position - given) :]
                            given = position
                            alive_at = time.monotonic()
                            yield fresh
                return
            except (httpx.TransportError, Interrupted) as error:
                silent = time.monotonic() - alive_at
                if silent > self._patience:
                    raise NotReachable(self._endpoint.url, silent, reason_of(error)) from error
                await asyncio.sleep(next(tries))
