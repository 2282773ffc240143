"""Purging the deltas of messages that are stored whole: lazily, nobody waits for it."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import msgspec
import nats.errors
from nats.aio.client import Client
from valet_protocol import subjects
from valet_service import logs

from valet_session_ledger import limits

_log = logs.get(__name__)


class Purger:
    """Removes deltas from the stream by their message."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc
        self.busy: Callable[[], bool] = lambda: False
        """Whether there is more urgent work: purging then waits."""
        self._waiting: deque[tuple[str, str]] = deque(maxlen=limits.PURGE_BACKLOG)
        self._filled = asyncio.Event()

    def add(self, completed: Iterable[tuple[str, str]]) -> None:
        """Messages, as (session, message), whose completion is stored."""
        self._waiting.extend(completed)
        if self._waiting:
            self._filled.set()

    async def run(self) -> None:
        """Purge for ever."""
        while True:
            await self._filled.wait()
            await asyncio.sleep(limits.PURGE_PAUSE)
            while self._waiting:
                if self.busy():
                    await asyncio.sleep(limits.PURGE_PAUSE)
                    continue
                some = [self._waiting.popleft() for _ in range(min(len(self._waiting), limits.PURGE_AT_ONCE))]
                done = await asyncio.gather(*(self._purge(*message) for message in some))
                failed = [message for message, purged in zip(some, done, strict=True) if not purged]
                if failed:
                    self._waiting.extend(failed)
                    await asyncio.sleep(limits.PURGE_PAUSE)
            self._filled.clear()

    async def _purge(self, session_id: str, message_id: str) -> bool:
        """Whether there is nothing left to do for this message."""
        subject = subjects.deltas_of(session_id, message_id)
        if not message_id or any(sign in message_id for sign in " .*>\r\n\t"):
            return True  # no such subject can have been published; a wildcard would purge too much
        try:
            answer = await self._nc.request(
                f"$JS.API.STREAM.PURGE.{subjects.STREAM}",
                msgspec.json.encode({"filter": subject}),
                timeout=limits.APPEND_TIMEOUT,
            )
        except (nats.errors.Error, TimeoutError) as error:
            _log.info("purge_repeated", error=str(error) or type(error).__name__)
            return False
        problem = msgspec.json.decode(answer.data, type=dict).get("error")
        if problem is not None:
            _log.warning("purge_refused", subject=subject, problem=problem)
        return True
