"""Wiring of the portal."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from valet_service import lifecycle, logs
from valet_service.settings import Settings

from valet_sandbox_controller import config
from valet_sandbox_controller.portal import routes
from valet_sandbox_controller.portal.dial import Dialler
from valet_sandbox_controller.portal.door import Door
from valet_sandbox_controller.portal.model_client import ModelClients
from valet_sandbox_controller.portal.model_request import ModelConnection
from valet_sandbox_controller.portal.policy import NetworkPolicy

NAME = "portal"
_log = logs.get(__name__)


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Serve the sandboxes until told to stop."""
    valet = config.load_valet(settings.config, os.environ)
    secret = config.read_secret(settings)
    table = routes.table(valet, os.environ)
    network = NetworkPolicy(network=valet.sandbox.network, allow_hosts=valet.sandbox.allow_hosts)
    dialler = Dialler(network, settings.nats_url)
    clients = ModelClients()

    def model() -> asyncio.Protocol:
        return ModelConnection(secret=secret, table=table, clients=clients)

    server = await _listen(
        settings.run_dir / "portal" / "portal.sock", lambda: Door(secret=secret, dialler=dialler, model=model)
    )
    _log.info("portal_open", providers=sorted(table), network=network.network)
    lifecycle.ready()
    await stop.wait()
    server.close()
    await clients.close()


async def _listen(path: Path, protocol: Callable[[], asyncio.Protocol]) -> asyncio.AbstractServer:
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    # made beside and moved over: running sandboxes see the directory and find the new socket under the old name
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    server = await asyncio.get_running_loop().create_unix_server(protocol, str(fresh), backlog=512)
    fresh.chmod(0o666)
    fresh.replace(path)
    return server
