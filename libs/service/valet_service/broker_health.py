"""Whether a NATS server can write, asked at its health page."""

import asyncio
from urllib.parse import urlsplit

import msgspec


class _Healthz(msgspec.Struct, frozen=True, kw_only=True):
    error: str = ""


async def complaint(url: str, timeout: float) -> str | None:
    """What the server says it cannot do: empty when all is well, None when it does not answer in `timeout` seconds.

    A write that fails, as on a full disk, makes a stream refuse everything from then on, and the page say so, until the
    server is started again, whatever room there is by then (measured with 2.15; its other streams go on).
    """
    where = urlsplit(url)
    request = f"GET {where.path} HTTP/1.0\r\nHost: {where.netloc}\r\n\r\n"
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            try:
                writer.write(request.encode())
                _, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return msgspec.json.decode(body, type=_Healthz).error
    except (OSError, TimeoutError, msgspec.MsgspecError):
        return None


def cannot_write(said: str | None) -> bool:
    """Whether a complaint is that something cannot be stored."""
    return said is not None and ("write error" in said or "no space left" in said)
