"""Noticing the end of sandboxes: one waiting task for each, nothing polled."""

import asyncio
from collections.abc import Awaitable, Callable

from valet_service import logs

from valet_sandbox_controller.provider import SandboxProvider, SandboxRef
from valet_sandbox_controller.store import SandboxRecord

_log = logs.get(__name__)


class Watcher:
    """Watches running sandboxes and calls back when one ends without having been unwatched."""

    def __init__(
        self, provider: SandboxProvider, ended: Callable[[SandboxRecord, int | None], Awaitable[None]]
    ) -> None:
        self._provider = provider
        self._ended = ended
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._records: dict[str, SandboxRecord] = {}

    def watched(self) -> list[SandboxRecord]:
        """Every sandbox that is being watched."""
        return list(self._records.values())

    def watch(self, record: SandboxRecord) -> None:
        """Watch a running sandbox in place of the session's earlier one; the same once more changes nothing."""
        known = self._records.get(record.session_id)
        if known is not None and known.ref == record.ref:
            return
        self.unwatch(record.session_id)
        assert record.ref is not None
        self._records[record.session_id] = record
        self._tasks[record.session_id] = asyncio.create_task(self._follow(record, record.ref))

    def unwatch(self, session_id: str) -> None:
        """Its end is expected from here on."""
        self._records.pop(session_id, None)
        task = self._tasks.pop(session_id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _follow(self, record: SandboxRecord, ref: SandboxRef) -> None:
        ended = await self._provider.wait(ref)
        _log.info("sandbox_ended", session=record.session_id, epoch=record.epoch, exit_code=ended.exit_code)
        await self._ended(record, ended.exit_code)
