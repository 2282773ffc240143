"""The sandbox's way out: listeners on its loopback whose other end is the portal's unix socket.

The runner adds the portal's token to what passes, so that neither OpenCode nor the agent's commands need to hold it.
One request per connection is enough for that: the relay asks for `Connection: close`, so a second request comes by a
connection of its own.
"""

import asyncio
import http
import socket
from collections.abc import Awaitable, Callable

from valet_service import logs

from valet_runner import limits
from valet_runner.errors import RelayRefused

NATS_TARGET = "nats.valet:4222"
"""The name under which the portal knows the broker."""

_END = b"\r\n\r\n"
_REPLACED = ("authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "connection", "proxy-connection")

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_log = logs.get(__name__)


def authorised_head(head: bytes, token: str) -> bytes:
    """A request's head with the portal's token in the place of whatever credentials it had.

    `CONNECT` and requests with a full URL are for the proxy and keep the credentials meant for their target.
    Raises `ValueError` for something that is not a request.
    """
    first, *lines = head.rstrip(b"\r\n").decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    proxied = method == "CONNECT" or not target.startswith("/")
    drop = ("proxy-authorization", "connection", "proxy-connection") if proxied else _REPLACED
    kept = [line for line in lines if line.partition(":")[0].strip().lower() not in drop]
    kept.append(f"{'Proxy-Authorization' if proxied else 'Authorization'}: Bearer {token}")
    if method != "CONNECT":
        kept.append("Connection: close")
    return "\r\n".join([first, *kept]).encode("latin-1") + _END


def closing_head(head: bytes) -> bytes:
    """A response's head that says that the connection ends with it, so that a client does not try to use it again."""
    if b"\r\nconnection:" in head.lower() or head.startswith(b"HTTP/1.1 1"):
        return head
    return head.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n"


async def serve_http(portal: str, token: str) -> tuple[asyncio.Server, int]:
    """Listen for the proxy's clients and for OpenCode's model requests. Gives the server and its port."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(_END)
            far_reader, far_writer = await _portal(portal)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _log.info("relay_refused", error=str(error) or type(error).__name__)
            await answer(writer, 502, f"the portal cannot be reached: {str(error) or type(error).__name__}")
            return
        try:
            far_writer.write(authorised_head(head, token))
        except ValueError:
            far_writer.close()
            await answer(writer, 400, "not an HTTP request")
            return
        await join(reader, writer, far_reader, far_writer, mark_last=not head.startswith(b"CONNECT "))

    return await _listen(accept)


async def serve_nats(portal: str, token: str) -> tuple[asyncio.Server, int]:
    """Listen for the runner's own broker connections. Gives the server and its port."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await _connect_nats(portal, token)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, RelayRefused) as error:
            _log.debug("broker_unreachable", error=str(error) or type(error).__name__)
            writer.close()
            return
        await join(reader, writer, far_reader, far_writer)

    return await _listen(accept)


async def _connect_nats(portal: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await _portal(portal)
    try:
        async with asyncio.timeout(limits.RELAY_CONNECT_TIMEOUT):
            writer.write(
                f"CONNECT {NATS_TARGET} HTTP/1.1\r\nHost: {NATS_TARGET}\r\n"
                f"Proxy-Authorization: Bearer {token}\r\n\r\n".encode()
            )
            head = await reader.readuntil(_END)
        status = head.split(b"\r\n", 1)[0].decode("latin-1")
        if status.split(" ")[1:2] != ["200"]:
            raise RelayRefused(f"the portal answered {status!r} to CONNECT {NATS_TARGET}")
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _portal(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(limits.RELAY_CONNECT_TIMEOUT):
        return await asyncio.open_unix_connection(path, limit=limits.RELAY_HEAD_BYTES)


async def _listen(accept: Accept) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=limits.RELAY_HEAD_BYTES)
    return server, server.sockets[0].getsockname()[1]


async def join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
    *,
    mark_last: bool = False,
) -> None:
    """Pass bytes both ways until the portal has said all, or one side breaks."""
    for end in (writer, far_writer):
        end.transport.set_write_buffer_limits(limits.RELAY_BUFFER_BYTES)
    near = writer.get_extra_info("socket")
    if near is not None:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = asyncio.create_task(_pump(reader, far_writer))
    try:
        # the portal's end is the end: one request per connection, or a tunnel that is done
        if mark_last:
            writer.write(closing_head(await far_reader.readuntil(_END)))
        await _pump(far_reader, writer)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        _log.info("relay_cut", error=str(error))
    except asyncio.CancelledError:
        return  # the runner ends; asyncio 3.11 would report the connection's cancelled task as an error
    finally:
        request.cancel()
        writer.close()
        far_writer.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(limits.RELAY_HEAD_BYTES):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except (OSError, RuntimeError):  # RuntimeError is uvloop's word for a transport that is closed
        target.close()  # the other direction ends with it


async def answer(writer: asyncio.StreamWriter, status: int, detail: str) -> None:
    """Answer a request with an error and close."""
    body = detail.encode()
    reason = http.HTTPStatus(status).phrase
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    try:
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
    except OSError as error:
        _log.debug("relay_client_gone", error=str(error))
    finally:
        writer.close()
