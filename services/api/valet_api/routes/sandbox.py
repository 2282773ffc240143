"""A session's sandbox, for people: a token and the addresses that it opens."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Annotated

from litestar import Response, Router, get
from litestar.params import Parameter
from nats.aio.client import Client
from valet_protocol.errors import Conflict, Forbidden
from valet_protocol.requests import GetSession, SessionView

from valet_api import limits, log_end, sandbox_access
from valet_api.auth import signed_in
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.routes.bodies import SessionId
from valet_api.routes.sessions import Asking
from valet_api.sandbox_access import OpenedByPeople, SandboxToken


@get(
    "/sandbox-token",
    operation_id="getSandboxToken",
    summary="Get into the sandbox",
    responses=responses(400, 403, 404, 409),
)
async def get_sandbox_token(
    request: Asking,
    ledger: Ledger,
    nc: Client,
    secret: bytes,
    session_id: SessionId,
    service: Annotated[
        OpenedByPeople,
        Parameter(description="What it is to open: `t` is the tunnels, `*` everything that is for people."),
    ] = "*",
) -> Response[SandboxToken]:
    """For those who may prompt: whoever has the token can do in the sandbox what its agent can. 409 without a running
    sandbox.
    """
    user = request.user.user
    seq = await log_end.last_seq(nc)  # before the role is looked at: a removal that is not seen there comes after this
    view = await ledger.ask(GetSession(session_id=session_id, user=user), SessionView)
    if view.role == "viewer":
        raise Forbidden("role_too_low", "Viewers read; ask the session's owner to make you a collaborator.")
    if view.status == "terminated":
        raise Conflict("sandbox_not_running", "The session was ended; its sandbox ends with it.")
    gateway, tunnels = await asyncio.gather(
        sandbox_access.endpoint(nc, session_id), sandbox_access.tunnels(nc, session_id)
    )
    # the limit of a gateway's tunnels bounds how many are asked for
    own = await asyncio.gather(*(sandbox_access.tunnel_endpoint(nc, session_id, name) for name in tunnels))
    expires = int(time.time()) + limits.SANDBOX_TOKEN
    given = SandboxToken(
        token=sandbox_access.token(secret, session_id, user, service, seq=seq, expires=expires),
        expires_at=datetime.fromtimestamp(expires, UTC).isoformat().replace("+00:00", "Z"),
        urls=sandbox_access.urls(gateway, dict(zip(tunnels, own, strict=True))),
    )
    return Response(given, headers={"Cache-Control": "no-store"})


router = Router(
    "/api/sessions/{session_id:str}", guards=[signed_in], route_handlers=[get_sandbox_token], tags=["sandbox"]
)
