"""What is put back into a log that has lost its end: which message at which sequence. Pure.

Sequences are the only cursor there is, so every archived event returns to its own. What stood between two archived
events was a delta, or was lost before it was archived: its place is taken by a filler, which is purged again at once,
as deltas are.
"""

from collections.abc import Iterator, Sequence

import msgspec
from valet_protocol import subjects
from valet_protocol.codec import decode_envelope, rfc3339
from valet_protocol.errors import BadEvent
from valet_protocol.events.envelope import Envelope

from valet_session_ledger import limits
from valet_session_ledger.rows import EventRow

VOID = "void"
"""In the place of a session's id on fillers: no session has it, so nobody follows it."""

FILLER_SUBJECT = f"session.0.{VOID}.delta.{VOID}.{VOID}"
"""A delta's shape, so that no reader takes a filler for an event to be folded or acted on."""

FILLERS = f"session.0.{VOID}.>"
"""A filter for all fillers."""

# a whole event: a subscriber that is quick enough to see one before it is purged can decode it like any other
_FILLER = msgspec.json.encode(
    Envelope(
        specversion="1.0",
        id="00000000000000000000000000",
        source="/session-ledger",
        type=f"delta.{VOID}",
        subject=VOID,
        time=rfc3339(0),
        dataversion=1,
        data=msgspec.Raw(b"{}"),
    )
)


class Message(msgspec.Struct, frozen=True, gc=False):
    """What is to stand at a sequence."""

    seq: int
    subject: str
    payload: bytes
    msg_id: str
    """The event's own id, so that a writer who sends the event again is told that it is there; empty on a filler."""

    @property
    def is_filler(self) -> bool:
        """Whether it only takes a place."""
        return self.subject == FILLER_SUBJECT


def subject_of(event: EventRow) -> str:
    """Where an archived event stood."""
    return f"session.{subjects.shard_of(event.session_id)}.{event.session_id}.{event.type}"


def messages(archived: Sequence[EventRow], after: int, until: int) -> Iterator[Message]:
    """What stands at every sequence above `after` and up to `until`, given the archived events between them."""
    expected = after + 1
    for event in archived:
        for seq in range(expected, event.seq):
            yield _filler(seq)
        yield Message(event.seq, subject_of(event), event.payload, _id_of(event.payload))
        expected = event.seq + 1
    for seq in range(expected, until + 1):
        yield _filler(seq)


def chunks(stream: Iterator[Message]) -> Iterator[list[Message]]:
    """Messages in portions that are sent and acknowledged together."""
    chunk: list[Message] = []
    size = 0
    for message in stream:
        if chunk and (len(chunk) >= limits.PUT_BACK_CHUNK or size + len(message.payload) > limits.PUT_BACK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += len(message.payload)
    if chunk:
        yield chunk


def lost_for_good(first_seq: int, checkpoint: int) -> tuple[int, int] | None:
    """First and last sequence of what neither log nor archive holds: what is above the checkpoint and below the log."""
    return (checkpoint + 1, first_seq - 1) if first_seq > checkpoint + 1 else None


def _filler(seq: int) -> Message:
    return Message(seq, FILLER_SUBJECT, _FILLER, "")


def _id_of(payload: bytes) -> str:
    try:
        return decode_envelope(payload).id
    except BadEvent:  # archived byte for byte, whatever it is
        return ""
