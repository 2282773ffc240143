"""The API, wired: HTTP in, requests to the ledger out, live connections to the event bus."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvicorn
from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.middleware import DefineMiddleware
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import Refused
from valet_protocol.events.facts import SessionPolicy
from valet_protocol.ids import new_id
from valet_protocol.requests import Authenticate, Identity
from valet_service import broker, database, lifecycle, logs, rpc
from valet_service.config_file import LocalRepos
from valet_service.object_store import ObjectStore, open_store
from valet_service.settings import Settings

from valet_api import config, docs, limits, problems
from valet_api.attachments import Attachments
from valet_api.auth import Authenticator
from valet_api.config import ApiSettings
from valet_api.connection import Connection
from valet_api.disk import Disk
from valet_api.errors import PortTaken
from valet_api.forks import Forks
from valet_api.hand_over import Door
from valet_api.images import Images
from valet_api.ledger import Ledger
from valet_api.model_files import ModelFiles
from valet_api.once import Once, sweep
from valet_api.replies import Replies
from valet_api.routes import (
    attachments,
    commands,
    images,
    live,
    messages,
    notifications,
    people,
    platform,
    queue,
    sandbox,
    sessions,
    sharing,
    state,
    transfer,
)
from valet_api.schemas import StructSchemas
from valet_api.store import Store
from valet_api.transfers import Stores

_log = logs.get(__name__)


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the routes work with."""

    nc: Client
    ledger: Ledger
    store: Store
    door: Door
    authenticator: Authenticator
    model_files: ModelFiles
    policy: SessionPolicy
    local_repos: LocalRepos
    replies: Replies
    objects: ObjectStore
    secret: bytes
    disk: Disk
    spool: Path
    """Where a long request lies until all of it is here; a folder of its service, not of memory as `/tmp` may be."""


def application(parts: Parts) -> Litestar:
    """The ASGI application."""
    # a name here must not be a field of any body: Litestar takes an error of the one for an error of the other
    given = {
        "nc": parts.nc,
        "ledger": parts.ledger,
        "store": parts.store,
        "door": parts.door,
        "usual_policy": parts.policy,
        "local_repos": parts.local_repos,
        "authenticator": parts.authenticator,
        "forks": Forks(parts.objects),
        "attached": Attachments(parts.objects, parts.store),
        "images": Images(parts.objects),
        "secret": parts.secret,
        "disk": parts.disk,
        "stores": Stores(objects=parts.objects, store=parts.store, spool=parts.spool),
    }
    return Litestar(
        route_handlers=[
            *(sessions.router, messages.router, queue.router, commands.router, attachments.router),
            *(sharing.router, transfer.router, state.router, sandbox.router, images.router),
            *(live.router, people.router, notifications.router, platform.router),
        ],
        middleware=[DefineMiddleware(Once, kept=parts.replies)],
        plugins=[StructSchemas()],
        dependencies={
            **{name: _provide(part) for name, part in given.items()},
            "model_list": Provide(parts.model_files.current, sync_to_thread=False),
        },
        exception_handlers={
            Refused: problems.refused,
            HTTPException: problems.http_error,
            UnicodeDecodeError: problems.undecodable,
            RecursionError: problems.undecodable,
            Exception: problems.unexpected,
        },
        openapi_config=docs.CONFIG,
        request_max_body_size=limits.BODY_BYTES,
        state=State({"authenticator": parts.authenticator, "disk": parts.disk}),
        logging_config=None,
    )


def _provide(part: object) -> Provide:
    return Provide(lambda: part, sync_to_thread=False)


class Server(uvicorn.Server):
    """uvicorn in our own event loop: it leaves the signals to us and says when it serves."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        lifecycle.ready()


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    own = config.load(settings)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the usual 1,024 would be the limit of clients
    listener = _listen(own)
    nc = await broker.connect_service(settings, "api")
    await broker.ensure_stream(nc)
    pool = await database.open_pool(settings.database_url)
    store = Store(pool)
    await database.persist(store.migrate)
    token = own.admin_token
    if token is not None:
        await database.persist(lambda: store.ensure_owner(new_id(), token))
    parts = Parts(
        nc=nc,
        ledger=Ledger(nc),
        store=store,
        door=Door(own.event_bus),
        authenticator=Authenticator(store),
        model_files=ModelFiles(own.config, settings.data_dir, own.missing_keys),
        policy=SessionPolicy(question_timeout_s=own.config.sandbox.question_timeout_seconds),
        local_repos=own.config.sandbox.local_repos,
        replies=Replies(pool),
        objects=open_store(own.config.objects, nc=nc),
        secret=own.secret,
        disk=Disk(settings.data_dir, own.nats_health),
        spool=settings.data_dir,
    )
    await _serve_authenticate(nc, parts.authenticator)
    sweeping = asyncio.create_task(sweep(parts.replies))
    try:
        await _serve(parts, listener, stop)
    finally:
        sweeping.cancel()
        parts.door.close()
        await parts.objects.close()
        await broker.close(nc)
        pool.terminate()


async def _serve(parts: Parts, listener: socket.socket, stop: asyncio.Event) -> None:
    server = Server(
        uvicorn.Config(
            application(parts),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=limits.KEEP_ALIVE,
            timeout_graceful_shutdown=limits.STOP_GRACE,
            backlog=limits.BACKLOG,
        )
    )

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    ending = asyncio.create_task(end())
    host, port = listener.getsockname()[:2]
    _log.info("listening", host=host, port=port)
    await server.serve(sockets=[listener])
    ending.cancel()


async def _serve_authenticate(nc: Client, authenticator: Authenticator) -> None:
    async def authenticate(request: Authenticate) -> Identity:
        person = await authenticator.identify(request.token)
        return Identity(user=person.user, name=person.name, admin=person.admin)

    await rpc.serve(nc, subjects.service("api", Authenticate.method), Authenticate, authenticate, queue="api")


def _listen(own: ApiSettings) -> socket.socket:
    """Raises `PortTaken`."""
    family = socket.AF_INET6 if ":" in own.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((own.host, own.port))
    except OSError as error:
        listener.close()
        raise PortTaken(own.host, own.port, error.strerror or str(error)) from error
    return listener
