"""Purging the deltas of messages that are stored whole: lazily, nobody waits for it.

One purge for the whole log, up to where the oldest delta stands that may still be needed. A purge for each message
would be exact, but the broker looks at every consumer of the stream with each: 0.3–0.7 s with 1,100 sessions, in which
nothing else is stored (measured on 2.15.1; one up to a sequence takes 14–27 ms).
"""

import asyncio
from collections.abc import Callable

import msgspec
import nats.errors
from nats.aio.client import Client
from valet_protocol import subjects
from valet_service import database, logs

from valet_session_ledger import limits
from valet_session_ledger.store import Store

_log = logs.get(__name__)


class Purger:
    """Removes deltas from the stream."""

    def __init__(self, nc: Client, store: Store) -> None:
        self._nc = nc
        self._store = store
        self.busy: Callable[[], bool] = lambda: False
        """Whether there is more urgent work: purging then waits."""
        self._due = asyncio.Event()

    def wake(self) -> None:
        """Deltas have become superfluous."""
        self._due.set()

    async def run(self) -> None:
        """Purge for ever."""
        while True:
            await self._due.wait()
            await asyncio.sleep(limits.PURGE_PAUSE)
            if not self.busy():
                self._due.clear()
                if not await self._purge():
                    self._due.set()

    async def _purge(self) -> bool:
        """Whether there is nothing left to do for now."""
        needed = await database.persist(self._store.deltas_needed_from)
        if not needed:
            return True
        try:
            answer = await self._nc.request(
                f"$JS.API.STREAM.PURGE.{subjects.STREAM}",
                msgspec.json.encode({"filter": subjects.every_of("delta"), "seq": needed}),
                timeout=limits.APPEND_TIMEOUT,
            )
        except (nats.errors.Error, TimeoutError) as error:
            _log.info("purge_repeated", error=str(error) or type(error).__name__)
            return False
        problem = msgspec.json.decode(answer.data, type=dict).get("error")
        if problem is not None:
            _log.warning("purge_refused", before=needed, problem=problem)
        return True
