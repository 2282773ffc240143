"""For tests of automation and of what asks it: the service in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from valet_service import settings

from valet_automation.app import main


@asynccontextmanager
async def serving(nats_url: str, database_url: str) -> AsyncIterator[None]:
    """The whole service, on a broker without authentication. It begins to answer by and by."""
    stop = asyncio.Event()
    environment = {"VALET_NATS_URL": nats_url, "VALET_DATABASE_URL": database_url}
    running = asyncio.create_task(main(settings.load(environment), stop))
    try:
        yield
    finally:
        stop.set()
        await running
