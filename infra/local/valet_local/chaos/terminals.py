"""A person with a terminal in each session: its program writes numbered lines, which are written down as they came.

Written from sandbox-image/processes/README.md alone. Who is cut comes back with the offset of what it has; where the
process is gone, with its sandbox or with the process service, another one is started.
"""

import asyncio
import contextlib

import httpx
import msgspec
from valet_protocol.ids import new_id
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from valet_local.chaos import limits
from valet_local.chaos.records import TerminalConnection, TerminalRecord

_PROGRAM = f"""
import itertools, time
for number in itertools.count():
    print('%08d' % number, flush=True)
    time.sleep({limits.LINE_EVERY})
"""


class _Urls(msgspec.Struct):
    processes: str


class _Way(msgspec.Struct):
    token: str
    urls: _Urls


class _Process(msgspec.Struct):
    id: str
    status: str = "running"


class _Frame(msgspec.Struct):
    type: str
    offset: int = 0
    dropped: int = 0
    process: _Process | None = None


class Terminal:
    """One session's terminal."""

    def __init__(self, url: str, token: str, session_id: str) -> None:
        self._ask = f"{url}/api/sessions/{session_id}/sandbox-token?service=processes"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session_id = session_id
        self._key = new_id()
        """Of the request that starts the process: repeated until it has an answer."""
        self._process = ""
        self._next = 0
        """The offset of the first byte it does not have."""
        self._records: list[TerminalRecord] = []

    def records(self) -> list[TerminalRecord]:
        """Everything that came."""
        return self._records

    async def run(self) -> None:
        """Look on until cancelled."""
        async with httpx.AsyncClient(timeout=limits.TERMINAL_CONNECT, trust_env=False) as http:
            while True:
                with contextlib.suppress(
                    OSError, TimeoutError, httpx.HTTPError, WebSocketException, msgspec.MsgspecError
                ):
                    await self._look(http)
                await asyncio.sleep(limits.TERMINAL_RETRY)

    async def _look(self, http: httpx.AsyncClient) -> None:
        answer = await http.get(self._ask, headers=self._headers)
        if answer.status_code != 200:
            return  # there is no sandbox at the moment
        way = msgspec.json.decode(answer.content, type=_Way)
        let_in = {"Authorization": f"Bearer {way.token}"}
        if not self._process:
            started = await http.post(
                way.urls.processes, headers={**let_in, "Idempotency-Key": self._key}, json=_numbered_lines()
            )
            if started.status_code not in (200, 201):
                if started.status_code < 500 and started.status_code != 401:
                    self._over()  # this request will have no other answer
                return
            self._process = msgspec.json.decode(started.content, type=_Process).id
            self._records.append(TerminalRecord(session_id=self._session_id, process_id=self._process, connections=[]))
        url = f"{way.urls.processes.replace('http', 'ws', 1)}/{self._process}/connect?offset={self._next}"
        try:
            async with connect(
                url,
                additional_headers=let_in,
                open_timeout=limits.TERMINAL_CONNECT,
                close_timeout=1,
                max_size=None,
                proxy=None,
            ) as socket:
                await self._read(socket)
        except InvalidStatus as refusal:
            if refusal.response.status_code in (404, 422):
                await self._refused(http, f"{way.urls.processes}/{self._process}", let_in)

    async def _refused(self, http: httpx.AsyncClient, url: str, let_in: dict[str, str]) -> None:
        """There is no such process, or it has less output than we: right if it died with the process service, which
        remembers no output, or with its sandbox."""
        answer = await http.get(url, headers=let_in)
        if answer.status_code == 404:
            self._over()
        elif answer.status_code == 200:
            if msgspec.json.decode(answer.content, type=_Process).status == "running":
                wrong = TerminalConnection(asked=self._next, offset=self._next, dropped=0, running=True, refused=True)
                self._records[-1].connections.append(wrong)
            self._over()

    async def _read(self, socket: ClientConnection) -> None:
        seen: TerminalConnection | None = None
        while True:
            message = await asyncio.wait_for(socket.recv(), limits.TERMINAL_SILENCE)
            if isinstance(message, bytes):
                if seen is not None:
                    seen.text += message.decode(errors="replace")
                    self._next += len(message)
                continue
            frame = msgspec.json.decode(message, type=_Frame)
            if frame.type == "hello":
                running = frame.process is not None and frame.process.status == "running"
                seen = TerminalConnection(asked=self._next, offset=frame.offset, dropped=frame.dropped, running=running)
                self._records[-1].connections.append(seen)
                self._next = frame.offset
            elif frame.type == "exited" and seen is not None:
                seen.ended = frame.offset
                self._over()
                return

    def _over(self) -> None:
        """The process has ended or is gone: the next is another one."""
        self._process, self._key, self._next = "", new_id(), 0


def _numbered_lines() -> dict[str, object]:
    return {"command": "python3", "args": ["-c", _PROGRAM], "pty": {"rows": 24, "cols": 80}}
