"""What an agent in a real bubblewrap cannot do."""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from valet_sandbox_controller.errors import IsolationUnavailable, ProviderFailed
from valet_sandbox_controller.provider import HostRepository, Limits
from valet_sandbox_controller.providers.cgroups import ControlGroups
from valet_sandbox_controller.testing import LocalProvider, answer, start


async def test_host_processes_are_not_visible(bwrap: LocalProvider) -> None:
    task = "import os\nanswer([int(p) for p in os.listdir('/proc') if p.isdigit()])"
    pids = await answer(bwrap, "S1", task, list[int])
    assert len(pids) < 10
    assert max(pids) < 100


async def test_it_has_no_capability_and_may_not_make_namespaces(bwrap: LocalProvider) -> None:
    task = """
import ctypes, os
lines = dict(l.split(':\\t') for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)
new_user_namespace = ctypes.CDLL(None, use_errno=True).unshare(0x10000000)
answer([os.getuid(), lines['CapEff'], lines['CapBnd'], lines['NoNewPrivs'].strip(), new_user_namespace])
"""
    uid, effective, bounding, no_new_privileges, unshared = await answer(bwrap, "S1", task, list[int | str])
    assert (uid, no_new_privileges, unshared) == (1000, "1", -1)
    assert int(str(effective), 16) == int(str(bounding), 16) == 0


async def test_kernel_settings_of_the_host_cannot_be_written(bwrap: LocalProvider) -> None:
    # asks for the permission and opens nothing: a failing test must not change the machine it runs on
    task = """
import os
files = [os.path.join(directory, f) for directory, _, names in os.walk('/proc/sys') for f in names]
writable = [f for f in files if os.access(f, os.W_OK)]
answer([len(writable), *writable[:3], os.path.exists('/sys/kernel')])
"""
    assert await answer(bwrap, "S1", task, list[int | str | bool]) == [0, False]


async def test_the_hosts_loopback_is_not_reachable_and_there_is_no_route_out(bwrap: LocalProvider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        task = f"""
import socket
def to(host, port): return lambda: socket.create_connection((host, port), 2)
answer([attempt(to('127.0.0.1', {port})), attempt(to('192.0.2.1', 80))])
"""
        loopback, outside = await answer(bwrap, "S1", task, list[tuple[bool, str]])
    assert loopback == (False, "ConnectionRefusedError: [Errno 111] Connection refused")
    assert not outside[0]
    assert "unreachable" in outside[1]


async def test_host_files_are_neither_visible_nor_writable(bwrap: LocalProvider, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    task = f"""
import os
answer({{
  'secret': os.path.exists({str(secret)!r}),
  'shadow': os.path.exists('/etc/shadow'),
  'ssh': os.path.exists('/etc/ssh'),
  'private': os.path.exists('/etc/ssl/private'),
  'home': os.path.exists(os.path.expanduser('~root/.ssh')),
  'var': os.path.exists('/var/lib'),
  'usr': os.access('/usr/bin', os.W_OK) and attempt(lambda: open('/usr/bin/valet-test', 'w'))[0],
  'etc': attempt(lambda: open('/etc/passwd', 'a'))[0],
  'spec': os.path.exists('/run/valet/runner.json'),
  'portal': attempt(lambda: open('/run/valet/portal/x', 'w'))[0],
  'others': os.path.exists({str(tmp_path / "data" / "sandboxes")!r}),
}})
"""
    found = await answer(bwrap, "S1", task, dict[str, bool])
    assert [name for name, possible in found.items() if possible] == []


async def test_nothing_can_be_put_where_the_runners_programs_look(bwrap: LocalProvider) -> None:
    # e.g. /etc/ld.so.preload: what the runner starts after that would run it, with what it is told
    task = """
import os
folders = ['/', '/etc', '/etc/ld.so.conf.d', '/opt', '/run', '/run/valet', '/usr', '/usr/local/lib', '/var', '/home',
           '/lib', '/bin']
answer([f for f in folders if os.path.isdir(f) and attempt(lambda: open(os.path.join(f, 'valet-test'), 'w'))[0]])
"""
    assert await answer(bwrap, "S1", task, list[str]) == []


async def test_workspace_home_and_tmp_are_writable_and_the_programs_are_there(bwrap: LocalProvider) -> None:
    task = """
import os, shutil, subprocess
for d in ('/workspace', os.environ['HOME'], '/tmp', '/dev/shm'): open(d + '/t', 'w').close()
answer([os.getcwd(), os.environ['HOME'], bool(shutil.which('git')), bool(shutil.which('sh')), shutil.which('opencode'),
        subprocess.run(['python3', '-c', 'import unittest; print(1)'], capture_output=True, text=True).stdout.strip(),
        ','.join(sorted(os.environ))])
"""
    cwd, home, git, shell, opencode, python, names = await answer(bwrap, "S1", task, list[str | bool])
    assert (cwd, home, git, shell, opencode, python) == (
        "/workspace",
        "/home/agent",
        True,
        True,
        "/run/valet/bin/opencode",
        "1",
    )
    assert "KEY" not in str(names)
    assert "NATS" not in str(names)


async def test_the_environment_of_the_platform_does_not_get_in(
    bwrap: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-real-key")
    task = (
        "import glob\nanswer(any(b'the-real-key' in open(p, 'rb').read() for p in glob.glob('/proc/[0-9]*/environ')))"
    )
    assert await answer(bwrap, "S1", task, bool) is False


async def test_the_runners_packages_can_be_imported(bwrap: LocalProvider) -> None:
    task = "import valet_protocol.codec, valet_service.outbox, valet_runner, httpx\nanswer(valet_runner.__name__)"
    assert await answer(bwrap, "S1", task, str) == "valet_runner"


async def test_a_host_repository_is_shown_read_only(bwrap: LocalProvider, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "a").write_text("content")
    task = """
answer([open('/run/valet/source/a').read(), attempt(lambda: open('/run/valet/source/a', 'w'))[0]])
"""
    assert await answer(bwrap, "S1", task, list[str | bool], source=HostRepository(path=repo)) == ["content", False]


async def test_a_sandbox_may_not_use_more_processes_than_allowed(bwrap: LocalProvider) -> None:
    task = """
import subprocess
started = []
def more(): started.append(subprocess.Popen(['sleep', '60']))
result = [True]
while result[0] and len(started) < 200: result = attempt(more)
answer([len(started), result[0]])
"""
    count, unlimited = await answer(bwrap, "S1", task, list[int | bool], limits=Limits(memory_mb=512, cpus=1, pids=40))
    if unlimited:
        pytest.skip("control groups are not writable here, and root is exempt from the limit on processes")
    assert int(count) < 40


async def test_a_sandbox_that_takes_too_much_memory_is_killed_and_nothing_else(bwrap: LocalProvider) -> None:
    if "memory" not in ControlGroups().controllers:
        pytest.skip("the memory control group is not writable here")
    task = "taken = [bytearray(b'x' * (16 << 20)) for _ in range(64)]"
    ref = await start(bwrap, "S1", task, limits=Limits(memory_mb=256, cpus=1, pids=64))
    assert (await asyncio.wait_for(bwrap.wait(ref), 30)).exit_code == 137


async def test_the_exit_code_of_the_runner_is_known(bwrap: LocalProvider) -> None:
    ref = await start(bwrap, "S1", "raise SystemExit(7)")
    assert (await asyncio.wait_for(bwrap.wait(ref), 10)).exit_code == 7


async def test_a_mount_that_fails_is_reported_in_bwraps_words_and_leaves_nothing(
    bwrap: LocalProvider, tmp_path: Path
) -> None:
    with pytest.raises(ProviderFailed, match="source path"):
        await start(bwrap, "S1", "", source=HostRepository(path=tmp_path / "missing"))
    assert not bwrap.storage.of("S1").record.exists()


async def test_a_missing_bwrap_is_named_with_what_to_do(bwrap: LocalProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("valet_sandbox_controller.providers.host.bwrap_candidates", lambda programs: ["/bin/false"])
    with pytest.raises(IsolationUnavailable, match="apt-get install bubblewrap"):
        await bwrap.check()


async def test_the_start_of_a_sandbox_leaves_no_descriptor_open(bwrap: LocalProvider) -> None:
    ref = await start(bwrap, "S1", "pass")
    await bwrap.wait(ref)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        ref = await start(bwrap, f"S{number}", "pass")
        await bwrap.wait(ref)
    assert len(os.listdir("/proc/self/fd")) <= before
