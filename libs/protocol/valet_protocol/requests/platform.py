"""Requests between the services, and from a sandbox."""

from typing import ClassVar, Literal

from valet_protocol.events.agent import WorkRef
from valet_protocol.events.facts import SessionPolicy
from valet_protocol.requests.base import Reply, Request


class AttachRunner(Request, frozen=True, kw_only=True):
    """A runner of some epoch takes its session over. Reply: `Attached`; refused with `replaced` when stale."""

    method: ClassVar[str] = "attach_runner"
    session_id: str
    epoch: int
    runner_version: str
    opencode_version: str | None = None


class Attached(Reply, frozen=True, kw_only=True):
    """The runner holds the session from this sequence on."""

    seq: int
    base_commit: str | None = None
    """Base commit of the session if an earlier runner has found one."""
    policy: SessionPolicy = SessionPolicy()
    """How the session treats permissions now; told to OpenCode."""
    work: WorkRef | None = None
    """The latest saved work: put back where the workspace is new."""
    active_turn: str | None = None
    """A turn dispatched but never started, which will be delivered again."""


class GetOwner(Request, frozen=True, kw_only=True):
    """Whose session is it? For services; goes to the session's ledger. Reply: `Owner`; refused with
    `session_not_found`. The answer never changes."""

    method: ClassVar[str] = "get_owner"
    session_id: str


class Owner(Reply, frozen=True, kw_only=True):
    """Whom a session belongs to."""

    session_id: str
    user: str
    parent: str | None = None
    """The session that spawned it."""
    orchestrator: bool = False
    """Whether its agent directs others."""


class ListWriters(Request, frozen=True, kw_only=True):
    """Who may write to a session, and so may be in its sandbox? From its runner, which asks again whenever the log says
    that it may be somebody else. Reply: `Writers`; refused with `session_not_found`."""

    method: ClassVar[str] = "list_writers"
    session_id: str


class Writers(Reply, frozen=True, kw_only=True):
    """Who may write to a session: its owner, its collaborators, those of the sessions above it. Nobody to one that was
    ended."""

    seq: int
    """Up to here the answer holds everything that the session's own log says."""
    since: dict[str, int] = {}
    """By user id the sequence of the fact by which they last came in; 0 for the owner."""
    inherits: bool = False
    """Whether there are sessions above it: what changes there is in no fact of its own."""


class GetEndpoint(Request, frozen=True, kw_only=True):
    """Where is the gateway of a session's sandbox? Goes to `subjects.service("portal", …)`. Reply: `Endpoint`; refused
    with `sandbox_not_running`, `sandbox_ports_in_use`; for a tunnel also with `no_tunnel_address`."""

    method: ClassVar[str] = "get_endpoint"
    session_id: str
    tunnel: str | None = None
    """A tunnel's name: for the address at whose root that tunnel is. Where it is refused, the tunnel is reached at
    `/t/<name>/` of the gateway only."""


class Endpoint(Reply, frozen=True, kw_only=True):
    """The way to a sandbox's gateway, as long as that sandbox runs."""

    url: str
    """e.g. `http://127.0.0.1:40213`, without a slash at its end."""


class Authenticate(Request, frozen=True, kw_only=True):
    """Who has this bearer token? Goes to `subjects.service("api", …)`. Reply: `Identity`."""

    method: ClassVar[str] = "authenticate"
    token: str


class HandOver(Request, frozen=True, kw_only=True):
    """An accepted client connection, authenticated by api, passed to event-bus together with its socket.

    Sent over a unix socket (SCM_RIGHTS), not over NATS. The event bus writes the response head itself.
    """

    method: ClassVar[str] = "hand_over"
    kind: Literal["sse", "ws"]
    user: str
    name: str = ""
    """The user's name, which others who watch the same session see beside the id."""
    session_id: str | None = None
    """For SSE."""
    after: int = 0
    """For SSE: the last sequence the client has."""
    ws_key: str | None = None
    """For WebSocket: `Sec-WebSocket-Key` of the request."""


class Identity(Reply, frozen=True, kw_only=True):
    """Who a token belongs to."""

    user: str
    name: str
    admin: bool
