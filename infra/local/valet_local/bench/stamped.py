"""Deltas that carry the moment they were made. Used by the writers of (a)'s floor and of (e)."""

import time

from valet_protocol import codec
from valet_protocol.codec import Outgoing
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Event
from valet_protocol.ids import new_id


class Deltas:
    """Deltas of one part of one message, each of one stamp, as a runner writes them."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._message = f"msg_{new_id()}"
        self._part = f"prt_{new_id()}"
        self._offset = 0
        self._turn = new_id()

    def next(self) -> Outgoing:
        """The next one, of this moment."""
        text = f"@{time.monotonic_ns()} "
        data = Delta(message_id=self._message, part_id=self._part, offset=self._offset, text=text)
        self._offset += len(text)
        event = Event(
            id=new_id(),
            type="delta.text",
            session_id=self.session_id,
            time_ms=time.time_ns() // 1_000_000,
            turn=self._turn,
            epoch=1,
            data=data,
        )
        return codec.encode(event, source=f"/sandboxes/{self.session_id}")


def frame(seq: int, out: Outgoing) -> bytes:
    """The server-sent event that a client gets of it."""
    return b"id: %d\nevent: delta.text\ndata: %s\n\n" % (seq, out.payload)
