"""The service as a process: real NATS, PostgreSQL and bubblewrap; the runner is a scripted one."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError
from valet_protocol import codec, ids, subjects
from valet_protocol.events.envelope import Data
from valet_protocol.events.facts import EventImported, SandboxReleaseRequested, SandboxRequested
from valet_protocol.events.sandbox import (
    SandboxFailed,
    SandboxHibernated,
    SandboxLost,
    SandboxProvisioning,
    SandboxReady,
    SandboxTerminated,
)
from valet_protocol.requests import GetOwner, Owner
from valet_protocol.sandbox_spec import RunnerSpec
from valet_sandbox_controller import portal_token, testing
from valet_sandbox_controller.providers import processes
from valet_sandbox_controller.providers.storage import Record, SessionFiles, Storage
from valet_service import broker, rpc, sandbox_token

KEEPING = "import sys\nopen('told', 'w').write(sys.stdin.read())\n"
"""A runner that keeps what it was told, for the test to read."""


class Ledger:
    """Plays the session ledger: appends facts of one new session and reads what the controller says."""

    def __init__(self, nc: Client, files: SessionFiles, session: str) -> None:
        self.nc = nc
        self.files = files
        self.session = session
        self.said: list[Data] = []
        self.orchestrator = False

    async def answer(self) -> None:
        """Say whose session it is, from now on."""

        async def owner(question: GetOwner) -> Owner:
            return Owner(session_id=question.session_id, user="U", orchestrator=self.orchestrator)

        await rpc.serve(
            self.nc, subjects.ledger_command(self.session, GetOwner.method), GetOwner, owner, queue=self.session
        )

    async def request(self, epoch: int = 1, *, repo: str | None = None, task: str = testing.SLEEPING) -> None:
        """Ask for a sandbox whose runner does `task`."""
        self.files.workspace.mkdir(parents=True, exist_ok=True)
        (self.files.workspace / "task.py").write_text(KEEPING + task)
        deadline = int(time.time() * 1000) + 60_000
        await self.append(
            SandboxRequested(epoch=epoch, reason="created", repo=repo, model="fake/m", boot_deadline_ms=deadline)
        )

    async def append(self, data: Data) -> None:
        event = codec.new_event(data, id=ids.new_id(), session_id=self.session, now_ms=int(time.time() * 1000))
        out = codec.encode(event, source="/session-ledger")
        await self.nc.jetstream().publish(out.subject, out.payload, headers={"Nats-Msg-Id": out.msg_id})

    async def listen(self) -> None:
        """Hear everything the controller says about the session from its beginning."""

        async def hear(message: Msg) -> None:
            self.said.append(codec.decode(message.data).data)

        js = self.nc.jetstream()
        await js.subscribe(subjects.source(self.session, "sandbox"), ordered_consumer=True, cb=hear)

    async def until(self, kind: type[Data], count: int = 1, seconds: float = 10) -> list[Data]:
        """Everything said, once `kind` was said `count` times."""
        await testing.until(lambda: sum(isinstance(each, kind) for each in self.said) >= count, seconds)
        return list(self.said)

    def record(self) -> Record:
        return msgspec.json.decode(self.files.record.read_bytes(), type=Record)

    def spec(self) -> RunnerSpec:
        return msgspec.json.decode((self.files.workspace / "told").read_bytes(), type=RunnerSpec)

    async def started(self) -> None:
        await testing.until((self.files.workspace / "started").exists)


@pytest.fixture
async def ledger(servers) -> AsyncIterator[Ledger]:
    nc = await nats.connect(servers.broker.url, user_credentials=str(servers.creds("session-ledger")))
    await broker.ensure_stream(nc)
    session = ids.new_id()
    ledger = Ledger(nc, Storage(servers.places.data, servers.places.run).of(session), session)
    await ledger.listen()
    await ledger.answer()
    yield ledger
    await broker.close(nc)


@pytest.fixture
def controller(start_service: Callable[..., object]):
    return start_service("sandbox-controller")


def _alive(record: Record) -> bool:
    return processes.is_alive(record.pid, record.start_time)


async def test_a_requested_sandbox_is_provisioned_and_ready_within_a_second(controller, ledger: Ledger) -> None:
    began = time.monotonic()
    await ledger.request()
    assert await ledger.until(SandboxReady) == [
        SandboxProvisioning(epoch=1, provider="local"),
        SandboxReady(epoch=1, provider="local", sandbox_id=f"{ledger.session}-1", isolation="bwrap"),
    ]
    print(f"fact → sandbox.ready seen: {(time.monotonic() - began) * 1000:.0f} ms")
    assert time.monotonic() - began < 1
    await ledger.started()


async def test_the_runner_gets_credentials_and_a_token_of_its_own_and_no_provider_key(
    start_service: Callable[..., object], servers, ledger: Ledger, tmp_path: Path
) -> None:
    config = tmp_path / "valet.toml"
    config.write_text(
        '[providers.fake]\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "K"\nmodels = ["m"]\n'
        '[sandbox]\npublic_ports = "20000-20063"\npublic_url = "https://{port}.valet.example.org"\n'
    )
    framing = "https://valet.example.org http://localhost:3000"
    start_service("sandbox-controller", VALET_CONFIG=str(config), K="the-real-key", VALET_FRAME_ANCESTORS=framing)
    ledger.orchestrator = True
    await ledger.request()
    await ledger.started()
    spec = ledger.spec()
    told = (ledger.files.workspace / "told").read_text()
    assert "the-real-key" not in told
    assert "http://127.0.0.1:9" not in told
    assert [provider.id for provider in spec.providers] == ["fake"]
    assert spec.gateway_socket == "/run/valet/gateway/s"
    assert spec.orchestrator
    assert spec.gateway_secure  # people come by TLS
    assert spec.gateway_frame_ancestors == framing.split()
    secret = (servers.places.keys / "secret").read_bytes()
    assert portal_token.verify(secret, spec.portal_token).session_id == ledger.session
    assert spec.gateway_key == sandbox_token.key(secret, ledger.session)
    creds = tmp_path / "runner.creds"
    creds.write_text(spec.nats_creds)
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error))

    nc = await nats.connect(
        servers.broker.url,
        user_credentials=str(creds),
        inbox_prefix=subjects.runner_inbox(ledger.session),
        error_cb=note,
    )
    # its durable consumer is there and delivers its facts; somebody else's subject is closed to it
    consumer = subjects.runner_consumer(ledger.session)
    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox)
    await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STREAM}.{consumer}", b'{"batch":1}', reply=inbox)
    message = await subscription.next_msg(timeout=5)
    assert isinstance(codec.decode(message.data).data, SandboxRequested)
    await nc.publish(subjects.event(ids.new_id(), "agent", "runner_ready"), b"x")
    await testing.until(lambda: refused)
    await broker.close(nc)


async def test_a_sandbox_survives_kill_9_of_the_controller_and_is_adopted(
    controller, start_service: Callable[..., object], ledger: Ledger
) -> None:
    await ledger.request()
    await ledger.until(SandboxReady)
    await ledger.started()
    record = ledger.record()
    controller.stop(signal.SIGKILL)
    assert _alive(record)
    start_service("sandbox-controller")
    assert _alive(record)
    # the new one watches it: its end is noticed, and nothing was said in between
    processes.send(record.pid, record.start_time, signal.SIGKILL)
    data = await ledger.until(SandboxLost)
    assert [type(each) for each in data] == [SandboxProvisioning, SandboxReady, SandboxLost]


async def test_the_end_of_a_sandbox_is_said_within_a_second_with_its_exit_code(controller, ledger: Ledger) -> None:
    await ledger.request(task="import os, time\nwhile not os.path.exists('go'): time.sleep(0.005)\nraise SystemExit(5)")
    await ledger.until(SandboxReady)
    (ledger.files.workspace / "go").touch()
    began = time.monotonic()
    lost = (await ledger.until(SandboxLost))[-1]
    assert time.monotonic() - began < 1
    assert isinstance(lost, SandboxLost)
    assert (lost.epoch, lost.kind, lost.exit_code) == (1, "gone", 5)


async def test_a_sandbox_that_vanished_while_the_controller_was_away_is_reported_at_its_start(
    controller, start_service: Callable[..., object], ledger: Ledger
) -> None:
    await ledger.request()
    await ledger.until(SandboxReady)
    record = ledger.record()
    controller.stop(signal.SIGKILL)
    processes.send(record.pid, record.start_time, signal.SIGKILL)
    await testing.until(lambda: not _alive(record))
    start_service("sandbox-controller")
    assert isinstance((await ledger.until(SandboxLost))[-1], SandboxLost)


async def test_an_orderly_stop_ends_every_sandbox_and_keeps_its_workspace(
    controller, servers, start_service: Callable[..., object], ledger: Ledger
) -> None:
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + testing.SLEEPING
    files = Storage(servers.places.data, servers.places.run).of("X" * 26)
    other = Ledger(ledger.nc, files, "X" * 26)
    await other.listen()
    await ledger.request()
    await other.request(task=stubborn)
    for each in (ledger, other):
        await each.until(SandboxReady)
        await each.started()
    records = [ledger.record(), other.record()]
    took = controller.stop()
    assert took < 5
    assert controller.process.returncode == 0
    assert not any(map(_alive, records))
    for each in (ledger, other):
        assert (await each.until(SandboxHibernated))[-1] == SandboxHibernated(epoch=1, reason="platform_stopped")
        assert (each.files.workspace / "started").exists()
        assert not each.files.record.exists()
    directory = str(ledger.files.root.parent)
    everybody = [processes.command_line(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    assert not [line for line in everybody if any(word.startswith(directory) for word in line)]
    # and the next start neither doubts it nor starts it again by itself
    start_service("sandbox-controller")
    await ledger.request(epoch=2)
    data = await ledger.until(SandboxReady, count=2)
    assert [type(each).__name__ for each in data].count("SandboxLost") == 0


async def test_an_orderly_stop_is_not_held_up_by_silent_servers_and_is_made_good_at_the_next_start(
    controller, servers, start_service: Callable[..., object], ledger: Ledger
) -> None:
    await ledger.request()
    await ledger.until(SandboxReady)
    record = ledger.record()
    for process in servers.processes:
        process.send_signal(signal.SIGSTOP)
    try:
        took = controller.stop()
    finally:
        for process in servers.processes:
            process.send_signal(signal.SIGCONT)
    assert took < 5
    assert not _alive(record)
    start_service("sandbox-controller")
    await testing.until(lambda: any(isinstance(each, SandboxHibernated | SandboxLost) for each in ledger.said))


async def test_a_newer_epoch_ends_the_older_sandbox_without_calling_it_lost(controller, ledger: Ledger) -> None:
    await ledger.request()
    await ledger.until(SandboxReady)
    old = ledger.record()
    await ledger.request(epoch=2)
    data = await ledger.until(SandboxReady, count=2)
    assert not _alive(old)
    assert _alive(ledger.record())
    assert not any(isinstance(each, SandboxLost) for each in data)
    await ledger.request(epoch=1)  # an old fact delivered late
    await ledger.append(SandboxReleaseRequested(epoch=2, reason="terminated"))
    data = await ledger.until(SandboxTerminated)
    assert sum(isinstance(each, SandboxProvisioning) for each in data) == 2


async def test_a_runner_is_given_no_fact_from_before_its_sessions_first_request(controller, ledger: Ledger) -> None:
    imported = EventImported(type="agent.turn_ended", version=1, time="2026-11-20T00:00:00Z", source_seq=1, data={})
    for _ in range(3):
        await ledger.append(imported)
    await ledger.request()
    await ledger.until(SandboxReady)
    await ledger.request(epoch=2)
    await ledger.until(SandboxReady, count=2)
    js = ledger.nc.jetstream()
    reading = await js.pull_subscribe_bind(subjects.runner_consumer(ledger.session), subjects.STREAM)
    data = [codec.decode(message.data).data for message in await reading.fetch(2, timeout=5)]
    assert [type(each) for each in data] == [SandboxRequested, SandboxRequested]


@pytest.mark.parametrize("isolation", ["bwrap", "none"])
async def test_a_stopped_sandbox_is_dead_before_the_one_that_replaces_it_starts(
    start_service: Callable[..., object], ledger: Ledger, isolation: str
) -> None:
    start_service("sandbox-controller", VALET_ISOLATION=isolation)
    await ledger.request()
    await ledger.until(SandboxReady)
    await ledger.started()
    old = ledger.record()
    stopped = [(old.pid, old.start_time), *processes.descendants(old.pid)]
    for pid, started in stopped:
        processes.send(pid, started, signal.SIGSTOP)
    # the new one tells what it sees of the old one when it starts
    looking = f"import os\nopen('seen', 'w').write(str(os.path.exists('/proc/{old.pid}')))\n"
    began = time.monotonic()
    await ledger.request(epoch=2, task=looking + testing.SLEEPING)
    await ledger.until(SandboxReady, count=2)
    assert time.monotonic() - began < 3
    assert not any(processes.is_alive(pid, started) for pid, started in stopped)
    await testing.until((ledger.files.workspace / "seen").exists)
    if isolation == "none":  # the only one that could see it
        assert (ledger.files.workspace / "seen").read_text() == "False"
    assert _alive(ledger.record())
    assert not any(isinstance(each, SandboxLost) for each in ledger.said)


async def test_a_terminated_session_keeps_no_process_workspace_or_consumer(controller, ledger: Ledger) -> None:
    await ledger.request()
    await ledger.until(SandboxReady)
    record = ledger.record()
    await ledger.append(SandboxReleaseRequested(epoch=1, reason="terminated", delete_workspace=True))
    assert (await ledger.until(SandboxTerminated))[-1] == SandboxTerminated(epoch=1, workspace_deleted=True)
    assert not _alive(record)
    assert not ledger.files.root.exists()
    with pytest.raises(NotFoundError):
        await ledger.nc.jetstream().consumer_info(subjects.STREAM, subjects.runner_consumer(ledger.session))


@pytest.mark.parametrize("name", ["missing", "file", "plain", "plain/inside"])
async def test_a_repository_that_cannot_be_used_is_refused_in_plain_words(
    controller, ledger: Ledger, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "plain" / "inside").mkdir(parents=True)
    await ledger.request(repo=str(tmp_path / name))
    failed = (await ledger.until(SandboxFailed))[-1]
    assert isinstance(failed, SandboxFailed)
    assert not failed.retryable
    assert str(tmp_path / name) in failed.detail


async def test_a_host_repository_is_given_by_the_place_where_it_is_mounted(
    controller, ledger: Ledger, tmp_path: Path
) -> None:
    repo = tmp_path / "repo"
    _git(tmp_path, "init", "-q", str(repo))
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.invalid")
    _git(repo, *identity, "commit", "-q", "--allow-empty", "-m", "start")
    _git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    clone = (
        "import subprocess\ngit = ['git', '-c', 'safe.directory=*', 'clone', '-q', '/run/valet/source', 'c']\n"
        "r = subprocess.run(git, capture_output=True, text=True)\nopen('said', 'w').write(r.stderr)\n"
        + testing.SLEEPING
    )
    for epoch, name in ((1, "repo"), (2, "linked")):
        await ledger.request(epoch=epoch, repo=str(tmp_path / name), task=clone)
        await ledger.until(SandboxReady, count=epoch)
        await ledger.started()
        assert ledger.spec().repo == "/run/valet/source"
        assert (ledger.files.workspace / "said").read_text() == ""
        assert (ledger.files.workspace / "c" / ".git").is_dir()
        for leftover in ("started", "said"):
            (ledger.files.workspace / leftover).unlink()
        shutil.rmtree(ledger.files.workspace / "c")


async def test_without_isolation_the_runner_is_a_plain_process_and_ends_with_the_platform(
    start_service: Callable[..., object], ledger: Ledger
) -> None:
    controller = start_service("sandbox-controller", VALET_ISOLATION="none")
    await ledger.request()
    ready = (await ledger.until(SandboxReady))[-1]
    assert isinstance(ready, SandboxReady)
    assert ready.isolation == "none"
    await ledger.started()
    record = ledger.record()
    controller.stop()  # type: ignore[attr-defined]
    assert not _alive(record)
    await ledger.until(SandboxHibernated)


async def test_a_machine_without_bwrap_says_so_at_start_and_to_each_session(
    start_service: Callable[..., object], ledger: Ledger, tmp_path: Path
) -> None:
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    only = (
        "from valet_sandbox_controller.providers import host; host.bwrap_candidates = lambda programs: [programs.bwrap]"
    )
    (tmp_path / "sitecustomize.py").write_text(only + "\n")
    controller = start_service("sandbox-controller", VALET_BWRAP_BIN=str(fake), PYTHONPATH=str(tmp_path))
    assert "No permissions to create new namespace" in controller.log.read_text()  # type: ignore[attr-defined]
    await ledger.request()
    failed = (await ledger.until(SandboxFailed))[-1]
    assert isinstance(failed, SandboxFailed)
    assert "apt-get install bubblewrap" in failed.detail
    assert not failed.retryable


def _git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(directory), *arguments], check=True, timeout=20)
