"""Appending the facts of a transfer to its new session, in order, each once, by as many processes as there may be."""

from collections.abc import Awaitable, Callable

import nats.errors
from valet_protocol.catalogue import type_of
from valet_protocol.errors import Unavailable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_service import logs
from valet_service.errors import AppendConflict, AppendUnknown, EventTooLarge

from valet_session_ledger import limits
from valet_session_ledger.appender import Appender
from valet_session_ledger.history_archive import Archive
from valet_session_ledger.progress import Progress
from valet_session_ledger.transfer_events import stamped
from valet_session_ledger.transfer_place import READ, Place, place

_log = logs.get(__name__)


class Appends:
    """Reads how far a transfer has come, and takes it further."""

    def __init__(self, appender: Appender, archive: Archive, projected: Progress, now_ms: Callable[[], int]) -> None:
        self._appender = appender
        self._archive = archive
        self._projected = projected
        self.now_ms = now_ms

    async def place(self, session_id: str) -> Place:
        """How far it has come. Raises `Unavailable`."""
        found = Place()
        try:
            # looked at before the archive: if somebody appends in between, our next append is refused
            last = await self._appender.last(session_id, "fact")
        except (nats.errors.Error, TimeoutError) as error:
            raise _log_unavailable() from error
        if last.seq:
            await self.readable(last.seq)
            async for rows in self._archive.pages(session_id, types=READ):
                for row in rows:
                    place(found, row)
        found.fact_seq = last.seq
        return found

    async def append(self, session_id: str, at: Place, data: Data) -> None:
        """The next fact. Raises `AppendConflict` when somebody else was faster, `Unavailable`."""
        event = stamped(session_id, data, type_of(data).type, self.now_ms())
        try:
            seq = await self._appender.append(event, at.fact_seq)
        except EventTooLarge as error:
            # an event near the limit that does not fit its wrapping: the conversation is worth more than it
            _log.warning("event_not_taken_over", session=session_id, error=str(error))
            return
        except (AppendUnknown, nats.errors.Error) as error:
            raise _log_unavailable() from error
        at.fact_seq = seq
        if isinstance(data, facts.EventImported):
            at.take(data, seq)

    async def until_done(self, attempt: Callable[[], Awaitable[Place]]) -> Place:
        """Do something until nobody comes in between. Raises `Unavailable`."""
        for _ in range(limits.DECIDE_ATTEMPTS):
            try:
                return await attempt()
            except AppendConflict as conflict:
                _log.debug("transfer_conflict", conflict=str(conflict))
        raise Unavailable("session_contended", "Too much happens in this session at once; try again.")

    async def readable(self, seq: int) -> None:
        """Wait until the read models have come to a sequence. Raises `Unavailable`."""
        try:
            await self._projected.reach(seq, limits.PROJECTED_WAIT)
        except TimeoutError as error:
            raise Unavailable(
                "database_unavailable", "The database does not answer at the moment; send the request again."
            ) from error


def _log_unavailable() -> Unavailable:
    return Unavailable("log_unavailable", "The event log does not answer at the moment; try again.")
