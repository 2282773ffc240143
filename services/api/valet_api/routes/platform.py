"""The platform itself: models, and whether it is alive and ready."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal

import msgspec
from litestar import MediaType, Request, Response, Router, get
from nats.aio.client import Client
from valet_protocol.errors import Refused, Unavailable
from valet_protocol.requests import ListSessions
from valet_service import database, logs

from valet_api import limits, pages
from valet_api.auth import signed_in
from valet_api.disk import Disk
from valet_api.hand_over import Door
from valet_api.ledger import Ledger
from valet_api.models import ModelList
from valet_api.problems import document, responses
from valet_api.store import Store

_log = logs.get(__name__)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The process lives."""

    status: Literal["ok"] = "ok"


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is at this address."""

    name: Literal["Valet"] = "Valet"
    description: str = "The HTTP API of a Valet platform: background coding agents."
    openapi: str = "/schema/openapi.json"
    """What can be asked, for programs."""
    documentation: str = "/schema"
    """The same for people."""
    ready: str = "/ready"
    """Whether it can work now."""
    start: str = 'valet run "Say hello"'
    """How to begin, from a terminal of the machine it runs on."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Every part answers."""

    status: Literal["ready"] = "ready"


@get(
    "/api/models",
    guards=[signed_in],
    operation_id="listModels",
    summary="Models sessions can use",
    responses=responses(),
    tags=["platform"],
)
async def list_models(model_list: ModelList) -> ModelList:
    """What the configuration names. Of a provider with `any_model` any model is taken; one that is not `connected` has
    no key, and its models fail."""
    return model_list


@get("/", operation_id="welcome", summary="What is at this address", security=[{}], tags=["platform"])
async def welcome(request: Request[Any, Any, Any]) -> Response[Welcome]:
    """A page for browsers, JSON for programs."""
    headers = {"Vary": "Accept", "Content-Security-Policy": pages.POLICY}
    if "text/html" in request.headers.get("accept", ""):
        page = pages.welcome(str(request.base_url).rstrip("/"))
        return Response(page, media_type=MediaType.HTML, headers=headers)  # type: ignore[return-value]
    return Response(Welcome(), headers=headers)


@get("/health", operation_id="health", summary="Whether this process lives", security=[{}], tags=["platform"])
async def health() -> Health:
    """Asks nobody else."""
    return Health()


@get(
    "/ready",
    operation_id="ready",
    summary="Whether the platform can work",
    security=[{}],
    responses={503: responses()[503]},
    tags=["platform"],
)
async def ready(nc: Client, ledger: Ledger, store: Store, door: Door, disk: Disk) -> Response[Readiness]:
    """Asks the broker, the ledger, the event bus and the database, and looks whether anything can be stored; 503 names
    what is amiss."""

    async def ask_ledger() -> bool:
        await ledger.sessions(ListSessions(user="", limit=1), timeout=limits.READY_WAIT)
        return True

    async def ask_broker() -> bool:
        await nc.flush(timeout=int(limits.READY_WAIT))
        return True

    async def ask_database() -> bool:
        await store.ping()
        return True

    parts: dict[str, Awaitable[bool]] = {
        "nats": ask_broker(),
        "session-ledger": ask_ledger(),
        "event-bus": door.reachable(),
        "postgres": ask_database(),
    }
    asking = asyncio.gather(*[_answers(name, question) for name, question in parts.items()])
    broken, answers = await asyncio.gather(disk.broken(), asking)
    missing = [name for name, answer in zip(parts, answers, strict=True) if not answer]
    if missing or broken:
        silent = f"No answer from {', '.join(missing)}; see their logs in D/logs." if missing else None
        detail = " ".join(filter(None, (broken, silent)))
        return document(Unavailable("not_ready", detail).problem())  # type: ignore[return-value]
    return Response(Readiness())


async def _answers(name: str, question: Awaitable[bool]) -> bool:
    try:
        return await asyncio.wait_for(question, limits.READY_WAIT + 0.5)
    except Refused as refusal:
        _log.info("not_ready", part=name, reason=refusal.detail)
    except Exception as error:  # noqa: BLE001 - whatever it is, that part is not ready
        level = _log.info if isinstance(error, database.UNAVAILABLE) else _log.warning
        level("not_ready", part=name, reason=str(error) or type(error).__name__)
    return False


router = Router("/", route_handlers=[welcome, list_models, health, ready])
