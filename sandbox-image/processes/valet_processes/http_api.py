"""`/v1/processes`: HTTP in, the manager's answer out."""

from collections.abc import Iterator

import msgspec
from aiohttp import web
from valet_protocol.errors import Unprocessable
from valet_protocol.events.machine import ProcessInfo

from valet_processes import limits, requests
from valet_processes.manager import Manager
from valet_processes.once import ASKED, replayed
from valet_processes.output import Output
from valet_processes.process import Process
from valet_processes.replies import body, reply
from valet_processes.spawn import STDERR, STDOUT

_STREAMS = {None: (STDOUT, STDERR), "stdout": (STDOUT,), "stderr": (STDERR,)}


class ProcessRoutes:
    """Handlers; each raises `Refused`."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def routes(self) -> list[web.RouteDef]:
        """What to add to an application."""
        one = "/v1/processes/{key}"
        return [
            web.post("/v1/processes", self._create),
            web.get("/v1/processes", self._list),
            web.get(one, self._get),
            web.patch(one, self._label),
            web.delete(one, self._delete),
            web.post(one + "/signal", self._signal),
            web.post(one + "/resize", self._resize),
            web.post(one + "/input", self._input),
            web.get(one + "/output", self._output),
        ]

    async def _create(self, request: web.Request) -> web.StreamResponse:
        asked = request.get(ASKED)
        if asked and (process := self._manager.started_by(asked)):
            return replayed(reply(process.snapshot(), status=201))
        return reply(self._manager.create(requests.creation(await body(request)), asked=asked), status=201)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        wanted = requests.decode_query(dict(request.query), requests.Filter)
        return reply(_Items(items=self._manager.matching(wanted)))

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return reply(self._process(request).snapshot())

    async def _label(self, request: web.Request) -> web.StreamResponse:
        label = requests.decode(await body(request), requests.Label).label
        return reply(self._manager.relabel(self._process(request), label))

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        return reply(await self._manager.delete(self._process(request)))

    async def _signal(self, request: web.Request) -> web.StreamResponse:
        number = requests.signal_number(requests.decode(await body(request), requests.SignalBody).signal)
        process = self._process(request)
        process.send_signal(number)
        return reply(process.snapshot())

    async def _resize(self, request: web.Request) -> web.StreamResponse:
        size = requests.decode(await body(request), requests.Size)
        return reply(self._manager.resize(self._process(request), size))

    async def _input(self, request: web.Request) -> web.StreamResponse:
        wanted = requests.decode(await body(request), requests.Input)
        data = requests.input_bytes(wanted)
        process = self._process(request)
        if data:
            process.write(data)
        if wanted.close:
            process.close_input()
        return reply(process.snapshot())

    async def _output(self, request: web.Request) -> web.StreamResponse:
        process = self._process(request)
        streams = _STREAMS.get(request.query.get("stream"))
        if streams is None:
            raise Unprocessable("bad_stream", "stream is stdout or stderr; both where it is not given")
        output = process.output
        end = output.end
        asked = requests.offset_in(request.query.get("offset"), end=end)
        first = output.first_from(asked)
        headers = {
            "Valet-Offset": str(first),
            "Valet-Dropped": str(first - asked),
            "Valet-Next-Offset": str(end),
            "Content-Type": "application/octet-stream",
        }
        if first >= output.ring.start:  # all in memory, and little enough to be copied
            return web.Response(body=b"".join(_pieces(output, first, end, streams)), headers=headers)
        response = web.StreamResponse(headers=headers)
        with process.in_use():
            await response.prepare(request)
            for piece in _pieces(output, first, end, streams):
                await response.write(piece)
            await response.write_eof()
        return response

    def _process(self, request: web.Request) -> Process:
        return self._manager.find(request.match_info["key"])


class _Items(msgspec.Struct, frozen=True, kw_only=True):
    items: list[ProcessInfo]


def _pieces(output: Output, first: int, end: int, streams: tuple[int, ...]) -> Iterator[bytes]:
    """Output between two offsets; ends the connection rather than leave something out."""
    while first < end and (piece := output.read(first, min(limits.READ_BYTES, end - first))):
        if piece.offset != first:
            raise ConnectionAbortedError("output was dropped while it was being read")
        if piece.stream in streams:
            yield piece.data
        first = piece.end
