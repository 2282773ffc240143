"""Looks at the disk of a running platform, and starts the broker again where only that helps."""

import asyncio
import shutil
import time
from pathlib import Path

from valet_service import broker_health

from valet_local import limits
from valet_local.disk_policy import Known, Seen, after_look
from valet_local.journal import Journal
from valet_local.layout import Layout
from valet_local.supervisor import Supervisor


def least_room(places: Layout) -> tuple[int, Path]:
    """The MB that are free where the platform itself writes, and where that is; each may be a disk of its own."""
    written = [path for path in (places.data, places.nats, places.postgres) if path.exists()]
    return min(((shutil.disk_usage(path).free >> 20, path) for path in written), key=lambda found: found[0])


class DiskWatch:
    """`health` is the URL of the broker's health page."""

    def __init__(self, places: Layout, health: str, supervisor: Supervisor, journal: Journal) -> None:
        self._places = places
        self._health = health
        self._supervisor = supervisor
        self._journal = journal
        self._known = Known()

    async def run(self) -> None:
        """Look every `limits.DISK_CHECK`, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(limits.DISK_CHECK)

    async def look(self) -> None:
        """Look once and do what is to be done."""
        complaint = await broker_health.complaint(self._health, limits.HEALTH_TIMEOUT)
        free_mb, place = least_room(self._places)
        seen = Seen(free_mb=free_mb, complaint=complaint, now=time.monotonic())
        self._known, measures = after_look(self._known, seen, str(place))
        for words in measures.say:
            self._journal.note("platform", "disk", words)
            self._journal.say(words)
        if measures.restart:
            await self._supervisor.restart("nats", measures.restart)
