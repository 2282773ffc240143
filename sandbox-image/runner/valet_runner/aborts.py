"""The one place that has OpenCode stop what it runs.

OpenCode's abort names a conversation and no run: one that arrives late stops whatever runs then. So nothing is handed
to an OpenCode while an abort is on its way to it, and one that may still act on an abort without an answer is replaced.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from valet_service import logs

from valet_runner import limits
from valet_runner.errors import OpencodeFailed, OpencodeRefused, OpencodeUnavailable

_log = logs.get(__name__)


class Client(Protocol):
    """What is asked of OpenCode."""

    async def abort(self, session: str) -> None: ...


class Process(Protocol):
    """Gives the OpenCode that runs, and can end it."""

    async def client(self, timeout: float) -> Client: ...

    def kill(self) -> None: ...


class Aborts:
    """Aborts of one OpenCode. `clock` gives seconds."""

    def __init__(self, process: Process, clock: Callable[[], float]) -> None:
        self._process = process
        self._clock = clock
        self._under_way = 0
        self._none_under_way = asyncio.Event()
        self._none_under_way.set()
        self._unanswered: Client | None = None

    async def until_over(self, session: Callable[[], str | None], over: asyncio.Event) -> None:
        """Ask until `over` is set. `session` says right before each call which conversation is to be stopped; none
        while there is nothing to stop. An OpenCode that does not listen is killed, which ends what it runs."""
        until: float | None = None
        while not over.is_set():
            if session() is not None:
                until = until or self._clock() + limits.ABORT_GRACE
                if self._clock() > until:
                    _log.warning("abort_ignored", session=session())
                    self._process.kill()
                    until = None
                try:
                    client = await self._process.client(limits.ABORT_REPEAT)
                    if not over.is_set() and (named := session()) is not None:
                        await self._ask(client, named)
                except (OpencodeUnavailable, OpencodeRefused, OpencodeFailed) as error:
                    _log.info("abort_repeats", error=str(error))
            try:
                await asyncio.wait_for(over.wait(), limits.ABORT_REPEAT)
            except TimeoutError:
                continue

    async def none_left(self) -> None:
        """Returns when no abort can come any more; call it before anything is handed to OpenCode. Bounded by the
        time-out of one call."""
        await self._none_under_way.wait()
        stale, self._unanswered = self._unanswered, None
        if stale is None:
            return
        try:
            present = await self._process.client(limits.PROBE_WAIT)
        except (OpencodeUnavailable, OpencodeFailed):
            return  # it is gone, and the abort with it
        if present is stale:
            _log.warning("opencode_is_replaced", reason="an abort was not answered and may come late")
            self._process.kill()
            raise OpencodeUnavailable("OpenCode is replaced: it may still act on an abort")

    async def _ask(self, client: Client, session: str) -> None:
        self._under_way += 1
        self._none_under_way.clear()
        answered = False
        try:
            await client.abort(session)
            answered = True
        except OpencodeRefused:
            answered = True
            raise
        finally:
            self._unanswered = None if answered else client
            self._under_way -= 1
            if not self._under_way:
                self._none_under_way.set()
