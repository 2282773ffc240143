"""Who may be in the sandbox: the ledger is asked, and the gateway told.

Asked rather than folded from the session's facts: a sandbox may be newer than a removal, a revoked link takes people
along whom no fact names, and who takes part in a session above this one may come in here as well.
"""

import asyncio
from collections.abc import Callable

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import Refused
from valet_protocol.requests import ListWriters, Writers
from valet_service import logs, rpc

from valet_runner import limits

_log = logs.get(__name__)


class WritersWatch:
    """Keeps the gateway told. `tell` is called with every answer."""

    def __init__(self, nc: Client, session_id: str, tell: Callable[[Writers], None]) -> None:
        self._nc = nc
        self._session_id = session_id
        self._tell = tell
        self._changed = asyncio.Event()
        self._shared = False
        """Whether there ever was anybody but the owner: what is given out just as somebody is removed is known of at
        the next question only."""

    def changed(self) -> None:
        """Ask now."""
        self._changed.set()

    async def run(self) -> None:
        """Ask, tell, wait; until cancelled."""
        while True:
            self._changed.clear()
            wait = limits.CONTROL_RETRY_WAIT
            if writers := await self._ask():
                self._tell(writers)
                self._shared = self._shared or writers.inherits or len(writers.since) > 1
                wait = limits.WRITERS_EVERY if self._shared else limits.WRITERS_ALONE_EVERY
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _ask(self) -> Writers | None:
        """None while nobody can say."""
        question = ListWriters(session_id=self._session_id)
        subject = subjects.sandbox_request(self._session_id, question.method)
        try:
            return await rpc.call(self._nc, subject, question, Writers, timeout=limits.WRITERS_TIMEOUT)
        except Refused as error:
            _log.warning("writers_unknown", reason=str(error))
            return None
