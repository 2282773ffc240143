"""Files on their way to the API."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from valet_local.client import limits
from valet_local.client.errors import FileTrouble


async def pieces(path: Path) -> AsyncIterator[bytes]:
    """A file's content. Raises `FileTrouble`."""
    try:
        with path.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, limits.PIECE_BYTES):
                yield piece
    except OSError as error:
        raise FileTrouble(path, error.strerror or str(error)) from error


def size(path: Path) -> int:
    """A file's size in bytes. Raises `FileTrouble`."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise FileTrouble(path, error.strerror or str(error)) from error
