"""Claims about the small services as `valet up` runs them: real command, servers and credentials; the ledger only
knows owners."""

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from nats.aio.client import Client
from valet_local import launch, tools
from valet_local.assembly import Options
from valet_local.layout import Layout, layout
from valet_local.leftovers import Recorded
from valet_protocol.ids import new_id
from valet_protocol.tools.memory import ListMemories, MemoryList, MemoryWritten, WriteMemory
from valet_protocol.tools.tasks import CreateTask, MyTasks, TaskPage, TaskView
from valet_service import broker, credentials
from valet_service.testing import until
from valet_service.testing_sandbox import Agent, OwnerLedger

SESSION = new_id()
HOSTED = "knowledge+automation"


@pytest.fixture
def places(tmp_path: Path) -> Layout:
    """OpenCode is not run here: the directory gets a script in its place, so that nothing is fetched."""
    places = layout(tmp_path / "d")
    path = tools.cached_opencode(places.tools, tools.opencode_package())
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return places


@pytest.fixture
def url(places: Layout) -> Iterator[str]:
    """Of the broker of a platform that is ready."""
    with launch.start(Options(data_dir=places.data, port=0, services=("knowledge", "automation"))) as platform:
        yield platform.state.nats_url


@pytest.fixture
async def ledger(url: str, places: Layout) -> AsyncIterator[Client]:
    nc = await broker.connect(url, name="ledger", creds=str(places.creds / "session-ledger.creds"))
    await OwnerLedger({SESSION: "olga"}).serve(nc)
    yield nc
    await broker.close(nc)


@pytest.fixture
async def agent(url: str, places: Layout, ledger: Client) -> AsyncIterator[Agent]:
    """With the credentials a runner has."""
    account = credentials.key_from_seed((places.keys / "account.seed").read_text())
    permissions = credentials.runner_permissions(SESSION)
    creds = places.creds / "runner.creds"
    creds.write_text(credentials.creds(account, "runner", permissions, entropy=os.urandom(32), now=int(time.time())))
    nc = await broker.connect(url, name="runner", creds=str(creds), inbox_prefix=f"_INBOX_{SESSION}")
    yield Agent(nc, SESSION)
    await broker.close(nc)


def hosted(places: Layout) -> int:
    """The pid of the process they share."""
    (one,) = (one for one in msgspec.json.decode(places.processes.read_bytes(), type=list[Recorded]) if "+" in one.name)
    assert one.name == HOSTED
    return one.pid


async def test_an_agent_reaches_both_with_a_runners_rights_and_what_it_stored_outlives_their_process(
    agent: Agent, places: Layout
) -> None:
    await agent.ask(WriteMemory(content="Tests run with `make check`."), MemoryWritten)
    await agent.ask(CreateTask(title="Mend it", assigned_session=SESSION), TaskView)
    before = hosted(places)
    os.kill(before, signal.SIGKILL)
    await until(lambda: hosted(places) != before, "the process is started again", timeout=30)
    (memory,) = (await agent.ask(ListMemories(), MemoryList)).items
    (task,) = (await agent.ask(MyTasks(), TaskPage)).items
    assert (memory.content, memory.session) == ("Tests run with `make check`.", SESSION)
    assert (task.title, task.assigned_session) == ("Mend it", SESSION)
