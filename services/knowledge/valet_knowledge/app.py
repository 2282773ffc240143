"""Knowledge, wired: requests of agents → memories in PostgreSQL."""

import asyncio

from valet_service import broker, credentials, lifecycle, logs, tasks
from valet_service.owners import Owners
from valet_service.settings import Settings

from valet_knowledge import limits
from valet_knowledge.config import NAME, database_url
from valet_knowledge.serve import MemoryRequests
from valet_knowledge.store import Store

_log = logs.get(__name__)


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises `BadSettings` and `BrokerTooOld`."""
    store = Store(database_url(settings))
    nc = await broker.connect_service(settings, NAME, inbox_prefix=credentials.inbox(NAME))
    stopped = asyncio.create_task(stop.wait())
    keeping = asyncio.create_task(store.keep())
    opened = asyncio.create_task(store.opened.wait())
    try:
        await asyncio.wait((stopped, keeping, opened), return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            await MemoryRequests(nc, store, Owners(nc, limits.OWNERS_KEPT)).start()
            lifecycle.ready()
            _log.info("ready")
            await asyncio.wait((stopped, keeping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await tasks.end(*(task for task in (stopped, keeping, opened) if not task.done()))
        store.close()
        await broker.close(nc)
    if not keeping.cancelled():
        keeping.result()  # it ends by itself only with an error: say so, and be started again
