"""Which processes make the platform, in which order and with which environment. Pure."""

import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

Readiness = Literal["notify", "probe"]
Rank = Literal["server", "service"]

SERVICE_MODULES: tuple[tuple[str, str], ...] = (
    ("session-ledger", "valet_session_ledger"),
    ("sandbox-controller", "valet_sandbox_controller"),
    ("portal", "valet_sandbox_controller.portal"),
    ("event-bus", "valet_event_bus"),
    ("knowledge", "valet_knowledge"),
    ("automation", "valet_automation"),
    ("api", "valet_api"),
)
"""Service → the module that `python -m` runs."""

_TOGETHER = ("knowledge", "automation")
"""Services that are one process on one machine: of each by itself, nine tenths would be the same libraries."""

_AFTER: Mapping[str, tuple[str, ...]] = {
    "portal": (),
    # what it finds missing it says at once; a log that lost events gets them back before anybody writes to it
    "sandbox-controller": ("nats", "postgres", "session-ledger"),
}
"""What must be ready before a service is started, where it is not just the servers."""

_CALL_MODELS = ("sandbox-controller", "portal")
"""Services that speak to model providers, and so need their keys."""

_STORE_OBJECTS = ("portal", "api")
"""Services that speak to the object store, and so need its keys where it is not the broker."""

_SERVER_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
"""What NATS and PostgreSQL get of our environment; they need none of its secrets."""


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One supervised process."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    after: tuple[str, ...] = ()
    """Processes that must be ready before its first start. Later it finds them again by itself."""
    readiness: Readiness = "notify"
    """`notify`: it sends READY=1 to $NOTIFY_SOCKET. `probe`: the supervisor is given a way to look."""
    stop_signal: signal.Signals = signal.SIGTERM
    orphan_signal: signal.Signals | None = None
    """What the kernel ends it with when the supervisor dies (Linux); none: `stop_signal`."""
    rank: Rank = "service"
    """Services stop first, the servers they use after them."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment of the services is made from."""

    python: str
    nats_command: tuple[str, ...]
    nats_url: str
    nats_health: str | None = None
    """URL of the broker's health page; None where there is none, as in maintenance."""
    postgres_command: tuple[str, ...]
    database_url: str
    data_dir: Path
    run_dir: Path
    keys_dir: Path
    creds_dir: Path
    token_file: Path
    config: Path | None
    host: str
    port: int
    isolation: str | None
    """`--isolation` of the command line, which goes before the file; None when not given."""
    log_level: str
    programs: Mapping[str, str]
    """`VALET_<NAME>_BIN` variables: opencode, bwrap, rg, git."""
    key_variables: frozenset[str]
    """Environment variables that hold model providers' keys."""
    object_variables: frozenset[str] = frozenset()
    """Environment variables that hold the object store's keys."""


def build(facts: Facts, inherited: Mapping[str, str], modules: Iterable[tuple[str, str]]) -> tuple[ProcessSpec, ...]:
    """The processes of the platform. `inherited` is our own environment, `modules` those of `SERVICE_MODULES`
    to run.
    """
    plain = {name: inherited[name] for name in _SERVER_ENVIRONMENT if name in inherited} | {"LC_ALL": "C"}
    servers = (
        ProcessSpec(name="nats", command=facts.nats_command, environment=plain, readiness="probe", rank="server"),
        ProcessSpec(
            name="postgres",
            command=facts.postgres_command,
            environment=plain,
            readiness="probe",
            rank="server",
            stop_signal=signal.SIGINT,  # fast shutdown; SIGTERM would wait for its clients
        ),
    )
    services = tuple(_process(facts, inherited, members) for members in _processes(modules))
    return servers + services


def _processes(modules: Iterable[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Services by process, in their order."""
    processes: list[list[tuple[str, str]]] = []
    together: list[tuple[str, str]] = []
    for one in modules:
        if one[0] not in _TOGETHER:
            processes.append([one])
            continue
        if not together:
            processes.append(together)
        together.append(one)
    return processes


def _process(facts: Facts, inherited: Mapping[str, str], members: Sequence[tuple[str, str]]) -> ProcessSpec:
    """The process of one service, or of several that are one."""
    (service, module), *others = members
    if not others:
        return ProcessSpec(
            name=service,
            command=(facts.python, "-P", "-m", module),
            environment=service_environment(facts, inherited, service),
            # told to stop, it ends its sandboxes; a supervisor that was killed is to find them at work again
            orphan_signal=signal.SIGKILL if service == "sandbox-controller" else None,
            after=_AFTER.get(service, ("nats", "postgres")),
        )
    pairs = (f"{name}={module}" for name, module in members)
    return ProcessSpec(
        name="+".join(name for name, _ in members),
        command=(facts.python, "-P", "-m", "valet_service.host", *pairs),
        environment={
            **service_environment(facts, inherited, service),
            # each takes its own from there
            "VALET_NATS_CREDS": str(facts.creds_dir),
        },
        after=("nats", "postgres"),
    )


def service_environment(facts: Facts, inherited: Mapping[str, str], service: str) -> dict[str, str]:
    """The environment of one service."""
    environment = {
        name: value
        for name, value in masked(inherited, facts.key_variables, facts.object_variables, service).items()
        if not name.startswith("VALET_") and name != "NOTIFY_SOCKET"
    }
    environment |= {
        "VALET_NATS_URL": facts.nats_url,
        "VALET_NATS_CREDS": str(facts.creds_dir / f"{service}.creds"),
        "VALET_DATABASE_URL": facts.database_url,
        "VALET_DATA_DIR": str(facts.data_dir),
        "VALET_RUN_DIR": str(facts.run_dir),
        "VALET_KEYS_DIR": str(facts.keys_dir),
        "VALET_LOG_LEVEL": facts.log_level,
        "VALET_SHARDS": inherited.get("VALET_SHARDS", "0-15"),
        "VALET_API_HOST": facts.host,
        "VALET_API_PORT": str(facts.port),
        # glibc gives every thread an arena of its own otherwise: tens of MB that are never used.
        "MALLOC_ARENA_MAX": "2",
        **facts.programs,
    }
    if facts.config is not None:
        environment["VALET_CONFIG"] = str(facts.config)
    if facts.isolation is not None:
        environment["VALET_ISOLATION"] = facts.isolation
    if service == "api":
        environment["VALET_ADMIN_TOKEN_FILE"] = str(facts.token_file)
        if facts.nats_health is not None:
            environment["VALET_NATS_HEALTH"] = facts.nats_health
    return environment


def masked(
    environment: Mapping[str, str], models: frozenset[str], objects: frozenset[str], service: str
) -> dict[str, str]:
    """An environment in which only a service that calls models sees the models' keys, and only one that stores
    objects the object store's. Both are names of variables.

    Others may ask whether a key is there; what it is, only those who use it need to know.
    """
    seen = (models if service in _CALL_MODELS else frozenset()) | (
        objects if service in _STORE_OBJECTS else frozenset()
    )
    hidden = (models | objects) - seen
    return {name: "set" if name in hidden and value else value for name, value in environment.items()}
