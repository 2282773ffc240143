"""Wiring of the portal."""

import asyncio
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

from valet_protocol import subjects
from valet_protocol.requests import GetEndpoint
from valet_service import broker, credentials, lifecycle, logs, object_store, rpc, tasks
from valet_service.config_file import Objects
from valet_service.object_store import ObjectStore
from valet_service.settings import Settings

from valet_sandbox_controller import config
from valet_sandbox_controller.portal import epoch_reader, object_names, routes
from valet_sandbox_controller.portal.dial import Dialler
from valet_sandbox_controller.portal.door import Door
from valet_sandbox_controller.portal.epochs import Epochs
from valet_sandbox_controller.portal.known_ports import KnownPorts
from valet_sandbox_controller.portal.model_client import ModelClients
from valet_sandbox_controller.portal.model_request import ModelConnection
from valet_sandbox_controller.portal.object_request import ObjectConnection
from valet_sandbox_controller.portal.policy import NetworkPolicy
from valet_sandbox_controller.portal.public_address import address
from valet_sandbox_controller.portal.public_side import PublicSide
from valet_sandbox_controller.portal.sweeper import Sweeper
from valet_sandbox_controller.providers.storage import gateways

NAME = "portal"
_log = logs.get(__name__)


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Serve the sandboxes until told to stop."""
    valet = config.load_valet(settings.config, os.environ)
    secret = config.read_secret(settings)
    sweep_every = config.sweep_every(os.environ)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # people's connections take two each
    table = routes.table(valet, os.environ)
    network = NetworkPolicy(network=valet.sandbox.network, allow_hosts=valet.sandbox.allow_hosts)
    dialler = Dialler(network, settings.nats_url)
    clients = ModelClients()
    epochs = Epochs()
    store: asyncio.Future[ObjectStore] = asyncio.get_running_loop().create_future()

    def serve(target: str) -> asyncio.Protocol:
        if target.startswith(object_names.PATH):
            return ObjectConnection(secret=secret, epochs=epochs, store=store)
        return ModelConnection(secret=secret, epochs=epochs, table=table, clients=clients)

    server = await _listen(
        settings.run_dir / "portal" / "portal.sock",
        lambda: Door(secret=secret, epochs=epochs, dialler=dialler, serve=serve),
    )
    public = PublicSide(
        gateways(settings.run_dir),
        KnownPorts(settings.run_dir / "portal-ports.json"),
        address(valet.sandbox, os.environ),
    )
    keeping = asyncio.create_task(public.keep())
    # it serves while the broker is away, too: an answer of a model that is streaming must not wait for a broker
    following = asyncio.create_task(_follow(settings, valet.objects, epochs, store, public, sweep_every))
    _log.info("portal_open", providers=sorted(table), network=network.network)
    lifecycle.ready()
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((stopping, following, keeping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    server.close()
    public.close()
    await clients.close()
    for task in (following, keeping):
        if task.done():
            task.result()  # a setting that is wrong, or a broker that is too old: nothing to go on with
        await tasks.end(task)


async def _follow(
    settings: Settings,
    objects: Objects,
    epochs: Epochs,
    store: "asyncio.Future[ObjectStore]",
    public: PublicSide,
    sweep_every: float,
) -> None:
    """Reach the broker, however long that takes; say where sandboxes are, learn who may use the portal, and delete what
    nobody needs, without end."""
    nc = await broker.connect_service(settings, NAME, inbox_prefix=credentials.PORTAL_INBOX)
    opened = object_store.open_store(objects, nc=nc)
    store.set_result(opened)
    await rpc.serve(nc, subjects.service(NAME, GetEndpoint.method), GetEndpoint, public.endpoint, queue=NAME)
    async with asyncio.TaskGroup() as group:
        group.create_task(epoch_reader.follow(nc, epochs))
        group.create_task(Sweeper(nc, opened, every=sweep_every, chance=random.Random()).run())


async def _listen(path: Path, protocol: Callable[[], asyncio.Protocol]) -> asyncio.AbstractServer:
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    # made beside and moved over: running sandboxes see the directory and find the new socket under the old name
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    server = await asyncio.get_running_loop().create_unix_server(protocol, str(fresh), backlog=512)
    fresh.chmod(0o666)
    fresh.replace(path)
    return server
