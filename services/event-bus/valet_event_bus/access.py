"""May this user watch this session? The ledger knows; its yes is believed for a while.

A removal that passes through the hub goes before both: a yes that was given before it, or that comes from a read model
a few milliseconds behind the log, no longer counts. It may be the end of other parts too, those in the sessions below:
for a while no yes that was given before counts for that user at all.
"""

import time
from collections.abc import Callable

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import NotFound
from valet_protocol.ids import is_ulid
from valet_protocol.requests import GetSession, SessionView
from valet_service import rpc

from valet_event_bus import limits


class Access:
    """Asks the ledger as that user. `clock` is monotonic seconds."""

    def __init__(self, nc: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._nc = nc
        self._clock = clock
        self._granted: dict[tuple[str, str], float] = {}
        self._removed: dict[tuple[str, str], float] = {}
        self._doubtful: dict[str, float] = {}

    def removed(self, user: str, session_id: str) -> None:
        """The log says that this user no longer takes part."""
        now = self._clock()
        self._doubtful = {key: until for key, until in self._doubtful.items() if until > now}
        self._doubtful[user] = now + limits.REMOVAL_REMEMBERED
        self._removed = {key: until for key, until in self._removed.items() if until > now}
        self._removed[user, session_id] = now + limits.REMOVAL_REMEMBERED

    def added(self, user: str, session_id: str) -> None:
        """The log says that this user takes part."""
        self._removed.pop((user, session_id), None)

    def forget(self) -> None:
        """Somebody's part has ended, nobody knows whose: no yes given before counts."""
        self._granted.clear()

    async def check_again(self, user: str, session_id: str) -> None:
        """For a session that api asked about just before: as `check`, where somebody's part has ended since."""
        if self._is_doubtful(user):
            await self.check(user, session_id)

    def _is_doubtful(self, user: str) -> bool:
        return self._doubtful.get(user, 0.0) > self._clock()

    def refuse_removed(self, user: str, session_id: str) -> None:
        """Raises `NotFound` for somebody who was just removed."""
        if self._removed.get((user, session_id), 0.0) > self._clock():
            raise NotFound("session_not_found", f"There is no session {session_id[:40]!r}.")

    async def check(self, user: str, session_id: str) -> None:
        """Raises `NotFound` for a session that is not there or not theirs, `Unavailable` while nobody can say."""
        now = self._clock()
        self.refuse_removed(user, session_id)
        if self._granted.get((user, session_id), 0.0) > now and not self._is_doubtful(user):
            return
        if not is_ulid(session_id):
            raise NotFound("session_not_found", f"There is no session {session_id[:40]!r}.")
        request = GetSession(session_id=session_id, user=user)
        await rpc.call(self._nc, subjects.ledger_command(session_id, request.method), request, SessionView)
        self.refuse_removed(user, session_id)  # while the ledger was asked
        self._granted = {key: until for key, until in self._granted.items() if until > now}
        self._granted[user, session_id] = now + limits.ACCESS_FRESH
