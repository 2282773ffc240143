"""The base of all tools: what an agent may ask of the platform, declared once.

A tool is a request. From its declaration come the route below `/api` of the sandbox's gateway, the MCP tool with its
schema, the subject on which a service answers it (`rpc.session.<id>.<method>`), and its page in docs/tools.md. Its
docstring is what the model reads: it says what the tool does, when to use it and what comes back.

A request may come more than once (the runner asks again where no answer came). Who answers makes the ids of what it
stores from the request, `ids.derived_id(session_id, request_id)`, so that the second time finds what the first one made
and gives the same answer. What carries `session_id` was checked: a sandbox can ask for its own session only.
"""

from typing import ClassVar, Literal

from valet_protocol.requests.base import Reply, Request

Category = Literal[
    "sessions",
    "pull_requests",
    "memory",
    "workflows",
    "triggers",
    "executions",
    "tunnels",
    "notifications",
    "tasks",
    "secrets",
    "channels",
    "parallel",
    "other",
]

FILLED_IN = frozenset({"session_id", "request_id", "turn_id"})
"""Fields of every tool that the runner fills in: they are in no schema that an agent sees."""

READ, WRITE, LONG = 15.0, 30.0, 60.0
"""Time-outs, seconds: a read of the database; something is stored; something elsewhere is asked or started."""


class Tool(Request, frozen=True, kw_only=True):
    """Base of every tool."""

    name: ClassVar[str]
    """What the agent calls it, e.g. `spawn_child`; also the last token of its subject (`method`)."""
    category: ClassVar[Category]
    route: ClassVar[str]
    """Verb and path below the gateway, e.g. `POST /api/spawn-child`; `{field}` takes a field from the path."""
    reply: ClassVar[type[Reply]]
    timeout: ClassVar[float] = READ
    """Seconds until the agent is told that the platform did not answer."""
    orchestrators: ClassVar[bool] = True
    """Whether an agent that directs others is offered it."""
    served_by: ClassVar[Literal["platform", "runner"]] = "platform"
    """`runner`: answered in the sandbox itself (tunnels, images, channel replies)."""

    session_id: str = ""
    """The session whose agent asks."""
    request_id: str = ""
    """Made once for each call: the same request twice has one effect."""
    turn_id: str | None = None
    """The turn that asks, where one does."""
