"""Following the process service: what happens to processes goes into the log, and, where that was asked for, the
output of those that ended to the agent."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import aiohttp
import msgspec
from valet_protocol.events.envelope import Data
from valet_protocol.events.machine import ProcessExited, ProcessInfo
from valet_service import logs

from valet_runner import limits, process_changes, shown_processes
from valet_runner.shown_processes import Shown, ShownProcesses

_BASE = "http://processes"
_FILE = Path(".valet") / "process-events.json"
_log = logs.get(__name__)


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    known: dict[str, ProcessInfo] = {}
    last: int = 0
    """Id of the last event acted on."""


class _Frame(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    data: bytes
    id: int | None


class ProcessEvents:
    """Reads the service at a unix socket for ever. `say` puts events on their way into the log, `room` waits until it
    takes more; `session_id` is the session whose agent is shown what ended; `serves` is set while there is a service.

    What was told is kept in the home, so that a new sandbox says what became of the processes of the last one.
    """

    def __init__(
        self,
        socket: str,
        *,
        session_id: str,
        home: Path,
        shown: ShownProcesses,
        say: Callable[[Data], None],
        room: Callable[[], Awaitable[None]],
        serves: asyncio.Event,
    ) -> None:
        self._socket = socket
        self._path = home / _FILE
        self._session_id = session_id
        self._shown = shown
        self._say = say
        self._room = room
        self._serves = serves
        self._told = self._remembered()

    async def run(self) -> None:
        """Until cancelled. Whatever breaks off is taken up where it was."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=limits.CONTROL_TIMEOUT, sock_read=limits.EVENTS_SILENCE
        )
        while True:
            await self._serves.wait()
            try:
                async with aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(self._socket),
                    timeout=timeout,
                    read_bufsize=limits.EVENTS_LINE_BYTES,
                ) as http:
                    await self._follow(http)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                # ValueError: a line beyond all limits
                _log.info("process_events_reconnect", reason=str(error) or type(error).__name__)
            await asyncio.sleep(limits.EVENTS_RETRY_WAIT)

    async def _follow(self, http: aiohttp.ClientSession) -> None:
        async with http.get(f"{_BASE}/v1/events", params={"after": str(self._told.last)}) as response:
            response.raise_for_status()
            async for frame in _frames(response.content):
                known, news = self._told.known, []
                try:
                    known, news = process_changes.happened(known, frame.kind, frame.data)
                except msgspec.MsgspecError as error:  # it would be the same the next time
                    _log.error("process_event_not_understood", kind=frame.kind, error=str(error))
                await self._tell(http, news, _Told(known=dict(known), last=frame.id or self._told.last))
                await self._room()

    async def _tell(self, http: aiohttp.ClientSession, news: list[Data], told: _Told) -> None:
        for data in news:
            if isinstance(data, ProcessExited) and data.process.session_id == self._session_id:
                self._shown.add(await self._read(http, data.process))
            self._say(data)
        self._told = told
        if news:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = self._path.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(told))
            os.replace(new, self._path)

    def _remembered(self) -> _Told:
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(self._path.read_bytes(), type=_Told)
        return _Told()

    async def _read(self, http: aiohttp.ClientSession, process: ProcessInfo) -> Shown:
        """Its output, and of a long one a third from its beginning and the rest from its end."""
        head, tail, offset = b"", b"", process.output_bytes
        size = limits.SHOWN_OUTPUT_BYTES // 3
        try:
            async with asyncio.timeout(limits.SHOWN_TIMEOUT):
                if process.output_bytes > limits.SHOWN_OUTPUT_BYTES:
                    found, head = await self._output(http, process, 0, size)
                    head = head if found == 0 else b""
                start = process.output_bytes - limits.SHOWN_OUTPUT_BYTES + len(head)
                offset, tail = await self._output(http, process, max(0, start), limits.SHOWN_OUTPUT_BYTES)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            _log.warning("output_not_read", process=process.id, reason=str(error) or type(error).__name__)
        return shown_processes.told(process, tail, offset=offset, head=head)

    async def _output(
        self, http: aiohttp.ClientSession, process: ProcessInfo, offset: int, most: int
    ) -> tuple[int, bytes]:
        """At most so many bytes from the first that is kept at or after an offset, and where that is."""
        at = f"{_BASE}/v1/processes/{quote(process.id, safe='')}/output"
        async with http.get(at, params={"offset": str(offset)}) as response:
            response.raise_for_status()
            found = bytearray()
            while len(found) < most and (piece := await response.content.read(most - len(found))):
                found += piece
            return int(response.headers["Valet-Offset"]), bytes(found)


async def _frames(stream: aiohttp.StreamReader) -> AsyncIterator[_Frame]:
    """Server-sent events. Raises `ValueError` for a line that is too long."""
    fields: dict[Literal["event", "data", "id"], str] = {}
    while line := await stream.readline():
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name in ("event", "data", "id"):
            fields[name] = value.removeprefix(" ")
        elif not name and not value and "data" in fields:
            id = fields.get("id", "")
            yield _Frame(
                kind=fields.get("event", "message"),
                data=fields["data"].encode(),
                id=int(id) if id.isdecimal() else None,
            )
            fields = {}
