"""The reply to a request that must not be done twice, kept for whoever asks again with the same Idempotency-Key.

For requests whose repetition the log itself cannot recognise. In memory: after a restart of api the repetition of an
abort is answered by the session's state (`nothing_running`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from valet_protocol.requests import Done

from valet_api import limits


class Replays:
    """`clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, ...], tuple[float, asyncio.Task[Done]]] = {}

    async def once(self, key: tuple[str, ...] | None, action: Callable[[], Awaitable[Done]]) -> Done:
        """Do it, or give the reply of when it was done. A refusal is not kept: it may fit later."""
        if key is None:
            return await action()
        self._forget()
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = (self._clock(), asyncio.ensure_future(self._run(key, action)))
        return await asyncio.shield(kept[1])

    async def _run(self, key: tuple[str, ...], action: Callable[[], Awaitable[Done]]) -> Done:
        try:
            return await action()
        except BaseException:
            self._kept.pop(key, None)
            raise

    def _forget(self) -> None:
        limit = self._clock() - limits.REPLAY_FRESH
        for key, (since, _) in list(self._kept.items()):  # oldest first
            if since > limit and len(self._kept) <= limits.REPLAYS:
                break
            del self._kept[key]
