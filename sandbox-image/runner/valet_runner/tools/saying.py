"""Events of the sandbox's own tools, into the log."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from valet_protocol import ids
from valet_protocol.errors import TooLarge
from valet_protocol.events.envelope import Data
from valet_protocol.tools import Tool


class Say(Protocol):
    """`valet_runner.publisher.Publisher.say`."""

    def __call__(self, items: Iterable[Data], *, id: str | None = None) -> "asyncio.Future[int] | None": ...


async def store(say: Say, event: Data, *, once: Tool | None = None) -> None:
    """Returns when the broker has stored it: what an agent was told is done, outlives this sandbox.

    Of the call `once`, whichever runner carries it out, the log has it once. Raises `TooLarge` for one that no log
    takes.
    """
    id = None if once is None else ids.derived_id(once.session_id, once.request_id, type(event).__name__)
    stored = say([event], id=id)
    if stored is None:
        raise TooLarge("event_too_large", "This is more than the session's log takes at once; send less.")
    await asyncio.shield(stored)  # who gives up waiting must not take the event back
