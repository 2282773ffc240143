"""Reading what has been seen: a view never lags behind an event its reader may have received before asking."""

import nats.errors
from valet_protocol.errors import Unavailable
from valet_service import logs

from valet_session_ledger import limits
from valet_session_ledger.appender import Appender
from valet_session_ledger.progress import Progress
from valet_session_ledger.projector import Projector

_log = logs.get(__name__)


class Freshness:
    """Waits until the read models hold what is in the log at the moment of a read.

    Who follows a session and looks at its diff when the turn has ended would otherwise get the diff of a moment before.
    Where the log or PostgreSQL does not answer, the read goes on with what is there.
    """

    def __init__(self, appender: Appender, folded: Progress, projector: Projector) -> None:
        self._appender = appender
        self._folded = folded
        self._projector = projector

    async def session(self, session_id: str) -> None:
        """Everything of one session that is in the log by now."""
        try:
            last = await self._appender.last(session_id)
            await self._folded.reach(last.seq, limits.FRESH_WAIT)
        except (nats.errors.Error, TimeoutError) as error:
            _log.debug("read_may_lag", session=session_id, error=str(error) or type(error).__name__)
        await self.folded()

    async def strictly(self, session_id: str) -> int:
        """Everything of one session up to where the log ended when this was called, which it gives. Raises
        `Unavailable` where that cannot be had: then the read would say what is no longer so."""
        try:
            end = await self._appender.end()
            last = await self._appender.last(session_id)
            await self._folded.reach(last.seq, limits.FRESH_WAIT)
            await self._projector.projected.reach(self._projector.newest, limits.FRESH_WAIT)
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable("read_lags", "The read model is behind the log at the moment; try again.") from error
        return end

    async def folded(self) -> None:
        """Everything folded by now."""
        try:
            await self._projector.projected.reach(self._projector.newest, limits.FRESH_WAIT)
        except TimeoutError:
            _log.debug("read_may_lag", projected=self._projector.projected.seq, folded=self._projector.newest)
