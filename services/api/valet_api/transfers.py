"""A session's events out of the ledger as lines, and into it again."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import msgspec
from valet_protocol.codec import with_seq
from valet_protocol.errors import Refused, TooLarge, Unavailable
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
from valet_service import logs

from valet_api import imports, limits
from valet_api.ledger import Ledger

_log = logs.get(__name__)


class Export:
    """The events of a session up to and including `until`, a page of the archive at a time."""

    def __init__(self, ledger: Ledger, session_id: str, until: int, user: str) -> None:
        """For `user`: what only others may see is left out."""
        self._ledger = ledger
        self._user = user
        self._session_id = session_id
        self._after = 0
        self._until = until
        self._limit = limits.EXPORT_PAGE
        self._complete = False

    async def lines(self) -> AsyncIterator[bytes]:
        """JSON lines, some of them at once. Raises what the ledger refuses with, and `Unavailable`."""
        while not self._complete:
            page = await self._page()
            if page:
                self._after = page[-1].seq
                yield b"".join(with_seq(bytes(item.event), item.seq) + b"\n" for item in page)

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

    def __init__(self, ledger: Ledger, request: ImportEvents, spool: Path) -> None:
        self._ledger = ledger
        self._request = request
        self._spool = spool
        """Where a long one lies until all of it is here."""

    async def run(self, pieces: AsyncIterator[bytes]) -> SessionView:
        """The session. Raises `Unprocessable` naming a line, `TooLarge`, and what the ledger refuses with."""
        with tempfile.SpooledTemporaryFile(limits.IMPORT_MEMORY, prefix="import-", dir=str(self._spool)) as file:
            source = await self._read(pieces, file)
            file.seek(0)
            return await self._send(file, source)

    async def _read(self, pieces: AsyncIterator[bytes], file: IO[bytes]) -> str:
        """All of it into the file; the session it is of."""
        reader = imports.Reader()
        total = 0
        try:
            async for piece in pieces:
                total += len(piece)
                if total > limits.IMPORT_BYTES:
                    raise too_large()
                await asyncio.to_thread(_write, file, reader.feed(piece))
            await asyncio.to_thread(_write, file, reader.end())
        except OSError as error:
            _log.error("import_not_stored", folder=str(self._spool), error=str(error))
            raise Unavailable(
                "import_not_stored", "There is no room for the file here at the moment; nothing was imported."
            ) from error
        return reader.source

    async def _send(self, file: IO[bytes], source: str) -> SessionView:
        request = msgspec.structs.replace(self._request, source_session=source)
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


def _write(file: IO[bytes], lines: Iterator[bytes]) -> None:
    for line in lines:
        file.write(line + b"\n")


def _stored(file: IO[bytes]) -> Iterator[bytes]:
    for line in file:
        yield line.removesuffix(b"\n")
