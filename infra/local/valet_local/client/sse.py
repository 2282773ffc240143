"""Server-sent events from bytes, however they are cut into pieces. Pure."""

from collections.abc import Iterator

import msgspec

from valet_local.client import limits


class FrameTooLong(Exception):
    """More bytes than any frame has, without an end."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One frame; a comment is none."""

    id: bytes | None
    event: str
    data: bytes


class FrameReader:
    """Collects the pieces of a stream and gives its frames.

    A frame cut off by the end of the stream is dropped: it comes whole when the stream is resumed.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of the line that has no end yet."""
        self._lines: list[bytes] = []
        """Lines of the frame that has no end yet."""
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The frames that this piece completes. Raises `FrameTooLong`."""
        self._size += len(piece)
        head, *rest = piece.split(b"\n")
        self._line.append(head)
        for following in rest:
            line = b"".join(self._line).removesuffix(b"\r")
            self._line = [following]
            if line:
                self._lines.append(line)
                continue
            frame = _frame(self._lines)
            self._lines = []
            self._size = len(following)
            if frame is not None:
                yield frame
        if self._size > limits.FRAME_LONGEST_BYTES:
            raise FrameTooLong


def _frame(lines: list[bytes]) -> Frame | None:
    id = None
    event = ""
    data: list[bytes] = []
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"id":
                id = value
            case b"event":
                event = value.decode(errors="replace")
            case b"data":
                data.append(value)
            case _:
                pass  # a comment (empty name), `retry`, or a field of a later version
    return Frame(id=id, event=event, data=b"\n".join(data)) if data else None
