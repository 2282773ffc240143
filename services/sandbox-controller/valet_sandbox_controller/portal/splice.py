"""Two connections made one: bytes go through as they come, in both directions, without a copy of ours in between."""

import asyncio


class Relay(asyncio.Protocol):
    """One side of the pair; writes what it receives to the other side's transport.

    Raw protocols rather than streams: this is the path of every event from a sandbox to the broker, and a stream's
    buffer and wake-up cost more than the relaying.
    """

    def __init__(self, peer: asyncio.Transport) -> None:
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self.other: Relay | None = None
        self.at_end = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

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

    def pause_writing(self) -> None:
        # our own side's reader is slow: hold back who sends to it
        if not self._peer.is_closing():
            self._peer.pause_reading()

    def resume_writing(self) -> None:
        if not self._peer.is_closing():
            self._peer.resume_reading()


def join(inner: asyncio.Transport, outer: asyncio.Transport, relay: Relay, high_water: int) -> None:
    """Let two open connections be one from here on. `relay` is `outer`'s protocol and writes to `inner`."""
    back = Relay(outer)
    back.connection_made(inner)
    back.other, relay.other = relay, back
    for transport in (inner, outer):
        transport.set_write_buffer_limits(high=high_water)
    inner.set_protocol(back)
