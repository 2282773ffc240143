"""Running a service's maintenance module against the servers of an installation, whether the platform is up
or not.
"""

import asyncio
import os
import sys
from pathlib import Path

from valet_local import lock, postgres
from valet_local.assembly import Options, assemble
from valet_local.journal import Journal
from valet_local.layout import Layout, layout, prepare
from valet_local.plan import Facts, service_environment
from valet_local.state import State, running
from valet_local.supervisor import Supervisor


def run_module(data_dir: Path, service: str, module: str, *arguments: str) -> int:
    """`python -m module arguments` with the environment of `service`; its exit status. Its output goes to the
    terminal.

    On a running platform it uses the servers that run; otherwise the two servers are started for the
    duration. Raises `LocalError`s.
    """
    places = layout(data_dir)
    state = running(places)
    if state is not None:
        return asyncio.run(_run(_facts_of(places, state), service, module, arguments))
    prepare(places)
    with lock.acquire(places.lock):
        return asyncio.run(_run_with_servers(places, service, module, arguments))


async def _run_with_servers(places: Layout, service: str, module: str, arguments: tuple[str, ...]) -> int:
    journal = Journal(places.logs / "supervisor.log", quiet=True)
    assembly = assemble(places, Options(data_dir=places.data, port=0), journal)
    servers = tuple(spec for spec in assembly.specs if spec.rank == "server")
    supervisor = Supervisor(servers, assembly.edges)
    try:
        await supervisor.start()
        return await _run(assembly.facts, service, module, arguments)
    finally:
        await supervisor.stop()
        places.processes.unlink(missing_ok=True)


async def _run(facts: Facts, service: str, module: str, arguments: tuple[str, ...]) -> int:
    child = await asyncio.create_subprocess_exec(
        facts.python, "-m", module, *arguments, env=service_environment(facts, os.environ, service)
    )
    return await child.wait()


def _facts_of(places: Layout, state: State) -> Facts:
    return Facts(
        python=sys.executable,
        nats_command=(),
        nats_url=state.nats_url,
        postgres_command=(),
        database_url=postgres.url(places.run / "postgres"),
        data_dir=places.data,
        run_dir=places.run,
        keys_dir=places.keys,
        creds_dir=places.creds,
        token_file=places.token,
        config=None,
        host="127.0.0.1",
        port=0,
        isolation=None,
        log_level="info",
        programs={},
        key_variables=frozenset(),
    )
