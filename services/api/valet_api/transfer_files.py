"""Files in an export: lines between those of the events. Pure, but for what is read and stored.

    {"file":{"kind":"attachment","id":"…","name":"a.png","mime":"image/png"}}    behind the event that names it first
    {"piece":"…"}                            its content in base 64, as many as needed
    {"end":{"bytes":3,"sha256":"…"}}

A file that is not there has `left_out`, the reason, in its first line, and no others. At the end of the events comes
what the agent starts from elsewhere: the session's saved work, of kind `work`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import AsyncIterator, Iterator

import msgspec
from valet_protocol.codec import decode_data, decode_envelope
from valet_protocol.errors import BadEvent, NotFound
from valet_protocol.events import facts
from valet_protocol.events.agent import WorkRef
from valet_protocol.events.envelope import Data, Envelope
from valet_protocol.events.machine import ImageShown
from valet_protocol.requests import FindImage, ImagePlace
from valet_service.object_store import ObjectNotFound, ObjectStore

from valet_api import limits
from valet_api.attachments import object_name
from valet_api.ledger import Ledger

_NAMES_FILES = re.compile(rb'"(?:fact\.prompt_accepted|agent\.image_shown)"')
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_KINDS = ("attachment", "image", "work")


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a file in an export is."""

    kind: str
    """`attachment`, `image` or `work`; others are passed over."""
    id: str = ""
    """Of an attachment or an image."""
    name: str = ""
    mime: str = ""
    base_commit: str | None = None
    """What saved work applies to; none where it has no files."""
    left_out: str = ""
    """Why the content is not there."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a file ends."""

    bytes: int
    sha256: str


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    file: File | None = None
    piece: str | None = None
    end: End | None = None


_line = msgspec.json.Decoder(_Line)


def place(session_id: str, file: File) -> str:
    """Its name in the object store."""
    if file.kind == "work":
        return f"sessions/{session_id}/saved/import"
    return object_name(session_id, file.id) if file.kind == "attachment" else f"sessions/{session_id}/images/{file.id}"


# -- out of a session


def named_in(event: bytes) -> list[File]:
    """The files that an archived event names, also one that the session has taken over."""
    if not _NAMES_FILES.search(event):
        return []
    try:
        data = unwrapped(decode_envelope(event))
    except BadEvent:
        return []
    match data:
        case facts.PromptAccepted(attachments=attachments):
            found = [File(kind="attachment", id=one.attachment_id, name=one.name, mime=one.mime) for one in attachments]
        case ImageShown(image_id=image_id, media_type=mime):
            found = [File(kind="image", id=image_id, mime=mime)]
        case _:
            found = []
    return [file for file in found if _ID.fullmatch(file.id)]


def unwrapped(envelope: Envelope) -> Data:
    """What an event says, or the one inside it that was taken over from elsewhere. Raises `BadEvent`."""
    data = decode_data(envelope)
    if not isinstance(data, facts.EventImported):
        return data
    inner = msgspec.Raw(msgspec.json.encode(data.data))
    return decode_data(
        msgspec.structs.replace(envelope, type=data.type, dataversion=data.version, turn=data.turn, data=inner)
    )


class Sending:
    """Writes files as lines, each once, as far as there is room for them. Raises `ObjectStoreUnavailable`, and
    `Unavailable` while the ledger is away."""

    def __init__(self, objects: ObjectStore, ledger: Ledger, session_id: str, user: str) -> None:
        """For `user`, who may read the session."""
        self._objects = objects
        self._ledger = ledger
        self._user = user
        self._session_id = session_id
        self._sent: set[tuple[str, str]] = set()
        self._room = limits.EXPORT_FILES_BYTES

    async def named_in(self, event: bytes) -> AsyncIterator[bytes]:
        """Those that an event names."""
        for file in named_in(event):
            if (file.kind, file.id) not in self._sent:
                self._sent.add((file.kind, file.id))
                async for line in self._lines(file, place(self._session_id, file)):
                    yield line

    async def work(self, work: WorkRef) -> AsyncIterator[bytes]:
        """The session's saved work."""
        async for line in self._lines(File(kind="work", base_commit=work.base_commit), work.object):
            yield line

    async def _lines(self, file: File, name: str) -> AsyncIterator[bytes]:
        try:
            name, size = await self._found(file, name)
        except (ObjectNotFound, NotFound):
            yield _encoded(_Line(file=msgspec.structs.replace(file, left_out="It is no longer stored.")))
            return
        if size > self._room:
            words = f"Files of more than {limits.EXPORT_FILES_BYTES >> 20} MiB in all are not exported."
            yield _encoded(_Line(file=msgspec.structs.replace(file, left_out=words)))
            return
        self._room -= size
        yield _encoded(_Line(file=file))
        digest, count, held = hashlib.sha256(), 0, bytearray()
        async for chunk in self._objects.get(name):
            digest.update(chunk)
            count += len(chunk)
            held += chunk
            while len(held) >= limits.PIECE_BYTES:
                yield _piece(held[: limits.PIECE_BYTES])
                del held[: limits.PIECE_BYTES]
        if held:
            yield _piece(held)
        yield _encoded(_Line(end=End(bytes=count, sha256=digest.hexdigest())))

    async def _found(self, file: File, name: str) -> tuple[str, int]:
        """Its name and size; a fork's pictures lie with the session whose agent showed them. Raises `ObjectNotFound`
        and `NotFound`."""
        try:
            return name, (await self._objects.stat(name)).bytes
        except ObjectNotFound:
            if file.kind != "image":
                raise
        query = FindImage(session_id=self._session_id, user=self._user, image_id=file.id)
        name = place((await self._ledger.ask(query, ImagePlace)).session_id, file)
        return name, (await self._objects.stat(name)).bytes


def _piece(content: bytes | bytearray) -> bytes:
    return _encoded(_Line(piece=base64.b64encode(content).decode()))


def _encoded(line: _Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


# -- into another one


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is there whole."""

    file: File
    offset: int
    """Where it begins in the contents of all files, one behind the other."""
    bytes: int
    sha256: str


Problem = str
"""Why a line is not one, for people."""


class Receiving:
    """Reads the lines of files."""

    def __init__(self) -> None:
        self.whole: list[Received] = []
        self._file: File | None = None
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._offset = 0

    @property
    def inside(self) -> bool:
        """Whether a file has begun and not ended."""
        return self._file is not None

    def take(self, line: bytes) -> Iterator[bytes | Problem] | None:
        """The content in a line of a file, or what is wrong with it; none for a line of something else."""
        if not line.startswith((b'{"file"', b'{"piece"', b'{"end"')):
            return None
        return self._take(line)

    def _take(self, line: bytes) -> Iterator[bytes | Problem]:
        try:
            read = _line.decode(line)
        except msgspec.MsgspecError as error:
            yield f"it is not a line of a file as an export has it ({error})"
            return
        if read.file is not None:
            yield from self._begin(read.file)
        elif self._file is None:
            yield "no file has begun before it"
        elif read.piece is not None:
            try:
                content = base64.b64decode(read.piece, validate=True)
            except (binascii.Error, ValueError) as error:
                yield f"its content is not base 64 ({error})"
                return
            self._digest.update(content)
            self._bytes += len(content)
            if self._bytes > (limits.WORK_BYTES if self._file.kind == "work" else limits.ATTACHMENT_BYTES):
                yield f"the {self._file.kind} {self._file.name or self._file.id} is too large"
            elif self._file.kind in _KINDS:
                yield content
        elif read.end is not None:
            yield from self._finish(self._file, read.end)

    def _begin(self, file: File) -> Iterator[Problem]:
        if self._file is not None:
            yield f"the {self._file.kind} before it has no end"
        elif file.kind in ("attachment", "image") and not _ID.fullmatch(file.id):
            yield f"{file.id[:40]!r} cannot be the id of an {file.kind}"
        elif len(self.whole) >= limits.IMPORT_FILES:
            yield f"there are more than {limits.IMPORT_FILES} files"
        elif not file.left_out:
            self._file, self._digest, self._bytes = file, hashlib.sha256(), 0

    def _finish(self, file: File, end: End) -> Iterator[Problem]:
        if (self._bytes, self._digest.hexdigest()) != (end.bytes, end.sha256):
            yield f"the {file.kind} {file.name or file.id} is damaged: its content is not what was exported"
            return
        if file.kind in _KINDS:
            self.whole.append(Received(file=file, offset=self._offset, bytes=end.bytes, sha256=end.sha256))
            self._offset += self._bytes
        self._file = None
