"""What the runner's tests stand on.

Real: the runner, OpenCode, nats-server, git. Not real: the model, the ledger, the portal.
"""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from valet_local import npm, provision, tools
from valet_local.model import ScriptedModel, load_builtin
from valet_protocol.ids import new_id
from valet_protocol.sandbox_spec import ModelSpec, ProviderSpec, RunnerSpec
from valet_runner.testing import Broker, Ledger, Portal, Runner, search_path


@pytest.fixture(scope="session")
def opencode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("VALET_OPENCODE_BIN")
    if named:
        return Path(named)
    own = tmp_path_factory.mktemp("tools")
    return tools.ensure_opencode(own, provision.shared_tools(), fetch=npm.fetch, progress=lambda *_: None)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # unix sockets' paths are short, pytest's folders are not
    with tempfile.TemporaryDirectory(prefix="vr-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def nats(folder: Path) -> Iterator[Broker]:
    (folder / "nats").mkdir()
    broker = Broker(folder / "nats")
    broker.start()
    yield broker
    broker.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(load_builtin("tests")) as model:
        yield model


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def portal(folder: Path, nats: Broker, model: ScriptedModel) -> AsyncIterator[Portal]:
    async with (
        Portal(folder / "portal.sock", token="secret-token", model_url=model.url, nats_port=nats.port) as portal,
    ):
        yield portal


@pytest.fixture(scope="module")
def repository(folder: Path) -> Path:
    path = folder / "origin"
    path.mkdir()
    (path / "hello.txt").write_text("hello\n")
    for command in (["init", "-b", "main"], ["add", "."], ["commit", "-m", "First"]):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *command],
            cwd=path,
            check=True,
            capture_output=True,
            timeout=20,
        )
    return path


@pytest.fixture(scope="module")
def new_spec(opencode: Path, portal: Portal, repository: Path, folder: Path) -> Callable[[], RunnerSpec]:
    """Specs of fresh sessions."""

    def make() -> RunnerSpec:
        session_id = new_id()
        return RunnerSpec(
            session_id=session_id,
            epoch=1,
            nats_creds="",
            portal_socket=str(portal.path),
            portal_token="secret-token",
            workspace=str(folder / session_id / "workspace"),
            home=str(folder / session_id / "home"),
            repo=str(repository),
            branch=None,
            model="scripted/scripted-1",
            providers=[
                ProviderSpec(
                    id="scripted",
                    models=[
                        ModelSpec(id=name, cost_input=1.0, cost_output=2.0, reasoning=name == "scripted-2")
                        for name in ("scripted-1", "scripted-2", "fails-401", "fails-429", "fails-midway")
                    ],
                )
            ],
            opencode=str(opencode),
            path=search_path(),
        )

    return make


@pytest.fixture
def spec(new_spec: Callable[[], RunnerSpec]) -> RunnerSpec:
    return new_spec()


@pytest_asyncio.fixture(loop_scope="module")
async def ledger(nats: Broker, spec: RunnerSpec) -> AsyncIterator[Ledger]:
    async with Ledger(nats.url, spec.session_id) as ledger:
        yield ledger


class Runners:
    """Starts runners; all are gone at the end of the test."""

    def __init__(self, spec: RunnerSpec, folder: Path) -> None:
        self._spec = spec
        self._folder = folder
        self.all: list[Runner] = []

    def start(self, **changes: object) -> Runner:
        runner = Runner(msgspec.structs.replace(self._spec, **changes), self._folder)
        self.all.append(runner)
        runner.start()
        return runner


@pytest.fixture
def runners(spec: RunnerSpec, folder: Path) -> Iterator[Runners]:
    runners = Runners(spec, folder / spec.session_id)
    yield runners
    for runner in runners.all:
        runner.close()
        print(runner.log())  # shown by pytest when the test failed
