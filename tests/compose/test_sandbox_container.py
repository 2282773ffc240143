"""The sandbox image as a container that is a sandbox: `/start.sh`, as its README says.

Real: the engine, the image, everything in it, NATS. Not real: the model, the ledger, the portal. The image has to be
there: `docker build -f sandbox-image/Dockerfile -t valet-sandbox:0.1.0 .`
"""

import asyncio
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio
import yaml
from valet_local.model import ScriptedModel, load_builtin
from valet_protocol.events import agent, machine
from valet_protocol.ids import new_id
from valet_protocol.sandbox_spec import ModelSpec, ProviderSpec, RunnerSpec
from valet_runner.testing import Broker, Ledger, Portal
from valet_service import sandbox_token

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
COMMAND = 120.0
"""Seconds for a command of the engine; a commit of a sandbox on a busy machine takes ten."""

HEALTHY = 120.0
"""Seconds from `docker run` until the container's own check has seen it serve."""


def run(*arguments: str) -> str:
    """The output of a command of the engine. Raises `CalledProcessError`."""
    command = ["docker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND, check=True).stdout.strip()


async def docker(*arguments: str) -> str:
    """The same beside the event loop, on which the sandbox's portal, model and ledger work."""
    return await asyncio.to_thread(run, *arguments)


@pytest.fixture(scope="module")
def image() -> str:
    name = yaml.safe_load(COMPOSE.read_text())["services"]["sandbox-controller"]["image"]
    try:
        run("image", "inspect", name)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
        pytest.skip(f"no engine has the image {name}: {reason}")
    return name


class Container:
    """A session whose sandbox is a container; each start is a new epoch."""

    def __init__(self, spec: RunnerSpec, log: Ledger, folder: Path) -> None:
        self.spec = spec
        self.log = log
        self._folder = folder
        self._runs: list[tuple[str, subprocess.Popen[bytes]]] = []

    @property
    def name(self) -> str:
        return self._runs[-1][0]

    async def start(self, image: str) -> None:
        """`docker run`, then wait until the runner is ready and what is optional has been looked for."""
        mark = len(self.log.events)
        epoch = self.log.current_epoch = len(self._runs) + 1
        self._run(image, epoch)
        await self.log.until(agent.RunnerReady, after=mark)
        for step in ("desktop", "vscode", "terminal", "gateway"):
            await self.log.until(machine.BootStepCompleted, lambda said, s=step: said.step == s, after=mark)
        self.steps = {
            event.data.step: event.data.outcome
            for event in self.log.events[mark:]
            if isinstance(event.data, machine.BootStepCompleted)
        }

    def _run(self, image: str, epoch: int) -> None:
        name = f"valet-test-{self.spec.session_id.lower()}-{epoch}"
        options = ["-i", "--name", name, "-e", "VALET_RUNNER_SPEC=-", "-p", "127.0.0.1::9000"]
        options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "-v", f"{self._folder}:/run/portal"]
        with (self._folder / f"{name}.log").open("wb") as log:
            command = ["docker", "run", *options, image, "/start.sh"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self._runs.append((name, process))
        assert process.stdin
        with process.stdin as stdin:
            stdin.write(msgspec.json.encode(msgspec.structs.replace(self.spec, epoch=epoch)))

    async def turn(self, prompt: str) -> list[str]:
        """One turn that completes; what its tools gave out."""
        turn = await self.log.dispatch(prompt)
        ended = await self.log.until(agent.TurnEnded, lambda said: said.turn_id == turn)
        assert ended.data.status == "completed", ended.data
        return [tool.output or "" for tool in self.log.said(agent.ToolUpdated, turn=turn) if tool.status == "completed"]

    async def draw(self) -> bytes:
        """What the desktop says first to a visitor."""
        claims = sandbox_token.Claims(sub="u1", sid=self.spec.session_id, svc="vnc", exp=int(time.time()) + 600)
        headers = {"Authorization": f"Bearer {sandbox_token.mint(self.spec.gateway_key, claims)}"}
        url = f"http://{await docker('port', self.name, '9000')}/vnc/websockify"
        async with aiohttp.ClientSession(headers=headers) as http, http.ws_connect(url, protocols=["binary"]) as ws:
            return await ws.receive_bytes(timeout=60)

    async def status(self) -> int:
        """Wait for its end; its exit status."""
        return await asyncio.to_thread(self._runs[-1][1].wait, COMMAND)

    def remove(self) -> None:
        for name, process in self._runs:
            subprocess.run(["docker", "rm", "-f", "-v", name], capture_output=True, timeout=COMMAND, check=False)
            process.wait(COMMAND)
            print((self._folder / f"{name}.log").read_text())  # shown by pytest when a test failed


@pytest.fixture(scope="module")
def folder(image: str) -> Iterator[Path]:
    # unix sockets' paths are short, pytest's folders are not
    with tempfile.TemporaryDirectory(prefix="vc-") as path:
        Path(path).chmod(0o755)  # the container's user is another
        yield Path(path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(image: str, folder: Path) -> AsyncIterator[Container]:
    (folder / "nats").mkdir()
    broker = Broker(folder / "nats")
    broker.start()
    token, id = secrets.token_hex(16), new_id()
    spec = RunnerSpec(
        session_id=id,
        epoch=1,
        nats_creds="",
        portal_socket="/run/portal/portal.sock",
        portal_token=token,
        workspace="/workspace",
        home="/home/valet/agent",
        repo=None,
        branch=None,
        model="scripted/scripted-1",
        providers=[ProviderSpec(id="scripted", models=[ModelSpec(id="scripted-1")])],
        opencode="/opt/valet/bin/opencode",
        path="/opt/valet/bin:/usr/local/bin:/usr/bin:/bin",
        gateway_key=sandbox_token.key(secrets.token_bytes(32), id),
        gateway_host="0.0.0.0",
        xterm_dir="/opt/valet/share/xterm",
    )
    try:
        async with (
            ScriptedModel(load_builtin("tests")) as model,
            Portal(folder / "portal.sock", token=token, model_url=model.url, nats_port=broker.port),
            Ledger(broker.url, id) as log,
        ):
            os.chmod(folder / "portal.sock", 0o666)
            container = Container(spec, log, folder)
            try:
                await container.start(image)
                yield container
            finally:
                container.remove()
    finally:
        broker.kill()


async def test_it_boots_is_healthy_and_works_as_an_ordinary_user(sandbox: Container) -> None:
    assert "failed" not in sandbox.steps.values()
    assert {sandbox.steps[step] for step in ("clone", "processes", "gateway", "opencode", "terminal")} == {"ok"}
    assert "uid=10001(valet)" in "".join(await sandbox.turn("bash id"))
    await until("its health", lambda said: said == "healthy", "inspect", "-f", "{{.State.Health.Status}}", sandbox.name)


async def test_what_loses_its_parent_is_reaped(sandbox: Container) -> None:
    await sandbox.turn("bash for i in 1 2 3; do (setsid sleep 0.1 >/dev/null 2>&1 &); done")
    await docker("exec", sandbox.name, "sh", "-c", "(sleep 0.1 &)")
    await until("no zombies", lambda said: "Z" not in said, "exec", sandbox.name, "ps", "-e", "-o", "stat=")


async def test_no_secret_is_where_the_engine_or_a_snapshot_keeps_it(sandbox: Container) -> None:
    found = await docker("inspect", sandbox.name)
    show = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true"
    found += await docker("exec", sandbox.name, "sh", "-c", show)
    assert "valet_gateway" in found  # so command lines can be read, and there is something to look for in
    began = await docker("inspect", "-f", "{{.State.StartedAt}}", sandbox.name)
    # everything the container has written; mounts are no part of a snapshot
    look = 'find / -xdev -newermt "$0" -type f -exec grep -lF -e "$1" {} + 2>/dev/null; true'
    assert "/workspace/.git/HEAD" in await docker("exec", sandbox.name, "sh", "-c", look, began, "ref: ")
    for secret in (sandbox.spec.portal_token, sandbox.spec.gateway_key):
        assert secret not in found
        assert await docker("exec", sandbox.name, "sh", "-c", look, began, secret) == ""


async def test_a_snapshot_of_a_running_one_starts_and_draws_again(sandbox: Container) -> None:
    draws = sandbox.steps["desktop"] == "ok"
    if draws:
        assert (await sandbox.draw()).startswith(b"RFB 003.")
    await sandbox.turn("write kept.txt kept")
    snapshot = f"valet-test:{sandbox.spec.session_id.lower()}"
    await docker("commit", sandbox.name, snapshot)
    try:
        await docker("kill", sandbox.name)
        assert await sandbox.status() == 137
        await sandbox.start(snapshot)
        assert "kept" in "".join(await sandbox.turn("bash cat kept.txt"))
        if draws:
            assert (await sandbox.draw()).startswith(b"RFB 003.")
        await docker("stop", "--time", "20", sandbox.name)
        assert await sandbox.status() == 0
    finally:
        sandbox.remove()
        await docker("image", "rm", snapshot)


async def until(what: str, check: Callable[[str], bool], *command: str) -> None:
    """Wait until a command of the engine says something."""
    deadline = time.monotonic() + HEALTHY
    while not check(said := await docker(*command)):
        assert time.monotonic() < deadline, f"waited {HEALTHY:.0f} s for {what}: {said}"
        await asyncio.sleep(0.2)
