"""Ending tasks."""

import asyncio
from typing import Any


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they are over; what they raised is theirs.

    Cancelling once is not enough: before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes in the
    same turn of the loop as what it waits for, and libraries use it (measured: closing an outbox while it connects
    hung one time in twenty).
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=0.1)
