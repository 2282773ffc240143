"""What a boot says of itself: how long each step took, and which parts of the sandbox are there.

The first steps are over before there is a way into the log; what they said waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from valet_protocol.events.envelope import Data
from valet_protocol.events.machine import BootStepCompleted, ServiceChanged
from valet_service import logs

_log = logs.get(__name__)


class BootSteps:
    """Says machine events in the order in which they happen. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: list[Data] = []
        self._say: Callable[[list[Data]], object] | None = None
        self._room: Callable[[], Awaitable[None]] | None = None
        self._open = asyncio.Event()

    def open(self, say: Callable[[list[Data]], object], room: Callable[[], Awaitable[None]]) -> None:
        """There is a way into the log from now on; `room` waits until it takes more."""
        waiting, self._waiting = self._waiting, []
        self._say, self._room = say, room
        self._open.set()
        if waiting:
            say(waiting)

    def say(self, data: Data) -> None:
        """An event about the sandbox; one that comes too early waits."""
        if self._say:
            self._say([data])
        else:
            self._waiting.append(data)

    async def room(self) -> None:
        """Wait until the log takes more."""
        await self._open.wait()
        if self._room:
            await self._room()

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """A step of the boot: what is raised in it is the reason of its failure. What is put into the list is for
        people."""
        began = self._clock()
        details: list[str] = []
        try:
            yield details
        except Exception as error:
            self.failed(name, began, str(error) or type(error).__name__)
            raise
        self.done(name, began, "; ".join(detail for detail in details if detail))

    def done(self, step: str, began: float, detail: str = "") -> None:
        """A step succeeded that began at a time of the clock."""
        self.say(BootStepCompleted(step=step, ms=self._since(began), outcome="ok", detail=detail))

    def failed(self, step: str, began: float, detail: str) -> None:
        """A step failed; `detail` is for people."""
        _log.warning("boot_step_failed", step=step, detail=detail)
        self.say(BootStepCompleted(step=step, ms=self._since(began), outcome="failed", detail=detail))

    def absent(self, step: str, detail: str) -> None:
        """This machine does not have it."""
        self.say(BootStepCompleted(step=step, ms=0, outcome="absent", detail=detail))

    def running(self, service: str) -> None:
        """A part of the sandbox is there."""
        _log.info("service_running", part=service)
        self.say(ServiceChanged(service=service, state="running"))

    def stopped(self, service: str, detail: str) -> None:
        """It is gone; `detail` says why."""
        _log.warning("service_stopped", part=service, detail=detail)
        self.say(ServiceChanged(service=service, state="stopped", detail=detail))

    def _since(self, began: float) -> int:
        return round((self._clock() - began) * 1000)
