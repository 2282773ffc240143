"""Wiring of the sandbox controller."""

import asyncio
import compileall
import importlib.util
import os
import sys
import time

from valet_protocol import subjects
from valet_service import broker, database, lifecycle, logs
from valet_service.durable_reader import ensure_consumer, read_durable
from valet_service.outbox import Outbox
from valet_service.settings import Settings

from valet_sandbox_controller import config, limits
from valet_sandbox_controller.announcements import Announcer
from valet_sandbox_controller.config import ControllerConfig
from valet_sandbox_controller.controller import Controller
from valet_sandbox_controller.errors import SandboxRefused
from valet_sandbox_controller.provider import SandboxProvider
from valet_sandbox_controller.providers.bubblewrap import BubblewrapProvider
from valet_sandbox_controller.providers.host import PACKAGES
from valet_sandbox_controller.providers.process import ProcessProvider
from valet_sandbox_controller.providers.storage import Storage
from valet_sandbox_controller.store import Store

NAME = "sandbox-controller"
FACTS = [subjects.every("fact", "sandbox_requested"), subjects.every("fact", "sandbox_release_requested")]
"""What it acts on."""

RUNNER = (sys.executable, "-Ps", "-m", "valet_runner")
"""What runs in a sandbox; without the working folder and the agent's own packages on its path: a repository may have a
`json.py`."""

_log = logs.get(__name__)


def make_provider(settings: Settings, controller: ControllerConfig, command: tuple[str, ...]) -> SandboxProvider:
    """The local provider with the isolation asked for; `command` runs in every sandbox."""
    storage = Storage(settings.data_dir, settings.run_dir)
    if controller.isolation == "none":
        _log.warning("agents_not_isolated", reason="isolation is `none`: agents have the rights of the platform itself")
        return ProcessProvider(
            storage=storage,
            run_dir=settings.run_dir,
            data_dir=settings.data_dir,
            programs=controller.programs,
            command=command,
        )
    return BubblewrapProvider(
        storage=storage,
        run_dir=settings.run_dir,
        data_dir=settings.data_dir,
        programs=controller.programs,
        command=command,
        log_level=settings.log_level,
        hidden=(settings.keys_dir,),
    )


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until told to stop, then end every sandbox."""
    controller_config = config.load(settings)
    provider = make_provider(settings, controller_config, RUNNER)
    try:
        await provider.check()
    except SandboxRefused as refusal:
        # the service stays up: each session is told the same words, and an installed bwrap is found without a restart
        _log.error("sandboxes_impossible", reason=str(refusal))
    pool = await database.open_pool(settings.database_url, size=3)
    nc = await broker.connect_service(settings, NAME)
    store = Store(pool)
    await store.migrate()
    await broker.ensure_stream(nc)
    await ensure_consumer(nc, NAME, FACTS)
    async with Outbox(lambda: broker.connect_service(settings, f"{NAME}-outbox", reconnect=False)) as outbox:
        controller = Controller(
            store=store,
            provider=provider,
            announcer=Announcer(outbox, lambda: time.time_ns() // 1_000_000),
            nc=nc,
            config=controller_config,
            now_ms=lambda: time.time_ns() // 1_000_000,
            entropy=os.urandom,
        )
        await controller.recover()
        background = [
            asyncio.create_task(read_durable(nc, NAME, controller.handle)),
            asyncio.create_task(_keep_tidy(provider)),
            asyncio.create_task(asyncio.to_thread(_compile_packages)),
        ]
        lifecycle.ready()
        await stop.wait()
        for task in background:
            task.cancel()
        await controller.hibernate_all()
    await broker.close(nc)
    pool.terminate()


async def _keep_tidy(provider: SandboxProvider) -> None:
    while True:
        await asyncio.sleep(limits.LOG_CHECK)
        await provider.tidy()


def _compile_packages() -> None:
    # sandboxes see these packages read-only: without this each would compile them anew at its start
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            compileall.compile_dir(folder, quiet=2)
