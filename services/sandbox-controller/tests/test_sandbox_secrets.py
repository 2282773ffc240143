"""What a runner was told, looked for from inside its sandbox by what the agent could start; and what it is shown."""

import asyncio
import signal
import sys
from pathlib import Path

import msgspec
from valet_sandbox_controller.providers import host
from valet_sandbox_controller.testing import LocalProvider, answer, until

LOOKING = """
import glob, os
seen = []
for path in glob.glob('/proc/[0-9]*/fd/*') + glob.glob('/proc/[0-9]*/environ') + glob.glob('/run/valet/**/*'):
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        seen.append(os.read(file, 1 << 20))
    except OSError:
        continue
print(len(seen), any(b'the-runners' + b'-secret' in each for each in seen))
"""


async def test_what_the_runner_was_told_is_nowhere_once_it_has_read_it(bwrap: LocalProvider) -> None:
    spec = msgspec.json.encode({"creds": "the-runners-secret"})
    task = f"""
import subprocess, sys
told = json.load(sys.stdin)
found = subprocess.run([sys.executable, '-c', {LOOKING!r}], stdin=subprocess.DEVNULL, capture_output=True, text=True)
answer([told['creds'], *found.stdout.split()])
"""
    told, looked_at, found = await answer(bwrap, "S1", task, list[str], runner_spec=spec)
    assert told == "the-runners-secret"
    assert int(looked_at) > 3
    assert found == "False"


async def test_a_runner_is_told_though_its_controller_is_killed_before_it_listens(
    bwrap: LocalProvider, tmp_path: Path, run_dir: Path
) -> None:
    task = "import os, sys, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    task += "told = sys.stdin.read()\nopen('told', 'w').write(told)\n"
    script = f"""
import asyncio, os
from pathlib import Path
from valet_sandbox_controller.testing import local_provider, start
async def main():
    provider = local_provider('bwrap', Path({str(tmp_path / "data")!r}), Path({str(run_dir)!r}))
    await start(provider, 'S1', {task!r}, runner_spec=b'x' * 100_000)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    controller = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await asyncio.wait_for(controller.wait(), 30) == -signal.SIGKILL
    files = bwrap.storage.of("S1")
    (files.workspace / "go").touch()
    await until((files.workspace / "told").exists)
    await until(lambda: (files.workspace / "told").read_text() == "x" * 100_000)


async def test_the_terminals_page_and_what_serves_it_are_shown(bwrap: LocalProvider, tmp_path: Path) -> None:
    (tmp_path / "page" / "xterm").mkdir(parents=True)
    bwrap._programs = host.Programs(opencode="/bin/true", xterm=str(tmp_path / "page"))
    assert bwrap.places("S1").xterm_dir == "/run/valet/xterm"
    task = """
import os, valet_gateway, valet_processes
answer([os.listdir('/run/valet/xterm'), attempt(lambda: open('/run/valet/xterm/x', 'w'))[0]])
"""
    assert await answer(bwrap, "S1", task, list[list[str] | bool]) == [["xterm"], False]


async def test_a_terminals_page_that_could_not_be_fetched_is_none(bwrap: LocalProvider, tmp_path: Path) -> None:
    bwrap._programs = host.Programs(opencode="/bin/true", xterm=str(tmp_path / "missing"))
    assert bwrap.places("S1").xterm_dir is None
