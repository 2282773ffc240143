"""Claims about the embedded servers: real NATS with its permissions, real PostgreSQL through crashes."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import nats as nats_py
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig
from nats.js.errors import NotFoundError
from valet_local import identity, keys, limits, nats, postgres
from valet_local.errors import NatsTooOld, ToolMissing
from valet_local.layout import Layout, layout, prepare
from valet_protocol import subjects
from valet_service import credentials
from valet_service.jetstream_objects import STREAM, JetStreamObjects
from valet_service.log_reader import LogReader

SESSION = "01JABCDEFGHJKMNPQRSTVWXYZ0"
OTHER = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    places = layout(tmp_path_factory.mktemp("servers") / "d")
    prepare(places)
    return places


@pytest.fixture(scope="module")
def broker(places: Layout) -> Iterator[nats.NatsServer]:
    server = nats.prepare(places, keys.ensure(places).trust, nats.find_binary())
    child = subprocess.Popen([server.binary, "-c", server.config], stderr=subprocess.DEVNULL)
    yield server
    child.terminate()
    child.wait(10)


class Connection:
    """A client and the permission violations the server told it of."""

    def __init__(self) -> None:
        self.client = Client()
        self.refusals: list[str] = []

    async def open(self, url: str, creds: Path, inbox: str = "_INBOX") -> "Connection":
        async def refused(error: Exception) -> None:
            self.refusals.append(str(error))

        await self.client.connect(
            url, user_credentials=str(creds), inbox_prefix=inbox, error_cb=refused, allow_reconnect=False
        )
        return self

    async def may_publish(self, subject: str) -> bool:
        """Whether the server takes a message for this subject."""
        self.refusals.clear()
        await self.client.publish(subject, b"x")
        await self._settle()
        return not any(subject.lower() in refusal.lower() for refusal in self.refusals)

    async def _settle(self) -> None:
        # nats-py 2.16 writes the PING of a flush past what is still in its own buffer: the second one is
        # behind it.
        await self.client.flush(5)
        await self.client.flush(5)

    async def may_subscribe(self, subject: str) -> bool:
        self.refusals.clear()
        subscription = await self.client.subscribe(subject)
        await self._settle()
        refused = any("subscription" in refusal.lower() for refusal in self.refusals)
        if not refused:
            await subscription.unsubscribe()
        return not refused


@pytest.fixture
async def connect(places: Layout, broker: nats.NatsServer) -> AsyncIterator[object]:
    await asyncio.wait_for(nats.wait_ready(broker.port), limits.SERVER_READY_TIMEOUT)
    opened: list[Connection] = []

    async def by_name(name: str) -> Connection:
        creds = places.creds / f"{name}.creds"
        inbox = "_INBOX"
        if name == "runner":
            account = credentials.key_from_seed((places.keys / "account.seed").read_text())
            permissions = credentials.runner_permissions(SESSION)
            creds.write_text(
                credentials.creds(account, "runner", permissions, entropy=os.urandom(32), now=int(time.time()))
            )
            inbox = subjects.runner_inbox(SESSION)
        elif name == "portal":
            inbox = credentials.PORTAL_INBOX
        elif name in ("knowledge", "automation"):
            inbox = credentials.inbox(name)
        opened.append(await Connection().open(broker.url, creds, inbox))
        return opened[-1]

    yield by_name
    for connection in opened:
        await connection.client.close()


async def _stream(ledger: Connection) -> None:
    js = ledger.client.jetstream()
    try:
        await js.stream_info(subjects.STREAM)
    except NotFoundError:
        await js.add_stream(name=subjects.STREAM, subjects=["session.>"])


async def test_nobody_gets_in_without_credentials(broker: nats.NatsServer) -> None:
    await asyncio.wait_for(nats.wait_ready(broker.port), limits.SERVER_READY_TIMEOUT)
    with pytest.raises(Exception, match=r"(?i)authorization"):
        await nats_py.connect(broker.url, allow_reconnect=False, error_cb=_ignore)


async def _ignore(error: Exception) -> None:
    """nats-py logs errors otherwise."""


async def test_expired_credentials_are_refused(places: Layout, broker: nats.NatsServer) -> None:
    account = credentials.key_from_seed((places.keys / "account.seed").read_text())
    path = places.creds / "expired.creds"
    now = int(time.time())
    path.write_text(
        credentials.creds(
            account, "x", credentials.runner_permissions(SESSION), entropy=b"x" * 32, now=now - 9, expires=now - 5
        )
    )
    with pytest.raises(Exception, match=r"(?i)authorization"):
        await nats_py.connect(broker.url, user_credentials=str(path), allow_reconnect=False, error_cb=_ignore)


async def test_a_runner_may_do_everything_in_its_session_and_nothing_elsewhere(connect) -> None:
    ledger, controller, runner = await connect("session-ledger"), await connect("sandbox-controller"), None
    await _stream(ledger)
    await controller.client.jetstream().add_consumer(
        subjects.STREAM,
        ConsumerConfig(durable_name=subjects.runner_consumer(SESSION), filter_subject=subjects.source(SESSION, "fact")),
    )
    await ledger.client.jetstream().publish(subjects.event(SESSION, "fact", "turn_dispatched"), b"go")
    runner = await connect("runner")
    js = runner.client.jetstream()
    await js.publish(subjects.event(SESSION, "agent", "turn_ended"), b"x")
    await js.publish(subjects.delta(SESSION, "text", "m"), b"x")
    subscription = await js.pull_subscribe_bind(subjects.runner_consumer(SESSION), subjects.STREAM)
    (message,) = await subscription.fetch(1, timeout=5)
    assert message.data == b"go"
    await message.ack_sync(timeout=5)
    assert (await subscription.consumer_info()).num_ack_pending == 0
    assert await runner.may_publish(subjects.sandbox_request(SESSION, "ask"))
    assert runner.refusals == []
    for subject in (
        subjects.event(OTHER, "agent", "turn_ended"),
        subjects.delta(OTHER, "text", "m"),
        subjects.event(SESSION, "fact", "prompt_accepted"),
        subjects.event(SESSION, "sandbox", "ready"),
        subjects.sandbox_request(OTHER, "ask"),
        f"live.{OTHER}.typing",
        subjects.ledger_command(SESSION, "prompt"),
        "rpc.sandbox.terminate",
        f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STREAM}.{subjects.runner_consumer(OTHER)}",
        f"$JS.API.STREAM.DELETE.{subjects.STREAM}",
        f"$JS.API.STREAM.PURGE.{subjects.STREAM}",
        f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.x",
        f"$JS.ACK.{subjects.STREAM}.{subjects.runner_consumer(OTHER)}.1.1.1.1.1",
    ):
        assert not await runner.may_publish(subject), subject
    for subject in ("session.>", subjects.session(SESSION), "_INBOX.>", ">", f"_INBOX_{OTHER}.>", "$SYS.>"):
        assert not await runner.may_subscribe(subject), subject


@pytest.mark.parametrize(
    ("service", "source"),
    [
        (service, source)
        for service in (*credentials.SERVICES, credentials.SUBSCRIBER)
        for source in ("fact", "agent", "sandbox", "delta")
    ],
)
async def test_the_server_lets_one_service_write_each_source(connect, service: str, source: str) -> None:
    connection = await connect(service)
    writers = {"fact": "session-ledger", "sandbox": "sandbox-controller"}
    allowed = await connection.may_publish(f"session.1.{OTHER}.{source}.something")
    assert allowed == (writers.get(source) == service)


async def test_a_service_can_answer_a_runner_though_it_may_not_write_to_its_inbox(connect) -> None:
    ledger, runner = await connect("session-ledger"), await connect("runner")

    async def answer(message) -> None:
        await message.respond(b"yes")

    assert await ledger.may_subscribe("$SRV.PING")
    await ledger.client.subscribe("rpc.session.>", cb=answer)
    await ledger._settle()
    reply = await runner.client.request(subjects.sandbox_request(SESSION, "ask"), b"", timeout=5)
    assert reply.data == b"yes"
    assert not await ledger.may_publish(f"{subjects.runner_inbox(SESSION)}.made.up")


async def test_only_a_sandbox_may_ask_in_a_sandboxs_name(connect) -> None:
    api = await connect("api")
    assert await api.may_publish("rpc.ledger.3.prompt")
    assert not await api.may_publish(subjects.sandbox_request(SESSION, "ask"))


async def test_a_subscriber_reads_the_log_and_cannot_drop_it(connect) -> None:
    ledger, subscriber = await connect("session-ledger"), await connect("subscriber")
    await _stream(ledger)
    ack = await ledger.client.jetstream().publish(subjects.event(OTHER, "fact", "session_requested"), b"hello")
    reading = await subscriber.client.jetstream().subscribe(
        subjects.session(OTHER), stream=subjects.STREAM, ordered_consumer=True
    )
    message = await reading.next_msg(timeout=5)
    while message.metadata.sequence.stream < ack.seq:
        message = await reading.next_msg(timeout=5)
    assert message.data == b"hello"
    with pytest.raises((NatsTimeout, NoRespondersError)):
        await subscriber.client.request(f"$JS.API.STREAM.PURGE.{subjects.STREAM}", b"", timeout=0.5)


async def test_the_portal_stores_objects_learns_epochs_and_does_nothing_else(connect) -> None:
    ledger, portal = await connect("session-ledger"), await connect("portal")
    await _stream(ledger)
    await ledger.client.jetstream().publish(subjects.event(OTHER, "fact", "sandbox_requested"), b"epoch")
    store = JetStreamObjects(portal.client)
    await store.put("sessions/x/saved/y", _once(b"work"), limit=10)
    assert [chunk async for chunk in store.get("sessions/x/saved/y")] == [b"work"]
    await store.delete("sessions/x/saved/y")
    requested = [subjects.every("fact", "sandbox_requested")]
    async with LogReader(portal.client, requested, start=1, latest=True, removes=False) as reader:
        (entry,) = await asyncio.wait_for(reader.batch(1), 5)
        assert entry.payload == b"epoch"
    assert portal.refusals == []
    for subject in (
        *(f"session.1.{OTHER}.{source}.something" for source in ("fact", "agent", "sandbox", "delta")),
        subjects.ledger_command(OTHER, "prompt"),
        subjects.sandbox_request(OTHER, "ask"),
        f"live.{OTHER}.typing",
        "rpc.sandbox.terminate",
        "platform.user.x",
        f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.x",
        f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.x.{subjects.every('fact', 'prompt_accepted')}",
        f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.x.{subjects.EVERYTHING}",
        f"$JS.API.CONSUMER.DELETE.{subjects.STREAM}.{subjects.runner_consumer(OTHER)}",
        f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STREAM}.{subjects.runner_consumer(OTHER)}",
        f"$JS.API.STREAM.MSG.GET.{subjects.STREAM}",
        f"$JS.API.DIRECT.GET.{subjects.STREAM}",
        f"$JS.API.STREAM.PURGE.{subjects.STREAM}",
        f"$JS.API.STREAM.CREATE.{subjects.STREAM}",
        f"$JS.API.STREAM.DELETE.{STREAM}",
        f"$JS.API.STREAM.UPDATE.{STREAM}",
        f"$JS.ACK.{subjects.STREAM}.{subjects.runner_consumer(OTHER)}.1.1.1.1.1",
        "$O.OTHER.M.x",
    ):
        assert not await portal.may_publish(subject), subject
    for subject in ("session.>", subjects.session(OTHER), "_INBOX.>", "rpc.>", ">", "$SYS.>"):
        assert not await portal.may_subscribe(subject), subject


@pytest.mark.parametrize(
    ("name", "own", "others"),
    [("knowledge", "write_memory", "create_task"), ("automation", "create_task", "write_memory")],
)
async def test_a_service_that_answers_agents_hears_its_own_tools_asks_for_owners_and_does_nothing_else(
    connect, name: str, own: str, others: str
) -> None:
    ledger, runner, service = await connect("session-ledger"), await connect("runner"), await connect(name)

    async def answer(message) -> None:
        owner = await service.client.request(subjects.ledger_command(SESSION, "get_owner"), b"", timeout=5)
        await message.respond(owner.data)

    async def owner(message) -> None:
        await message.respond(b"olga")

    await ledger.client.subscribe("rpc.ledger.*.get_owner", cb=owner)
    await service.client.subscribe(subjects.sandbox_request("*", own), queue=name, cb=answer)
    await service._settle()
    await ledger._settle()
    assert (await runner.client.request(subjects.sandbox_request(SESSION, own), b"", timeout=5)).data == b"olga"
    assert service.refusals == []
    for subject in (
        subjects.event(OTHER, "fact", "prompt_accepted"),
        subjects.ledger_command(OTHER, "submit_prompt"),
        subjects.ledger_query("list_sessions"),
        subjects.sandbox_request(OTHER, own),
        subjects.service("api", "authenticate"),
        subjects.live(OTHER, "typing"),
        f"{subjects.runner_inbox(SESSION)}.made.up",
        f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.x",
        f"$JS.API.STREAM.MSG.GET.{subjects.STREAM}",
        "$O.VALET.M.x",
    ):
        assert not await service.may_publish(subject), subject
    for subject in (subjects.sandbox_request("*", others), "rpc.session.>", "rpc.>", "session.>", "_INBOX.>", ">"):
        assert not await service.may_subscribe(subject), subject


async def test_a_consumer_of_the_portal_cannot_be_given_another_filter_than_it_names(connect) -> None:
    ledger, portal = await connect("session-ledger"), await connect("portal")
    await _stream(ledger)
    named = subjects.every("fact", "sandbox_requested")
    for config in ({"filter_subject": subjects.EVERYTHING}, {"filter_subjects": [named, subjects.EVERYTHING]}, {}):
        wanted = {"name": "x", "deliver_subject": f"{credentials.PORTAL_INBOX}.x", "ack_policy": "none", **config}
        answer = await portal.client.request(
            f"$JS.API.CONSUMER.CREATE.{subjects.STREAM}.x.{named}",
            json.dumps({"stream_name": subjects.STREAM, "config": wanted}).encode(),
            timeout=5,
        )
        assert "error" in json.loads(answer.data), config


async def test_the_api_stores_objects_and_cannot_purge_the_log(connect) -> None:
    ledger, api = await connect("session-ledger"), await connect("api")
    await _stream(ledger)
    store = JetStreamObjects(api.client)
    await store.put("sessions/x/attachments/y", _once(b"file"), limit=10)
    await store.put("sessions/x/attachments/y", _once(b"other"), limit=10)
    await store.copy("sessions/x/attachments/y", "sessions/z/saved/fork")
    assert await store.list("sessions/x/") == ("sessions/x/attachments/y",)
    await store.delete("sessions/x/attachments/y")
    assert api.refusals == []
    assert not await api.may_publish(f"$JS.API.STREAM.PURGE.{subjects.STREAM}")


@pytest.mark.parametrize("name", ["session-ledger", "sandbox-controller", "event-bus", "subscriber", "runner"])
async def test_nobody_else_writes_objects(connect, name: str) -> None:
    connection = await connect(name)
    assert not await connection.may_publish("$O.VALET.M.x")


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def test_the_port_of_the_broker_stays_the_same(places: Layout, broker: nats.NatsServer) -> None:
    assert (places.nats / "port").read_text().strip() == str(broker.port)


def test_an_old_server_is_refused_by_its_version(tmp_path: Path) -> None:
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho 'nats-server: v2.9.10'\n")
    old.chmod(0o755)
    assert nats.find_binary({"NATS_BIN": str(old)}) == old
    with pytest.raises(NatsTooOld, match=r"2\.9\.10.*needs 2\.12"):
        nats.check_version(old)
    with pytest.raises(ToolMissing, match="NATS_BIN"):
        nats.find_binary({"NATS_BIN": str(tmp_path / "none")})


class Postmaster:
    """A running PostgreSQL, started the way the supervisor does."""

    def __init__(self, server: postgres.Postgres) -> None:
        self.server = server
        postgres.clear_remains(server.data)
        self.child = subprocess.Popen(server.command, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + limits.SERVER_READY_TIMEOUT
        while not postgres.is_ready(server.data, self.child.pid):
            assert self.child.poll() is None, "PostgreSQL ended"
            assert time.monotonic() < deadline
            time.sleep(limits.POLL)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.child.send_signal(number)
        return self.child.wait(20)


async def _ask(url: str, query: str) -> object:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.mark.parametrize("where", ["open to others", "closed to others"])
async def test_postgres_runs_as_nobodys_root_wherever_it_lies(where: str, tmp_path: Path) -> None:
    # pytest's directories are 0700: the user PostgreSQL runs as cannot walk there.
    import shutil
    import tempfile

    base = tmp_path if where == "closed to others" else Path(tempfile.mkdtemp(prefix="valet-pg-"))
    try:
        if where == "open to others":
            base.chmod(0o755)
        places = layout(base / "d")
        prepare(places)
        server = postgres.prepare(places)
        first = Postmaster(server)
        try:
            await _ask(server.url, "CREATE TABLE kept AS SELECT 42 AS n")
            await _ask(server.url, "CREATE EXTENSION vector")
            assert places.postgres.stat().st_uid != 0
            assert await _ask(server.url, "SHOW listen_addresses") == ""
        finally:
            assert first.end() == 0
        second = Postmaster(postgres.prepare(places))
        try:
            assert await _ask(server.url, "SELECT n FROM kept") == 42
        finally:
            second.end()
    finally:
        if where == "open to others":
            shutil.rmtree(base)


async def test_postgres_starts_again_after_kill_9_with_a_busy_backend(tmp_path: Path) -> None:
    places = layout(tmp_path / "d")
    prepare(places)
    server = postgres.prepare(places)
    first = Postmaster(server)
    await _ask(server.url, "CREATE TABLE kept AS SELECT 42 AS n")
    busy = await asyncpg.connect(server.url)
    # A backend in the middle of work does not notice that its postmaster is gone.
    running = asyncio.create_task(busy.execute("SELECT count(*) FROM generate_series(1, 1e12::bigint)"))
    deadline = time.monotonic() + 10
    while await _ask(server.url, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%1e12%'") != 2:
        assert time.monotonic() < deadline
    first.end(signal.SIGKILL)
    assert identity.working_in(server.data), "the test wants a backend that outlives its postmaster"
    second = await asyncio.to_thread(Postmaster, server)
    try:
        assert await _ask(server.url, "SELECT n FROM kept") == 42
        with pytest.raises((asyncpg.PostgresError, OSError)):
            await running
    finally:
        second.end()
        busy.terminate()
