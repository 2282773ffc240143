"""Claims about ending tasks."""

import asyncio

from valet_service import tasks


async def test_a_task_that_swallows_a_cancellation_is_ended_all_the_same() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(tasks.end(task), 5)
    assert task.cancelled()


async def test_tasks_that_are_over_are_no_trouble() -> None:
    async def fails() -> None:
        raise ValueError

    task = asyncio.create_task(fails())
    await asyncio.wait([task])
    await tasks.end(task)
    await tasks.end()
    assert isinstance(task.exception(), ValueError)
