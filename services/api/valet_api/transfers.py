"""A session's events and files out of here as lines, and in again."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import msgspec
from valet_protocol.codec import with_seq
from valet_protocol.errors import Refused, TooLarge, Unavailable
from valet_protocol.events.agent import WorkRef
from valet_protocol.events.facts import Attachment
from valet_protocol.requests import (
    ArchivedEvent,
    ArchivePage,
    Done,
    GetSession,
    ImportEvents,
    ReadArchive,
    SessionView,
    TerminateSession,
)
from valet_service import database, logs
from valet_service.object_store import ObjectStore, ObjectStoreError

from valet_api import imported_context, imports, limits, repos, transfer_files
from valet_api.attachments import clean_mime, clean_name
from valet_api.ledger import Ledger
from valet_api.store import Store
from valet_api.transfer_files import File, Received, Sending

_log = logs.get(__name__)


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """What is read and written besides the ledger."""

    objects: ObjectStore
    store: Store
    spool: Path
    """Where a long import lies until all of it is here."""


class Export:
    """The events of a session up to and including `until`, a page of the archive at a time; with `sending` the files
    they name, each behind the first event that does, and in the end the session's `work`."""

    def __init__(
        self,
        ledger: Ledger,
        session_id: str,
        until: int,
        user: str,
        *,
        sending: Sending | None = None,
        work: WorkRef | None = None,
    ) -> None:
        """For `user`: what only others may see is left out."""
        self._sending = sending
        self._work = work
        self._ledger = ledger
        self._user = user
        self._session_id = session_id
        self._after = 0
        self._until = until
        self._limit = limits.EXPORT_PAGE
        self._complete = False

    async def lines(self) -> AsyncIterator[bytes]:
        """JSON lines, some of them at once. Raises what the ledger refuses with, `Unavailable` and
        `ObjectStoreUnavailable`."""
        while not self._complete:
            page = await self._page()
            if page:
                self._after = page[-1].seq
                async for lines in self._of(page):
                    yield lines
        if self._sending and self._work:
            async for line in self._sending.work(self._work):
                yield line

    async def _of(self, page: list[ArchivedEvent]) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        for item in page:
            event = bytes(item.event)
            held.append(with_seq(event, item.seq) + b"\n")
            if self._sending and transfer_files.named_in(event):
                yield b"".join(held)
                held.clear()
                async for line in self._sending.named_in(event):
                    yield line
        yield b"".join(held)

    async def _page(self) -> list[ArchivedEvent]:
        while True:
            query = ReadArchive(
                session_id=self._session_id,
                after=self._after,
                before=self._until + 1,
                limit=self._limit,
                export_for=self._user,
            )
            try:
                page = await self._ledger.ask(query, ArchivePage)
            except TooLarge:
                if self._limit == 1:
                    raise
                self._limit = max(1, self._limit // 2)
                continue
            self._limit = min(limits.EXPORT_PAGE, self._limit * 2)
            self._complete = page.complete or not page.items
            return page.items


class Import:
    """Reads an export whole, and only then makes a session of it: what is wrong with it leaves nothing behind."""

    def __init__(self, ledger: Ledger, request: ImportEvents, stores: Stores, machine: repos.Machine) -> None:
        self._ledger = ledger
        self._machine = machine
        self._request = request
        self._objects = stores.objects
        self._store = stores.store
        self._spool = stores.spool

    async def run(self, pieces: AsyncIterator[bytes]) -> SessionView:
        """The session. Raises `Unprocessable` naming a line, `TooLarge`, `Forbidden` for a repository that is a
        directory of the machine not open to them, and what the ledger refuses with."""
        with self._spooled() as file, self._spooled() as contents:
            reader = await self._read(pieces, file, contents)
            if reader.repo is not None:
                repos.check_access(reader.repo, self._machine)
            file.seek(0)
            self._request = msgspec.structs.replace(self._request, source_session=reader.source)
            stored: list[str] = []
            try:
                work = await self._put_files(reader, contents, stored)
            except (ObjectStoreError, *database.UNAVAILABLE) as error:
                raise await self._not_stored(stored, error) from error
            return await self._send(file, work)

    def _spooled(self) -> "tempfile.SpooledTemporaryFile[bytes]":
        return tempfile.SpooledTemporaryFile(limits.IMPORT_MEMORY, prefix="import-", dir=str(self._spool))

    async def _read(self, pieces: AsyncIterator[bytes], file: IO[bytes], contents: IO[bytes]) -> imports.Reader:
        """All of it into the files, events and contents apart."""
        reader = imports.Reader()
        total = 0
        try:
            async for piece in pieces:
                total += len(piece)
                if total > limits.IMPORT_BYTES:
                    raise too_large()
                await asyncio.to_thread(_write, file, contents, reader.feed(piece))
            await asyncio.to_thread(_write, file, contents, reader.end())
        except OSError as error:
            _log.error("import_not_stored", folder=str(self._spool), error=str(error))
            raise Unavailable(
                "import_not_stored", "There is no room for the file here at the moment; nothing was imported."
            ) from error
        return reader

    async def _put_files(self, reader: imports.Reader, contents: IO[bytes], stored: list[str]) -> WorkRef | None:
        """Store what came with the events, and what the agent starts from: the work that came, else what was said.

        `stored` are names of objects as they are stored. A second time changes nothing.
        """
        session_id = self._request.session_id
        work: WorkRef | None = None
        for received in reader.files.whole:
            file, name = received.file, transfer_files.place(session_id, received.file)
            stored.append(name)
            await self._objects.put(name, _content(contents, received), limit=limits.WORK_BYTES)
            if file.kind == "attachment":
                called = clean_name(file.name)
                attachment = Attachment(
                    attachment_id=file.id,
                    name=called,
                    mime=clean_mime(file.mime, called),
                    bytes=received.bytes,
                    sha256=received.sha256,
                )
                await self._store.add_attachment(session_id, attachment, self._request.owner)
            elif file.kind == "work":
                work = WorkRef(object=name, bytes=received.bytes, sha256=received.sha256, base_commit=file.base_commit)
        texts = reader.conversations.texts()
        if work is None and texts:
            name = transfer_files.place(session_id, File(kind="work"))
            stored.append(name)
            packed = imported_context.as_work(reader.source, texts)
            put = await self._objects.put(name, _whole(packed), limit=limits.WORK_BYTES)
            work = WorkRef(object=name, bytes=put.bytes, sha256=put.sha256)
        return work

    async def _not_stored(self, stored: list[str], error: Exception) -> Unavailable:
        _log.warning("import_files_not_stored", error=str(error) or type(error).__name__)
        if self._request.idempotency_key is None:  # nobody can come back to these
            for name in stored:
                with contextlib.suppress(ObjectStoreError):
                    await self._objects.delete(name)
        return Unavailable(
            "import_not_stored", "The files cannot be stored at the moment; nothing was imported. Send it again."
        )

    async def _send(self, file: IO[bytes], work: WorkRef | None) -> SessionView:
        request = msgspec.structs.replace(self._request, work=work)
        read = imports.pages(_stored(file))
        done = 0
        try:
            while (page := await asyncio.to_thread(next, read, None)) is not None:
                asked = msgspec.structs.replace(
                    request,
                    offset=page.offset,
                    events=[msgspec.Raw(line) for line in page.lines],
                    last=page.last,
                )
                await self._ledger.ask(asked, Done, timeout=limits.IMPORT_TIMEOUT)
                done = page.offset + len(page.lines)
        except Unavailable as error:
            raise await self._interrupted(done) from error
        except Refused:
            await self._give_up()
            raise
        return await self._ledger.ask(GetSession(session_id=request.session_id, user=request.owner), SessionView)

    async def _interrupted(self, done: int) -> Unavailable:
        if self._request.idempotency_key is not None:
            return Unavailable(
                "import_interrupted",
                f"The import stopped after {done} events. Send the same request with the same Idempotency-Key again: "
                "it goes on from there. Until then the session takes no prompts.",
            )
        await self._give_up()
        return Unavailable(
            "import_interrupted",
            f"The import stopped after {done} events and was given up; send it again. With an Idempotency-Key it "
            "would go on where it stopped.",
        )

    async def _give_up(self) -> None:
        """End what there is of the session; without its last page it takes no prompts anyway."""
        request = self._request
        try:
            await self._ledger.ask(TerminateSession(session_id=request.session_id, user=request.owner), Done)
        except Refused as refusal:
            _log.info("import_not_ended", session=request.session_id, reason=refusal.detail)


def too_large() -> TooLarge:
    """An import over the limit."""
    return TooLarge("import_too_large", f"An import may have {limits.IMPORT_BYTES >> 20} MiB.")


def _write(file: IO[bytes], contents: IO[bytes], read: Iterator[bytes | imports.Content]) -> None:
    for item in read:
        if isinstance(item, imports.Content):
            contents.write(item.data)
        else:
            file.write(item + b"\n")


async def _content(contents: IO[bytes], received: Received) -> AsyncIterator[bytes]:
    await asyncio.to_thread(contents.seek, received.offset)
    left = received.bytes
    while left:
        piece = await asyncio.to_thread(contents.read, min(left, limits.PIECE_BYTES))
        left -= len(piece)
        yield piece


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _stored(file: IO[bytes]) -> Iterator[bytes]:
    for line in file:
        yield line.removesuffix(b"\n")
