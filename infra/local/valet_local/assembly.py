"""Prepares all a platform runs on and draws up its plan; starts nothing that stays."""

import asyncio
import importlib.util
import os
import sys
from pathlib import Path

import msgspec
from valet_service.config_file import ValetConfig

from valet_local import config, isolation, keys, leftovers, limits, nats, plan, ports, postgres, provision
from valet_local.errors import ToolMissing
from valet_local.journal import Journal
from valet_local.layout import Layout
from valet_local.plan import Facts, ProcessSpec
from valet_local.state import State
from valet_local.supervisor import Edges

DEFAULT_PORT = 8700
"""Where people find the platform when they do not say otherwise; no well-known service claims it."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 for a free one."""
    config: Path | None = None
    isolation: str | None = None
    """`bwrap` or `none`; goes before what the file says."""
    log_level: str = "info"
    services: tuple[str, ...] | None = None
    """Which services to run, by name; None for all. NATS and PostgreSQL always run."""
    quiet: bool = False


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """A platform ready to be supervised."""

    config: ValetConfig
    facts: Facts
    specs: tuple[ProcessSpec, ...]
    edges: Edges
    state: State
    """What `valet.json` will say."""


def assemble(places: Layout, options: Options, journal: Journal) -> Assembly:
    """For the holder of the data directory's lock. Raises `LocalError`s and `ConfigError`, the cheap checks
    first.
    """
    configuration = config.load(places.data, options.config)
    binary = nats.find_binary()
    nats.check_version(binary)
    modules = _modules(options)
    kind = options.isolation or configuration.config.sandbox.isolation
    if kind == "bwrap" and any(name == "sandbox-controller" for name, _ in modules):
        isolation.require()
    if count := leftovers.end_processes(places):
        journal.say(f"Ended {count} processes that an earlier run had left")
    port = ports.choose(options.port, options.host)
    programs = provision.ensure_tools(places, progress=lambda *_: None)
    secrets = keys.ensure(places)
    broker = nats.prepare(places, secrets.trust, binary)
    postgres.clear_remains(places.postgres)
    database = postgres.prepare(places)
    facts = Facts(
        python=sys.executable,
        nats_command=(str(broker.binary), "-c", str(broker.config)),
        nats_url=broker.url,
        nats_health=broker.health,
        postgres_command=database.command,
        database_url=database.url,
        data_dir=places.data,
        run_dir=places.run,
        keys_dir=places.keys,
        creds_dir=places.creds,
        token_file=places.token,
        config=configuration.path,
        host=options.host,
        port=port,
        isolation=options.isolation,
        log_level=options.log_level,
        programs=programs.environment(),
        key_variables=config.key_variables(configuration.config),
        object_variables=config.object_variables(configuration.config),
    )
    state = State(
        url=f"http://{_in_url(options.host)}:{port}",
        token=secrets.token,
        nats_url=broker.url,
        pid=os.getpid(),
        nats_creds=str(places.creds / "subscriber.creds"),
    )
    specs = plan.build(facts, os.environ, modules)
    return Assembly(
        config=configuration.config,
        facts=facts,
        specs=specs,
        edges=_edges(places, broker.port, database, journal),
        state=state,
    )


def _modules(options: Options) -> list[tuple[str, str]]:
    """The services to run, as in `plan.SERVICE_MODULES`. Raises `ToolMissing` for one that is not installed."""
    wanted = [
        (name, module) for name, module in plan.SERVICE_MODULES if options.services is None or name in options.services
    ]
    for name, module in wanted:
        if not _runnable(module):
            raise ToolMissing(f"the service {name} ({module}) is not installed. Install Valet again")
    return wanted


def _runnable(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
    except ModuleNotFoundError:
        return False
    return spec is not None


def _edges(places: Layout, nats_port: int, database: postgres.Postgres, journal: Journal) -> Edges:
    async def nats_ready(pid: int) -> None:
        await nats.wait_ready(nats_port)

    async def postgres_ready(pid: int) -> None:
        while not postgres.is_ready(database.data, pid):  # noqa: ASYNC110 - another process writes a file
            await asyncio.sleep(limits.POLL)

    return Edges(
        logs=places.logs,
        sockets=places.run / "notify",
        record=places.processes,
        probes={"nats": nats_ready, "postgres": postgres_ready},
        before_start={"postgres": lambda: postgres.clear_remains(database.data)},
        report=journal.note,
    )


def _in_url(host: str) -> str:
    """The address a client on this machine uses for a listening address."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
