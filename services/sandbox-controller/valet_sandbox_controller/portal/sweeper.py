"""Deletes saved work from which nothing starts any more: no session, no fork, no new sandbox.

The ledger says which that is; here it is only carried out. Deleting twice is harmless, so that several portals may do
it at once, and one that is killed leaves the rest to the next look. What the ledger does not name stays: what it does
not know may be another installation's, in the same bucket.
"""

import asyncio
import random

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import Refused, Unavailable
from valet_protocol.requests import ListSuperfluousWork, SuperfluousWork
from valet_service import logs, rpc
from valet_service.errors import ObjectStoreUnavailable
from valet_service.object_store import ObjectStore

from valet_sandbox_controller import limits
from valet_sandbox_controller.portal import superfluous

_log = logs.get(__name__)


class Sweeper:
    """Looks now and then. `every` is the mean time between two looks in seconds."""

    def __init__(self, nc: Client, store: ObjectStore, *, every: float, chance: random.Random) -> None:
        self._nc = nc
        self._store = store
        self._every = every
        self._chance = chance
        self._left: dict[str, frozenset[str]] = {}

    async def run(self) -> None:
        """Without end. What cannot be done now, because a part of the platform is away, is done at another time."""
        while True:
            await asyncio.sleep(self._every * self._chance.uniform(*limits.SWEEP_JITTER))
            try:
                deleted = await self.look()
                swept = await self._store.sweep()
            except (ObjectStoreUnavailable, Unavailable) as error:
                _log.warning("saved_work_not_swept", reason=str(error))
                continue
            if deleted or swept:
                _log.info("saved_work_swept", objects=deleted, left_behind=swept)

    async def look(self) -> int:
        """Go through all sessions once; how many objects were deleted, of which there is a most.

        Raises `ObjectStoreUnavailable`, and `Unavailable` while the ledger or the broker is away.
        """
        saved = superfluous.saved_work(await self._store.list("sessions/"))
        self._left = {session: its for session, its in self._left.items() if session in saved}
        deleted = 0
        for session_id in superfluous.to_ask(saved, self._left):
            try:
                named = await self._ask(session_id)
            except Unavailable:
                raise
            except Refused as refusal:
                _log.info("superfluous_work_unknown", session=session_id, reason=refusal.detail)
                continue
            for name in superfluous.to_delete(session_id, named, saved[session_id]):
                if deleted >= limits.SWEEP_MOST:
                    return deleted
                await self._store.delete(name)
                deleted += 1
            self._left[session_id] = saved[session_id]
            await asyncio.sleep(limits.SWEEP_PAUSE)
        return deleted

    async def _ask(self, session_id: str) -> list[str]:
        question = ListSuperfluousWork(session_id=session_id)
        subject = subjects.ledger_command(session_id, question.method)
        return (await rpc.call(self._nc, subject, question, SuperfluousWork)).objects
