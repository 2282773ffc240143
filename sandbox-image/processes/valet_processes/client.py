"""The process service's client, for the sandbox's other parts and for tests.

async with ProcessesClient("/run/valet/processes.sock") as processes:
    info = await processes.create(command="bash", pty={"rows": 24, "cols": 80})
    async with processes.connect(info.id) as terminal:
        await terminal.write(b"exit 3\\n")
        async for output in terminal:
            print(output.data)
    print(terminal.exited)
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeVar

import aiohttp
import msgspec
from valet_protocol.errors import Problem, Refused, from_problem
from valet_protocol.events.machine import ProcessInfo

from valet_processes import limits
from valet_processes.connect import Exited, Frame, Hello
from valet_processes.events_stream import Snapshot
from valet_processes.manager import Deleted
from valet_processes.ring import Piece
from valet_processes.spawn import STDOUT

T = TypeVar("T")

_FRAME = msgspec.json.Decoder(Frame)
_BASE = "http://processes"


class ProcessEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of `/v1/events`."""

    id: int
    type: str
    """`process.created`, `process.updated`, `process.exited`, `process.deleted`, or `snapshot`."""
    data: ProcessInfo | Deleted | Snapshot


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a list."""

    items: list[ProcessInfo]


class Connection:
    """One WebSocket on a process. Iterate over its output; when that ends, `exited` says how, or is none where the
    connection was lost or too slow: connect again with `offset`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, hello: Hello) -> None:
        self.hello = hello
        self.offset = hello.offset
        """Of the next byte."""
        self.exited: Exited | None = None
        self.refused: list[Refused] = []
        """What was sent and not done."""
        self.socket = socket

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._pieces()

    async def write(self, data: bytes) -> None:
        """Input for the process."""
        await self.socket.send_bytes(data)

    async def control(self, **message: object) -> None:
        """e.g. `control(type="resize", rows=24, cols=80)`, `control(type="signal", signal="SIGINT")`."""
        await self.socket.send_str(msgspec.json.encode(message).decode())

    async def _pieces(self) -> AsyncIterator[Piece]:
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                data: bytes = message.data
                stream, data = (STDOUT, data) if self.hello.process.pty else (data[0], data[1:])
                piece = Piece(offset=self.offset, stream=stream, data=data)
                self.offset = piece.end
                yield piece
            elif message.type is aiohttp.WSMsgType.TEXT:
                frame = _FRAME.decode(message.data)
                if isinstance(frame, Exited):
                    self.exited = frame
                elif not isinstance(frame, Hello):
                    self.refused.append(from_problem(Problem(title="", status=409, **msgspec.structs.asdict(frame))))


class ProcessesClient:
    """Every method raises `valet_protocol.errors.Refused` where it is refused, `aiohttp.ClientError` and `TimeoutError`
    where the service is not there. Use with `async with`."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "ProcessesClient":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=self._socket, limit=0),
            timeout=aiohttp.ClientTimeout(total=limits.CLIENT_TIMEOUT),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """For what has no method here; the host's name does not matter."""
        assert self._session, "use it with async with"
        return self._session

    async def create(self, key: str | None = None, /, **request: Any) -> ProcessInfo:
        """Start a process; the arguments are the fields of `requests.Create`. Here and below, what is asked again with
        the same `key` is done once."""
        return await self._ask("POST", "/v1/processes", ProcessInfo, request, key=key)

    async def list(self, **wanted: str) -> list[ProcessInfo]:
        """Those that fit `requests.Filter`."""
        return (await self._ask("GET", "/v1/processes", Listing, query=wanted)).items

    async def get(self, key: str) -> ProcessInfo:
        """By id or tag."""
        return await self._ask("GET", f"/v1/processes/{key}", ProcessInfo)

    async def signal(self, id: str, signal: str, key: str | None = None) -> ProcessInfo:
        """To its group, e.g. `SIGINT`."""
        return await self._ask("POST", f"/v1/processes/{id}/signal", ProcessInfo, {"signal": signal}, key=key)

    async def resize(self, key: str, *, rows: int, cols: int) -> ProcessInfo:
        """Its terminal."""
        return await self._ask("POST", f"/v1/processes/{key}/resize", ProcessInfo, {"rows": rows, "cols": cols})

    async def input(self, id: str, key: str | None = None, /, **request: Any) -> ProcessInfo:
        """`data` or `data_base64`, `close`."""
        return await self._ask("POST", f"/v1/processes/{id}/input", ProcessInfo, request, key=key)

    async def label(self, key: str, label: str) -> ProcessInfo:
        """Show it under another name."""
        return await self._ask("PATCH", f"/v1/processes/{key}", ProcessInfo, {"label": label})

    async def delete(self, key: str) -> ProcessInfo:
        """End it and forget it."""
        return await self._ask("DELETE", f"/v1/processes/{key}", ProcessInfo)

    async def output(self, key: str, offset: int | str = 0, **query: str) -> Piece:
        """What it has written since `offset` and is still kept; `offset` of the answer says where that begins."""
        path = f"{_BASE}/v1/processes/{key}/output"
        async with self.session.get(path, params={"offset": str(offset), **query}) as response:
            data = await _checked(response)
            return Piece(offset=int(response.headers["Valet-Offset"]), stream=STDOUT, data=data)

    @contextlib.asynccontextmanager
    async def connect(self, key: str, offset: int | str = 0) -> AsyncIterator[Connection]:
        """Follow a process from an offset (`end` for what comes from now on)."""
        path = f"{_BASE}/v1/processes/{key}/connect"
        query = {"offset": str(offset)}
        try:
            socket = await self.session.ws_connect(path, params=query, max_msg_size=0)
        except aiohttp.WSServerHandshakeError:
            async with self.session.get(path, params=query) as refusal:  # the handshake's error is without its reason
                await _checked(refusal)
            raise
        async with socket:
            hello = _FRAME.decode(await socket.receive_str(timeout=limits.CLIENT_TIMEOUT))
            assert isinstance(hello, Hello)
            yield Connection(socket, hello)

    async def events(self, after: int | None = None) -> AsyncGenerator[ProcessEvent, None]:
        """What happens, from after that event on; ends when the service does. Come back with the last `id`."""
        query = {} if after is None else {"after": str(after)}
        silence = aiohttp.ClientTimeout(total=None, sock_read=2 * limits.HEARTBEAT)
        async with self.session.get(f"{_BASE}/v1/events", params=query, timeout=silence) as response:
            if response.status != 200:
                await _checked(response)
            fields: dict[str, bytes] = {}
            async for line in _lines(response):
                name, _, value = line.partition(b": ")
                if line:
                    fields[name.decode()] = value
                    continue
                if "data" in fields:
                    yield _event(fields)
                fields = {}

    async def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        request: object = None,
        *,
        query: dict[str, str] | None = None,
        key: str | None = None,
    ) -> T:
        content = None if request is None else msgspec.json.encode(request)
        headers = {} if key is None else {"Idempotency-Key": key}
        async with self.session.request(method, _BASE + path, data=content, params=query, headers=headers) as response:
            return msgspec.json.decode(await _checked(response), type=kind)


async def _checked(response: aiohttp.ClientResponse) -> bytes:
    content = await response.read()
    if response.status >= 400:
        raise from_problem(msgspec.json.decode(content, type=Problem))
    return content


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = bytearray()  # a snapshot is longer than the stream reader's longest line
    async for chunk in response.content.iter_any():
        rest += chunk
        *lines, last = rest.split(b"\n")
        rest = bytearray(last)
        for line in lines:
            yield bytes(line)


def _event(fields: dict[str, bytes]) -> ProcessEvent:
    type = fields["event"].decode()
    kind = {"snapshot": Snapshot, "process.deleted": Deleted}.get(type, ProcessInfo)
    return ProcessEvent(id=int(fields["id"]), type=type, data=msgspec.json.decode(fields["data"], type=kind))
