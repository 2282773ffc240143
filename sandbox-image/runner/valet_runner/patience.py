"""Waiting for a program to start: on a busy machine for longer, as long as it gets on."""

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from valet_service import logs

from valet_runner import limits

T = TypeVar("T")

_TICK = os.sysconf("SC_CLK_TCK")
_log = logs.get(__name__)


async def until_started(work: Coroutine[Any, Any, T], *, pid: int, patience: float, most: float) -> T:
    """What `work` gives. Each time `patience` seconds are over, it is waited for once more if the process has used
    processor time meanwhile: killing it would only begin all of that again. Raises `TimeoutError` when it has not, or
    after `most` seconds."""
    task = asyncio.ensure_future(work)
    waited, used = 0.0, cpu_seconds(pid)
    try:
        while True:
            left = min(patience, most - waited)
            if (await asyncio.wait([task], timeout=left))[0]:
                return task.result()
            waited += left
            now = cpu_seconds(pid)
            if now - used < limits.START_PROGRESS or waited >= most:
                raise TimeoutError
            _log.info("start_is_slow", pid=pid, waited=round(waited), used=round(now, 1))
            used = now
    finally:
        task.cancel()
        await asyncio.wait([task])


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far; 0 where that cannot be known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK
    except (OSError, ValueError, IndexError):
        return 0.0
