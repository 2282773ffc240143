"""Since when this process sees the log without a break.

Silence is only evidence against a runner while somebody could have heard it. With the broker away, or this process
stopped, or the whole machine asleep, a runner's words lie in its outbox and come afterwards.
"""

import asyncio
from collections.abc import Awaitable, Callable

import nats.errors
from valet_service import logs

from valet_session_ledger import limits

_log = logs.get(__name__)


class Sight:
    """Looks at the log now and then; a gap between two looks that succeeded begins a new sight. `look` asks the log
    anything; it raises while that does not answer."""

    def __init__(self, look: Callable[[], Awaitable[object]], now_ms: Callable[[], int]) -> None:
        self._look = look
        self._now_ms = now_ms
        self._since_ms = self._seen_ms = now_ms()

    def since_ms(self, now_ms: int) -> int:
        """Milliseconds since 1970; the present, as long as nothing can be seen."""
        return now_ms if now_ms - self._seen_ms > limits.SIGHT_GAP_MS else self._since_ms

    def saw(self, now_ms: int) -> None:
        """A look succeeded."""
        if now_ms - self._seen_ms > limits.SIGHT_GAP_MS:
            _log.info("log_seen_again", unseen_ms=now_ms - self._seen_ms)
            self._since_ms = now_ms
        self._seen_ms = now_ms

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self._look()
                self.saw(self._now_ms())
            except (nats.errors.Error, TimeoutError) as error:
                _log.info("log_not_seen", error=str(error) or type(error).__name__)
            await asyncio.sleep(limits.SIGHT_EVERY)
