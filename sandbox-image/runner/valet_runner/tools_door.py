"""The agent's tools, put together with what the runner has, and served where the gateway looks for them."""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from nats.aio.client import Client
from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner.machine import Machine
from valet_runner.objects import Objects
from valet_runner.publisher import Publisher


@contextlib.asynccontextmanager
async def serving(
    spec: RunnerSpec,
    machine: Machine,
    *,
    nc: Client,
    publisher: Publisher,
    objects: Objects,
    base_commit: str | None,
    env: Mapping[str, str],
) -> AsyncIterator[None]:
    """Serve the tools. Their library takes most of a second to load (measured), so it is loaded beside everything else
    that starts, and only where there is a gateway."""
    for module in ("serving", "local", "platform", "running", "answers"):
        await asyncio.to_thread(importlib.import_module, f"valet_runner.tools.{module}")
    from valet_runner.tools import answers, local, platform, running
    from valet_runner.tools.serving import serving as serve

    tools = running.Tools(
        session_id=spec.session_id,
        orchestrator=spec.orchestrator,
        platform=platform.Platform(nc).call,
        local=local.handlers(
            spec,
            env=env,
            base_commit=base_commit,
            say=publisher.say,
            objects=objects,
            control_socket=str(machine.control_socket),
        ),
        turn=lambda: publisher.turn,
        answers=answers.Answers(Path(spec.home)),
    )
    async with serve(machine.tools_socket, tools):
        yield
