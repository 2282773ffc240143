"""The way into a session's sandbox: where its gateway is, and a token that opens it."""

from collections.abc import Mapping
from typing import Literal, cast
from urllib.parse import quote

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from valet_protocol import codec, subjects
from valet_protocol.errors import BadEvent, Refused, Unavailable
from valet_protocol.events.machine import TunnelsChanged
from valet_protocol.requests import Endpoint, GetEndpoint
from valet_service import logs, rpc, sandbox_token

from valet_api import limits

_log = logs.get(__name__)

OpenedByPeople = Literal["*", "vscode", "vnc", "ttyd", "t", "processes"]
"""What a person can be given a token for: all but what is the platform's own."""


class SandboxUrls(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses at the sandbox's gateway. Open one with `?token=…` behind it; programs send the token as a bearer."""

    gateway: str
    vscode: str
    vnc: str
    ttyd: str
    """The terminal."""
    processes: str
    """The process service's API."""
    tunnels: dict[str, str] = {}
    """The agent's tunnels, by name: an address of the tunnel's own where it can be had, with its program's `/` at its
    root, else below the gateway's."""


class SandboxToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token for one session's sandbox."""

    token: str
    expires_at: str
    """RFC 3339. A browser in which it was used may go on for a quarter of an hour after that, an open connection for as
    long as it lasts. Whoever may no longer write to the session is out at once; if let in again, ask for another."""
    urls: SandboxUrls


def token(secret: bytes, session_id: str, user: str, service: OpenedByPeople, *, seq: int, expires: int) -> str:
    """A token for a person; `seq` is where the log ended before their role was looked at, `expires` seconds since 1970.
    Pure."""
    opened = cast(sandbox_token.Service, service)
    claims = sandbox_token.Claims(sub=user, sid=session_id, svc=opened, exp=expires, seq=seq)
    return sandbox_token.mint(sandbox_token.key(secret, session_id), claims)


def urls(gateway: str, tunnels: Mapping[str, str | None]) -> SandboxUrls:
    """The addresses below a gateway's. `tunnels`: each with its own, if it has one. Pure."""
    return SandboxUrls(
        gateway=gateway,
        vscode=f"{gateway}/vscode/",
        vnc=f"{gateway}/vnc/",
        ttyd=f"{gateway}/ttyd/",
        processes=f"{gateway}/v1/processes",
        tunnels={name: f"{own}/" if own else f"{gateway}/t/{quote(name, safe='')}/" for name, own in tunnels.items()},
    )


async def endpoint(nc: Client, session_id: str) -> str:
    """Where a session's gateway is. Raises `Conflict` (`sandbox_not_running`) and `Unavailable`."""
    question = GetEndpoint(session_id=session_id)
    answer = await rpc.call(
        nc, subjects.service("portal", question.method), question, Endpoint, timeout=limits.ENDPOINT_WAIT
    )
    return answer.url


async def tunnel_endpoint(nc: Client, session_id: str, name: str) -> str | None:
    """A tunnel's own address; none where it has none: it is reached below the gateway's then."""
    question = GetEndpoint(session_id=session_id, tunnel=name)
    subject = subjects.service("portal", question.method)
    try:
        return (await rpc.call(nc, subject, question, Endpoint, timeout=limits.ENDPOINT_WAIT)).url
    except Refused as refused:
        _log.info("tunnel_has_no_address", session=session_id, tunnel=name, reason=refused.code)
        return None


async def tunnels(nc: Client, session_id: str) -> list[str]:
    """The names of a session's tunnels: its runner's last word on them. Raises `Unavailable`."""
    subject = subjects.event(session_id, "agent", "tunnels_changed")
    try:
        stored = await nc.jetstream(timeout=limits.ENDPOINT_WAIT).get_last_msg(subjects.STREAM, subject, direct=True)
        said = codec.decode(stored.data or b"", stored.seq or 0).data
    except NotFoundError:
        return []
    except (nats.errors.Error, TimeoutError) as error:
        _log.warning("tunnels_unknown", session=session_id, reason=str(error) or type(error).__name__)
        raise Unavailable("unavailable", "The session's log does not answer at the moment; try again.") from error
    except BadEvent as error:
        _log.error("event_not_understood", session=session_id, subject=subject, reason=str(error))
        return []
    return [tunnel.name for tunnel in said.tunnels] if isinstance(said, TunnelsChanged) else []
