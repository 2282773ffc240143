"""An export being read: every line is checked before anything is made of it. Pure."""

import re
from collections.abc import Iterable, Iterator

import msgspec
from valet_protocol.codec import from_rfc3339
from valet_protocol.errors import BadEvent, Unprocessable
from valet_protocol.events.envelope import Envelope
from valet_protocol.ids import is_ulid
from valet_service.limits import MAX_EVENT_BYTES

from valet_api import limits
from valet_api.imported_context import Conversations
from valet_api.transfer_files import Receiving, unwrapped

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_FIRST = ("fact.session_requested", "fact.session_imported")

LINE_BYTES = MAX_EVENT_BYTES + 1024
"""An event as it is stored, and its sequence."""


class _Line(Envelope, frozen=True, kw_only=True):
    """A CloudEvent with the extension attribute `seq`."""

    seq: int


_line = msgspec.json.Decoder(_Line)
_data = msgspec.json.Decoder(dict[str, object])


class Content(msgspec.Struct, frozen=True):
    """A piece of the content of files; where each begins is in `Reader.files`."""

    data: bytes


class Reader:
    """Bytes in, lines out that are the events of one session, in order, and the content of its files.

    Raises `Unprocessable` (`bad_import`) naming the line that is not.
    """

    def __init__(self) -> None:
        self.source = ""
        """The session the events are of."""
        self.repo: str | None = None
        """The repository that session started from."""
        self.events = 0
        """How many there are so far."""
        self.files = Receiving()
        self.conversations = Conversations()
        self._number = 0
        self._seq = 0
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes | Content]:
        """What this piece completes: lines without their ends."""
        *lines, rest = piece.split(b"\n")
        for line in lines:
            whole = bytes(self._rest) + line
            self._rest.clear()
            yield from self._take(whole)
        self._rest += rest
        if len(self._rest) > LINE_BYTES:
            self._number += 1
            raise self._wrong(f"it is longer than an event can be ({LINE_BYTES:,} bytes)")

    def end(self) -> Iterator[bytes | Content]:
        """The last line, if it had no end. Raises `Unprocessable` where there was none at all."""
        yield from self._take(bytes(self._rest))
        if not self.events:
            raise Unprocessable(
                "bad_import", "There is no event in it. Send an export: GET /api/sessions/{id}/export gives one."
            )
        if self.files.inside:
            raise self._wrong("the file ends in the middle of an attachment")

    def _take(self, line: bytes) -> Iterator[bytes | Content]:
        self._number += 1
        line = line.strip()
        if not line:
            return
        content = self.files.take(line)
        if content is not None:
            yield from self._content(content)
            return
        event = self._decoded(line)
        if event.type.startswith("delta."):
            return  # what is streamed is whole in a later event; a session that was followed has both
        self._check(event)
        self.events += 1
        yield line

    def _content(self, found: Iterator[bytes | str]) -> Iterator[Content]:
        if not self.events:
            raise self._wrong("a file comes before the session's first event")
        for content in found:
            if isinstance(content, str):
                raise self._wrong(content)
            yield Content(content)

    def _decoded(self, line: bytes) -> _Line:
        if len(line) > LINE_BYTES:
            raise self._wrong(f"it is longer than an event can be ({LINE_BYTES:,} bytes)")
        if _NUL.search(line):
            raise self._wrong("it has a NUL character in it")
        try:
            event = _line.decode(line)
            _data.decode(event.data)  # what no struct is known for must be sound as well
            if not event.type.startswith("delta."):
                self.conversations.hear(unwrapped(event))
            from_rfc3339(event.time)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._wrong(f"it is not an event as an export has it ({error})") from error
        except RecursionError as error:
            raise self._wrong("it is nested too deeply") from error
        except BadEvent as error:
            raise self._wrong(str(error)) from error
        return event

    def _check(self, event: _Line) -> None:
        if self.files.inside:
            raise self._wrong("the file before it has no end")
        if not self.events:
            if event.type not in _FIRST:
                raise self._wrong(f"an export begins with the session's first event ({_FIRST[0]}), not {event.type!r}")
            if not is_ulid(event.subject):
                raise self._wrong(f"its `subject` {event.subject[:40]!r} is not a session's id")
            self.source = event.subject
            repo = _data.decode(event.data).get("repo")
            self.repo = repo if isinstance(repo, str) else None
        if event.specversion != "1.0":
            raise self._wrong(f"its `specversion` is {event.specversion[:20]!r}, not '1.0'")
        if event.subject != self.source:
            raise self._wrong(f"it is of session {event.subject[:40]!r}, the lines before are of {self.source}")
        if event.seq <= self._seq:
            raise self._wrong(f"its `seq` {event.seq} is not above the one before, {self._seq}")
        self._seq = event.seq

    def _wrong(self, reason: str) -> Unprocessable:
        return Unprocessable(
            "bad_import", f"In line {self._number}: {reason}. Nothing was imported; send the file as it was exported."
        )


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some events of an import."""

    offset: int
    """How many events came before."""
    lines: list[bytes]
    last: bool


def pages(lines: Iterable[bytes]) -> Iterator[Page]:
    """Lines in pages the ledger can take; an event larger than a page has one of its own."""
    offset, held, size = 0, list[bytes](), 0
    for line in lines:
        if held and (size + len(line) > limits.IMPORT_PAGE_BYTES or len(held) >= limits.IMPORT_PAGE_EVENTS):
            yield Page(offset=offset, lines=held, last=False)
            offset, held, size = offset + len(held), [], 0
        held.append(line)
        size += len(line)
    yield Page(offset=offset, lines=held, last=True)
