"""A connected client never gets output with a hole in it. The output is real; the process and the socket are not."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import pytest
from valet_processes import limits
from valet_processes.attach import TOO_SLOW, Attached
from valet_processes.output import Output
from valet_processes.ring import Piece

WAIT = 30.0


class Ended:
    """As much of a process as a connection needs: one that has ended, with output that still changes."""

    def __init__(self) -> None:
        self.output = Output()
        self.exited = asyncio.Event()
        self.exited.set()

    def join(self, reader: object) -> None: ...

    def leave(self, reader: object) -> None: ...

    def read_on(self, reader: object, size: int) -> None: ...

    def in_use(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Socket:
    """One that says nothing and remembers how it was closed."""

    def __init__(self) -> None:
        self.closed_with: int | None = None

    def __aiter__(self) -> "Socket":
        return self

    async def __anext__(self) -> Any:
        await asyncio.Event().wait()

    async def close(self, *, code: int, message: bytes, drain: bool) -> None:
        self.closed_with = code


def overwrite(output: Output) -> None:
    """More comes than is kept."""
    output.append(1, bytes(limits.RING_BYTES))


def clear(output: Output) -> None:
    """Its memory is given to other processes."""
    output.ring.clear()


@pytest.mark.parametrize("lose", [overwrite, clear])
async def test_who_has_lost_output_is_cut_at_its_offset_and_not_told_of_the_end(lose: Callable[[Output], None]):
    process, socket = Ended(), Socket()
    process.output.append(1, b"a" * limits.FRAME_BYTES + b"b" * limits.FRAME_BYTES)
    got: list[Piece] = []
    told: list[str] = []

    async def send(piece: Piece) -> None:
        got.append(piece)
        if len(got) == 1:
            lose(process.output)

    async def received(_: str | bytes) -> None:
        raise AssertionError("nothing is sent")

    def tell(word: str) -> Callable[[], Any]:
        async def told_so() -> None:
            told.append(word)

        return told_so

    client = Attached(
        cast(Any, process), cast(Any, socket), cursor=0, patience=WAIT, send=send, received=received
    )  # fmt: skip
    async with asyncio.timeout(WAIT):
        await client.run(greet=tell("hello"), replayed=tell("replayed"), ended=tell("ended"))
    assert [piece.data for piece in got] == [b"a" * limits.FRAME_BYTES]
    assert (client.cursor, socket.closed_with) == (limits.FRAME_BYTES, TOO_SLOW)
    assert told == ["hello"]
