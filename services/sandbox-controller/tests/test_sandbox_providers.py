"""What every provider promises, held against each local one with real processes.

A new provider joins by adding its kind to `KINDS` and to `testing.local_provider`'s counterpart.
"""

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from valet_sandbox_controller import testing
from valet_sandbox_controller.errors import ProviderFailed
from valet_sandbox_controller.provider import Capability, Ended, Running, SandboxRef
from valet_sandbox_controller.providers import processes
from valet_sandbox_controller.providers.storage import SOCKET, Storage
from valet_sandbox_controller.testing import LocalProvider, answer, start, until

KINDS = ("bwrap", "none")
MakeProvider = Callable[[str], LocalProvider]


@pytest.fixture(params=KINDS)
def provider(request: pytest.FixtureRequest, make_provider: MakeProvider) -> LocalProvider:
    return make_provider(request.param)


async def _started(provider: LocalProvider, session: str = "S1", task: str = testing.SLEEPING) -> SandboxRef:
    ref = await start(provider, session, task)
    await until((provider.storage.of(session).workspace / "started").exists)
    return ref


async def test_check_passes_on_this_machine(provider: LocalProvider) -> None:
    await provider.check()


async def test_a_started_sandbox_is_running_and_a_stored_reference_finds_it(
    provider: LocalProvider, make_provider: MakeProvider
) -> None:
    ref = await _started(provider)
    stored = msgspec.json.decode(msgspec.json.encode(ref), type=SandboxRef)
    other = make_provider("none" if provider.isolation == "none" else "bwrap")
    assert await other.status(stored) == Running()


async def test_the_end_is_noticed_within_a_second(provider: LocalProvider) -> None:
    ref = await _started(provider)
    waiting = asyncio.create_task(provider.wait(ref))
    await asyncio.sleep(0)
    runner = processes.children(ref.pid)[0] if Capability.ISOLATED in provider.capabilities else ref.pid
    began = time.monotonic()
    processes.send(runner, processes.start_time(runner) or 0, signal.SIGKILL)
    await asyncio.wait_for(waiting, 5)
    assert time.monotonic() - began < 1.0
    assert isinstance(await provider.status(ref), Ended)


async def test_what_the_runner_leaves_behind_ends_with_it(provider: LocalProvider) -> None:
    task = "import subprocess\nsubprocess.Popen(['sleep', '98765.5'])\nopen('started', 'w').close()\n"
    ref = await _started(provider, task=task)
    await asyncio.wait_for(provider.wait(ref), 5)
    assert isinstance(await provider.status(ref), Ended)
    await until(lambda: not _running("98765.5"))


async def test_terminate_asks_first_and_returns_when_it_is_gone(provider: LocalProvider) -> None:
    task = (
        "import signal, sys, time\n"
        "def end(*_):\n    open('asked', 'w').close(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nopen('started', 'w').close()\nwhile True: time.sleep(60)\n"
    )
    ref = await _started(provider, task=task)
    await provider.terminate(ref, grace=5)
    assert (provider.storage.of("S1").workspace / "asked").exists()
    assert isinstance(await provider.status(ref), Ended)


async def test_terminate_kills_what_does_not_listen_and_all_its_children(provider: LocalProvider) -> None:
    task = (
        "import signal, subprocess, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '98765.25'])\nopen('started', 'w').close()\nwhile True: time.sleep(60)\n"
    )
    ref = await _started(provider, task=task)
    began = time.monotonic()
    await provider.terminate(ref, grace=0.2)
    assert time.monotonic() - began < 2
    await until(lambda: not _running("98765.25"))


async def test_terminate_kills_a_stopped_sandbox_and_all_it_started_wherever_that_moved(
    provider: LocalProvider,
) -> None:
    task = (
        "import os, subprocess, time\nsubprocess.Popen(['sleep', '98765.125'])\n"
        "subprocess.Popen(['sleep', '98765.0625'], start_new_session=True)\n"
        "subprocess.Popen(['sleep', '98765.03125'], start_new_session=True, env={})\n"
        # a daemon: its parent is gone
        "if os.fork() == 0:\n"
        "    os.setsid()\n    subprocess.Popen(['sleep', '98765.015625'], start_new_session=True)\n    os._exit(0)\n"
        "os.wait()\nopen('started', 'w').close()\nwhile True: time.sleep(60)\n"
    )
    ref = await _started(provider, task=task)
    everything = [
        (ref.pid, ref.start_time),
        (ref.monitor, ref.monitor_start_time),
        *processes.descendants(ref.pid),
        *(_pid("98765.015625") if Capability.ISOLATED not in provider.capabilities else []),
    ]
    assert len(everything) >= 5
    for pid, started in everything:
        if pid:
            processes.send(pid, started, signal.SIGSTOP)
    began = time.monotonic()
    await provider.terminate(ref, grace=0)
    assert time.monotonic() - began < 2
    assert isinstance(await provider.status(ref), Ended)
    for argument in ("98765.125", "98765.0625", "98765.03125", "98765.015625"):
        assert not _running(argument), argument


async def test_terminate_twice_and_of_a_stranger_is_harmless(provider: LocalProvider) -> None:
    ref = await _started(provider)
    await provider.terminate(ref, grace=0)
    await provider.terminate(ref, grace=0)
    own = SandboxRef(provider=ref.provider, id="S2", pid=1, start_time=1)
    await provider.terminate(own, grace=0)
    assert await provider.status(own) == Ended(None)


async def test_the_workspace_outlives_the_sandbox_until_it_is_deleted(provider: LocalProvider) -> None:
    ref = await _started(provider)
    await provider.terminate(ref, grace=0)
    workspace = provider.storage.of("S1").workspace
    assert (workspace / "started").exists()
    (workspace / "locked").mkdir()
    (workspace / "locked" / "file").touch()
    (workspace / "locked").chmod(0o500)
    await provider.delete_workspace("S1")
    assert not workspace.exists()
    await provider.delete_workspace("S1")


async def test_what_a_crash_in_the_middle_of_a_start_left_is_ended(
    provider: LocalProvider, make_provider: MakeProvider
) -> None:
    ref = await _started(provider)
    # a fresh controller knows nothing but the session's name
    other = make_provider("none" if provider.isolation == "none" else "bwrap")
    await other.abandon("S1")
    assert isinstance(await provider.status(ref), Ended)
    await other.abandon("S1")


async def test_the_runner_is_told_on_its_standard_input_and_no_file_says_it(provider: LocalProvider) -> None:
    # longer than a pipe is by itself, as the specification with many models may be
    spec = msgspec.json.encode({"secret": "the-runners-secret", "pad": "x" * 200_000})
    task = "import os, sys\ntold = json.load(sys.stdin)\nanswer([told['secret'], os.environ['VALET_RUNNER_SPEC']])"
    assert await answer(provider, "S1", task, list[str], runner_spec=spec) == ["the-runners-secret", "-"]
    root = provider.storage.of("S1").root
    assert not [path for path in root.rglob("*") if path.is_file() and b'runners-secret", "pad' in path.read_bytes()]


async def test_what_is_too_long_for_a_pipe_is_refused_with_what_to_do(provider: LocalProvider) -> None:
    with pytest.raises(ProviderFailed, match="fewer models"):
        await start(provider, "S1", testing.SLEEPING, runner_spec=b"x" * ((1 << 20) + 1))
    assert not provider.storage.of("S1").record.exists()


async def test_the_gateways_folder_is_there_as_long_as_its_sandbox(provider: LocalProvider) -> None:
    task = (
        "import os, socket, time\nserver = socket.socket(socket.AF_UNIX)\n"
        f"server.bind({provider.places('S1').gateway_socket!r})\nserver.listen()\n"
        "open('started', 'w').close()\nserver.accept()[0].sendall(b'hello')\ntime.sleep(60)\n"
    )
    folder = provider.storage.of("S1").gateway
    folder.mkdir(parents=True)
    (folder / "s").touch()  # of a sandbox that was killed
    ref = await _started(provider, task=task)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / "s"))
        assert client.recv(5) == b"hello"
    await provider.terminate(ref, grace=0)
    assert not folder.exists()
    assert not provider.storage.of("S1").record.exists()


def test_a_gateways_socket_fits_into_the_longest_run_directory(tmp_path: Path) -> None:
    longest = Path("/" + "r" * 69)
    files = Storage(tmp_path, longest).of("0" * 26)
    assert len(str(files.gateway / SOCKET)) < 107


async def test_a_log_that_grew_too_long_is_cut_while_it_is_written(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("valet_sandbox_controller.limits.LOG_BYTES", 1000)
    task = (
        "import os, sys, time\nprint('x' * 5000, file=sys.stderr, flush=True)\nopen('started', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "print('after', file=sys.stderr, flush=True)\ntime.sleep(60)\n"
    )
    ref = await _started(provider, task=task)
    await provider.tidy()
    files = provider.storage.of("S1")
    assert files.log.stat().st_size == 0
    (files.workspace / "go").touch()
    await until(lambda: files.log.read_text() == "after\n")
    await provider.terminate(ref, grace=0)


def _pid(argument: str) -> list[tuple[int, int]]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [(pid, processes.start_time(pid) or 0) for pid in pids if argument in processes.command_line(pid)]


def _running(argument: str) -> bool:
    return any(
        argument in processes.command_line(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit()
    )
