"""Bodies that are too large to be held: of requests, and of answers."""

from collections.abc import AsyncIterator
from typing import Any

from litestar import Request


async def body_of(request: Request[Any, Any, Any]) -> AsyncIterator[bytes]:
    """A request's body as it comes."""
    async for piece in request.stream():
        if piece:
            yield piece


async def begun(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same pieces, the first of them there already: what it raises can still be answered with a problem."""
    return (await opened(pieces))[1]


async def opened(pieces: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes]]:
    """The first piece, to be looked at, and all of them."""
    first = await anext(pieces, b"")

    async def every() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return first, every()
