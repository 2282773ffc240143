"""Who may say what on NATS: keys, JWTs, permissions and .creds files, made by hand with ed25519 nkeys.

The server runs in operator mode: an operator key signs accounts, the account key signs users. Anyone who
holds the account seed can mint a user without talking to the server, which is how the sandbox controller
gives every runner credentials of its own. All functions here are pure: clock and randomness are passed in.

The permissions are what makes "one writer per source" (docs/architecture.md, The log) true rather than
polite. Formats: github.com/nats-io/jwt version 2, checked against nats-server 2.15.1 in the tests of
`infra/local`.
"""

# nkeys carries no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false

import base64
import hashlib
from typing import Literal

import msgspec
import nkeys
from valet_protocol import subjects
from valet_protocol.requests import GetOwner, ListSuperfluousWork

Role = Literal["operator", "account", "user"]

SERVICES = ("api", "session-ledger", "sandbox-controller", "portal", "event-bus", "knowledge", "automation")
"""The services that hold credentials of their own."""

SUBSCRIBER = "subscriber"
"""Credentials that read the log and write nothing: for third parties, and for the command line."""

OBJECT_BUCKET = "VALET"
"""The bucket of JetStream's object store."""

PORTAL_INBOX = "_INBOX_portal"
"""The portal's own inbox prefix: it stands between sandboxes and everything, and hears no other service's answers."""

ANSWERED: dict[str, tuple[str, ...]] = {
    "knowledge": ("list_memories", "search_memories", "write_memory", "delete_memory"),
    "automation": ("create_task", "list_tasks", "get_task", "update_task", "my_tasks"),
    "event-bus": ("emit_notification", "check_mailbox", "mark_mailbox_read"),
}
"""Which tools of agents a service answers, by name: it hears no other request of a sandbox."""

PORTAL_READS = ("sandbox_requested", "sandbox_release_requested")
"""The facts the portal reads, and no other: which epoch of a session may use it."""

_PREFIX: dict[Role, int] = {
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "user": nkeys.PREFIX_BYTE_USER,
}

_RESPONSE_TTL_NS = 120 * 1_000_000_000
"""How long a service may answer a request it has received (ns). The longest request of a sandbox is a minute.
"""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An nkey: what signs JWTs and what a client proves its identity with."""

    seed: str
    """The private part, starting with S. A secret."""
    public: str
    """The public part: O… operator, A… account, U… user."""


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """The subjects a user may publish to and subscribe to. What is not listed is refused by the server."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    deny_publish: tuple[str, ...] = ()
    """Exceptions from `publish`."""
    may_respond: bool = False
    """Whether it may also publish to the reply subject of a request it received, wherever that points."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What the server's configuration needs to trust one account."""

    public: str
    jwt: str


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """The whole chain of trust of one installation, as the server's configuration wants it."""

    operator_jwt: str
    system: Account
    """The server's own account: JetStream in operator mode asks for one; nobody has credentials for it."""
    valet: Account
    """The account in which everything of Valet happens."""


def key_from_entropy(role: Role, entropy: bytes) -> Key:
    """The nkey for 32 random bytes. Raises `nkeys.ErrInvalidSeedLen` for another length."""
    return key_from_seed(nkeys.encode_seed(entropy, _PREFIX[role]).decode())


def key_from_seed(seed: str) -> Key:
    """The key of a stored seed. Raises `nkeys.ErrInvalidSeed` for text that is not one."""
    pair = nkeys.from_seed(bytearray(seed.strip().encode()))
    return Key(seed=seed.strip(), public=bytes(pair.public_key).decode())


def trust(*, operator: Key, system: Key, account: Key, now: int) -> Trust:
    """Sign the operator's and the two accounts' JWTs. `now` is seconds since 1970."""
    return Trust(
        operator_jwt=_sign(operator, operator.public, "valet", {"type": "operator"}, now=now),
        system=Account(
            public=system.public,
            jwt=_sign(operator, system.public, "SYS", {"type": "account", "limits": _LIMITS}, now=now),
        ),
        valet=Account(
            public=account.public,
            jwt=_sign(
                operator,
                account.public,
                "VALET",
                {"type": "account", "limits": _LIMITS | _JETSTREAM},
                now=now,
            ),
        ),
    )


def user_jwt(
    account: Key,
    user_public: str,
    name: str,
    permissions: Permissions,
    *,
    now: int,
    expires: int | None = None,
) -> str:
    """A user of the account. `now` and `expires` are seconds since 1970; the server refuses it after
    `expires`.
    """
    claims: dict[str, object] = {
        "type": "user",
        "pub": _allow(permissions.publish, permissions.deny_publish),
        "sub": _allow(permissions.subscribe, ()),
        "subs": -1,
        "data": -1,
        "payload": -1,
    }
    if permissions.may_respond:
        claims["resp"] = {"max": 1, "ttl": _RESPONSE_TTL_NS}
    return _sign(account, user_public, name, claims, now=now, expires=expires)


def creds(
    account: Key, name: str, permissions: Permissions, *, entropy: bytes, now: int, expires: int | None = None
) -> str:
    """The text of a .creds file for a new user: its JWT and its seed. `entropy` is 32 random bytes."""
    user = key_from_entropy("user", entropy)
    token = user_jwt(account, user.public, name, permissions, now=now, expires=expires)
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def inbox(service: str) -> str:
    """The inbox prefix of a service that hears no other service's answers."""
    return f"_INBOX_{service}"


def service_permissions(service: str) -> Permissions:
    """What a service may do, by its name in `SERVICES` or `SUBSCRIBER`. Raises `KeyError` for any other."""
    return _SERVICE_PERMISSIONS[service]


def runner_permissions(session_id: str, shard: int | None = None) -> Permissions:
    """What the runner of one session may do: its own session's subjects and nothing else.

    The durable consumer it reads its facts from is made by the sandbox controller; the runner may only pull
    from it and acknowledge. `shard` is the session's shard when the caller knows it already.
    """
    number = subjects.shard_of(session_id) if shard is None else shard
    own = f"session.{number}.{session_id}"
    consumer = f"{subjects.STREAM}.{subjects.runner_consumer(session_id)}"
    return Permissions(
        publish=(
            f"{own}.agent.>",
            f"{own}.delta.>",
            f"rpc.session.{session_id}.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{consumer}",
            f"$JS.API.CONSUMER.INFO.{consumer}",
            f"$JS.ACK.{consumer}.>",
        ),
        subscribe=(f"{subjects.runner_inbox(session_id)}.>",),
    )


_READ_LOG = (
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.MSG.GET.*",
    "$JS.API.DIRECT.GET.>",
    "$JS.API.CONSUMER.CREATE.>",
    "$JS.API.CONSUMER.DURABLE.CREATE.>",
    "$JS.API.CONSUMER.INFO.>",
    "$JS.API.CONSUMER.NAMES.*",
    "$JS.API.CONSUMER.LIST.*",
    "$JS.API.CONSUMER.MSG.NEXT.>",
    "$JS.ACK.>",
    "$JS.FC.>",
)
"""Reading streams through consumers; none of these stores a message."""

_DROP_CONSUMER = ("$JS.API.CONSUMER.DELETE.>",)

_MAKE_STREAM = ("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*")
"""Whichever service starts first makes the streams."""

_OBJECTS = tuple(
    subject.format(stream=f"OBJ_{OBJECT_BUCKET}", bucket=OBJECT_BUCKET)
    for subject in (
        "$O.{bucket}.>",
        "$JS.API.STREAM.INFO.{stream}",
        "$JS.API.STREAM.CREATE.{stream}",
        "$JS.API.STREAM.PURGE.{stream}",
        "$JS.API.STREAM.MSG.GET.{stream}",
        "$JS.API.DIRECT.GET.{stream}",
    )
)
"""The object store's bucket, and what `jetstream_objects` asks of its stream."""

_ANSWER = ("_INBOX.>", "$SRV.>")
"""Inboxes of the services themselves and the discovery of NATS micro services."""


def _tools(service: str) -> tuple[str, ...]:
    return tuple(subjects.sandbox_request("*", name) for name in ANSWERED[service])


def _answers_tools(service: str) -> Permissions:
    """A service that answers agents, asks the ledger whose session it is, and does nothing else on the broker."""
    return Permissions(
        publish=(f"rpc.ledger.*.{GetOwner.method}",),
        subscribe=(*_tools(service), f"{inbox(service)}.>"),
        may_respond=True,
    )


_SERVICE_PERMISSIONS: dict[str, Permissions] = {
    "api": Permissions(
        publish=("rpc.>", "platform.user.>", *_OBJECTS, *_READ_LOG, *_DROP_CONSUMER, *_MAKE_STREAM, *_ANSWER),
        # Requests of a sandbox carry the session in their subject: only that session's runner may make them.
        deny_publish=("rpc.session.>",),
        subscribe=("rpc.api.>", *_ANSWER),
        may_respond=True,
    ),
    "session-ledger": Permissions(
        publish=(
            "session.*.*.fact.>",
            # Subjects on which the log listens only while lost events, of every source, are put back into it. At any
            # other time nothing does, so they give the ledger no way to write for a runner or the controller.
            "put_back.>",
            "platform.usage.>",
            # where ledgers share the shards, one passes a sandbox's request on to the one that has the session
            "rpc.ledger.>",
            "rpc.sandbox.>",
            "rpc.sandbox-controller.>",
            "rpc.event-bus.>",
            "$JS.API.STREAM.PURGE.*",
            "$JS.API.STREAM.MSG.DELETE.*",
            *_READ_LOG,
            *_DROP_CONSUMER,
            *_MAKE_STREAM,
            *_ANSWER,
        ),
        subscribe=("rpc.ledger.>", "rpc.session.>", *_ANSWER),
        may_respond=True,
    ),
    "sandbox-controller": Permissions(
        publish=(
            "session.*.*.sandbox.>",
            "platform.usage.>",
            "rpc.ledger.>",
            *_READ_LOG,
            *_DROP_CONSUMER,
            *_MAKE_STREAM,
            *_ANSWER,
        ),
        subscribe=("rpc.sandbox.>", "rpc.sandbox-controller.>", *_ANSWER),
        may_respond=True,
    ),
    "portal": Permissions(
        publish=(
            *_OBJECTS,
            # one consumer for one filter, and nothing else of the log
            *(f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.*.{subjects.every('fact', name)}" for name in PORTAL_READS),
            f"$JS.FC.{subjects.STREAM}.>",
            # which saved work nothing starts from any more
            f"rpc.ledger.*.{ListSuperfluousWork.method}",
        ),
        subscribe=("rpc.portal.>", f"{PORTAL_INBOX}.>"),
        may_respond=True,
    ),
    "event-bus": Permissions(
        publish=("live.>", "rpc.ledger.>", *_READ_LOG, *_DROP_CONSUMER, *_MAKE_STREAM, *_ANSWER),
        subscribe=("live.>", "rpc.event-bus.>", *_tools("event-bus"), *_ANSWER),
        may_respond=True,
    ),
    "knowledge": _answers_tools("knowledge"),
    "automation": _answers_tools("automation"),
    SUBSCRIBER: Permissions(publish=_READ_LOG, subscribe=("live.>", "_INBOX.>")),
}

_LIMITS: dict[str, object] = {
    "subs": -1,
    "data": -1,
    "payload": -1,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}
_JETSTREAM: dict[str, object] = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}


def _allow(allowed: tuple[str, ...], denied: tuple[str, ...]) -> dict[str, list[str]]:
    # An empty permission means "everything" to the server; the explicit denial keeps "nothing" nothing.
    rule: dict[str, list[str]] = {"allow": list(allowed)} if allowed else {"deny": [">"]}
    return rule | {"deny": list(denied)} if denied else rule


def _sign(
    issuer: Key, subject: str, name: str, claims: dict[str, object], *, now: int, expires: int | None = None
) -> str:
    body: dict[str, object] = {
        "iat": now,
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": {**claims, "version": 2},
    }
    if expires is not None:
        body["exp"] = expires
    digest = hashlib.sha256(msgspec.json.encode(body)).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    head = msgspec.json.encode({"typ": "JWT", "alg": "ed25519-nkey"})
    signed = f"{_base64url(head)}.{_base64url(msgspec.json.encode(body))}"
    signature = nkeys.from_seed(bytearray(issuer.seed.encode())).sign(signed.encode())
    return f"{signed}.{_base64url(bytes(signature))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
