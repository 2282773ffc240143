"""For tests of sandboxes: a runner that does what a file in the workspace says, in place of the real one."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from valet_sandbox_controller.provider import HostRepository, Limits, SandboxRef, SandboxSpec
from valet_sandbox_controller.providers.bubblewrap import BubblewrapProvider
from valet_sandbox_controller.providers.host import Programs
from valet_sandbox_controller.providers.process import ProcessProvider
from valet_sandbox_controller.providers.storage import Storage

T = TypeVar("T")

SCRIPTED = (sys.executable, "-c", "exec(compile(open('task.py').read(), 'task.py', 'exec'))")
"""Runs `task.py` of the workspace, which is its working directory, as a runner would run."""

SLEEPING = "import time\nopen('started', 'w').close()\nwhile True: time.sleep(60)\n"
"""A task that says that it has started and then stays."""

LocalProvider = BubblewrapProvider | ProcessProvider


def local_provider(kind: str, data_dir: Path, run_dir: Path) -> LocalProvider:
    """A provider of real local sandboxes (`bwrap` or `none`) with the scripted runner. `true` plays OpenCode."""
    storage = Storage(data_dir, run_dir)
    programs = Programs(opencode="/bin/true")
    if kind == "none":
        return ProcessProvider(storage=storage, run_dir=run_dir, data_dir=data_dir, programs=programs, command=SCRIPTED)
    return BubblewrapProvider(storage=storage, run_dir=run_dir, data_dir=data_dir, programs=programs, command=SCRIPTED)


async def start(
    provider: LocalProvider,
    session_id: str,
    task: str,
    *,
    runner_spec: bytes = b"{}",
    source: HostRepository | None = None,
    limits: Limits | None = None,
) -> SandboxRef:
    """Start a sandbox whose runner does `task` (Python source)."""
    workspace = provider.storage.of(session_id).workspace
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "task.py").write_text(task)
    spec = SandboxSpec(
        session_id=session_id,
        epoch=1,
        runner_spec=runner_spec,
        source=source,
        limits=limits or Limits(memory_mb=1024, cpus=2, pids=256),
    )
    return await provider.create(spec)


async def answer(provider: LocalProvider, session_id: str, task: str, kind: type[T], **options: object) -> T:
    """What a task leaves in `answer.json`, once its sandbox has ended."""
    file = provider.storage.of(session_id).workspace / "answer.json"
    file.unlink(missing_ok=True)
    ref = await start(provider, session_id, _ANSWERING + task, **options)  # type: ignore[arg-type]
    await asyncio.wait_for(provider.wait(ref), 20)
    assert file.exists(), provider.storage.log_tail(session_id, 0)
    return msgspec.json.decode(file.read_bytes(), type=kind)


async def until(condition: Callable[[], T], seconds: float = 10.0) -> T:
    """Wait for something to become true; gives what the condition gave. Raises `AssertionError` when it does not."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)
    return value


_ANSWERING = """
import json
def answer(value):
    with open('answer.json', 'w') as file: json.dump(value, file)
def attempt(action):
    try:
        return [True, str(action())]
    except BaseException as error:
        return [False, f'{type(error).__name__}: {error}']
"""
