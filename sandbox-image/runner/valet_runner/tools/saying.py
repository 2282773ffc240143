"""Events of the sandbox's own tools, into the log."""

import asyncio
from collections.abc import Callable, Iterable

from valet_protocol.errors import TooLarge
from valet_protocol.events.envelope import Data

Say = Callable[[Iterable[Data]], "asyncio.Future[int] | None"]
"""`valet_runner.publisher.Publisher.say`."""


async def store(say: Say, event: Data) -> None:
    """Returns when the broker has stored it: what an agent was told is done, outlives this sandbox.

    Raises `TooLarge` for one that no log takes.
    """
    stored = say([event])
    if stored is None:
        raise TooLarge("event_too_large", "This is more than the session's log takes at once; send less.")
    await asyncio.shield(stored)  # who gives up waiting must not take the event back
