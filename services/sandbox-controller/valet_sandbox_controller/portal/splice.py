"""Two connections made one: bytes go through as they come, in both directions, without a copy of ours in between."""

import asyncio
from collections.abc import Callable
from typing import cast


class Held(asyncio.Protocol):
    """The far side until it is joined: keeps what comes early.

    A broker greets as soon as it is connected to; the sandbox must first get the answer to its CONNECT.
    """

    def __init__(self) -> None:
        self.early = b""
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.early += data

    def eof_received(self) -> bool:
        self.ended = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


class Relay(asyncio.Protocol):
    """One side of the pair; writes what it receives to the other side's transport.

    Raw protocols rather than streams: this is the path of every event from a sandbox to the broker, and a stream's
    buffer and wake-up cost more than the relaying.
    """

    def __init__(self, peer: asyncio.Transport, ended: Callable[[], None]) -> None:
        self._peer = peer
        self._ended = ended
        self.other: Relay | None = None
        self.at_end = False

    def data_received(self, data: bytes) -> None:
        self._peer.write(data)

    def eof_received(self) -> bool:
        self.at_end = True
        if self.other is None or self.other.at_end:
            self._peer.close()
            return False
        if self._peer.can_write_eof() and not self._peer.is_closing():
            self._peer.write_eof()
        return True  # the other direction may go on

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.close()
        self._ended()

    def pause_writing(self) -> None:
        # our own side's reader is slow: hold back who sends to it
        if not self._peer.is_closing():
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.resume_reading()


def join(
    inner: asyncio.Transport, outer: asyncio.Transport, held: Held, high_water: int, ended: Callable[[], None]
) -> None:
    """Let two open connections be one from here on. `held` is `outer`'s protocol so far; `ended` is called when either
    is closed (so once or twice)."""
    inner_side, outer_side = Relay(outer, ended), Relay(inner, ended)
    inner_side.other, outer_side.other = outer_side, inner_side
    for transport, side in ((inner, inner_side), (outer, outer_side)):
        transport.set_write_buffer_limits(high=high_water)
        transport.set_protocol(side)
    if held.early:
        inner.write(held.early)
    if held.ended:
        outer_side.eof_received()
    if outer.is_closing():
        inner.close()


def as_transport(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """The same, typed: uvloop's transports do everything of `asyncio.Transport` and are not of that class."""
    return cast(asyncio.Transport, transport)
