"""OpenCode's stream of events: bytes in, frames out.

Read with asyncio's own streams: the frames are what a person waits for, and a general HTTP client costs more per
chunk than everything else here.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator
from urllib.parse import quote, urlsplit

import msgspec
from valet_service import logs

from valet_runner import frames, limits
from valet_runner.errors import OpencodeRefused, OpencodeUnavailable
from valet_runner.opencode_client import USER, OpencodeClient

_log = logs.get(__name__)


class ChunkedBody:
    """Undoes HTTP's chunked transfer encoding, whatever pieces the bytes come in."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """The body's bytes that are complete with this piece."""
        self._buffer += data
        out = bytearray()
        while self._buffer:
            if self._left > 2:  # the chunk's data, then CR LF
                take = min(self._left - 2, len(self._buffer))
                out += self._buffer[:take]
                del self._buffer[:take]
                self._left -= take
            elif self._left:
                take = min(self._left, len(self._buffer))
                del self._buffer[:take]
                self._left -= take
            else:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    break
                size = int(self._buffer[:end].split(b";")[0], 16)
                del self._buffer[: end + 2]
                self._left = size + 2
        return bytes(out)


class DataLines:
    """Server-sent events to the `data:` of each. OpenCode sends nothing but data, one line an event, of any length."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The events that are complete with this piece."""
        self._rest += data
        if b"\n" not in data:
            return []
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        return [bytes(line[5:]).strip() for line in lines if line.startswith(b"data:")]


async def read(client: OpencodeClient) -> AsyncGenerator[frames.Shape, None]:
    """Frames from now on, the first one `Connected`. Ends when the stream does.

    Raises `OpencodeUnavailable` when it cannot be opened or has gone silent, `OpencodeRefused` for another answer.
    """
    try:
        async with asyncio.timeout(limits.REQUEST_TIMEOUT):
            reader, writer, chunked = await _open(client)
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise OpencodeUnavailable(f"event stream: {str(error) or type(error).__name__}") from error
    body, lines = ChunkedBody(), DataLines()
    try:
        while True:
            data = await asyncio.wait_for(reader.read(limits.STREAM_READ_BYTES), limits.STREAM_SILENCE)
            if not data:
                return
            for line in lines.feed(body.feed(data) if chunked else data):
                frame = _decode(line)
                if isinstance(frame, frames.Disposed):
                    return  # the connection stays, and is silent (measured)
                if frame is not None:
                    yield frame
    except (OSError, TimeoutError, ValueError) as error:
        raise OpencodeUnavailable(f"event stream: {str(error) or type(error).__name__}") from error
    finally:
        writer.close()


async def _open(client: OpencodeClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bool]:
    address = urlsplit(client.url)
    assert address.hostname
    assert address.port
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        secret = base64.b64encode(f"{USER}:{client.password}".encode()).decode()
        writer.write(
            f"GET /event?directory={quote(client.directory, safe='')} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Basic {secret}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head.split(" ", 2)[1])
        if status != 200 or "text/event-stream" not in head:
            raise OpencodeRefused(status, "no event stream")
    except BaseException:
        writer.close()
        raise
    return reader, writer, "transfer-encoding: chunked" in head


def _decode(line: bytes) -> frames.Shape | None:
    try:
        return frames.decode(line)
    except msgspec.MsgspecError as error:
        # a shape of a version we do not know: what it says is found again when the turn is compared at its end
        _log.warning("frame_not_understood", error=str(error), frame=line[:200].decode(errors="replace"))
        return None
