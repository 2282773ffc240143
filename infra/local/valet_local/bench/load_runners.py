"""The runners of a load run, all in one process: the protocol of real ones, without sandboxes and agents.

python -m valet_local.bench.load_runners        setup: `Setup`; then `Add`s, each answered when those sessions are ready

Each session is asked for over HTTP. What the sandbox controller would do — the durable consumer, credentials for this
session alone, `sandbox.ready` — is done with the operator's credentials; from there on each runner has its own two
connections, attaches, pulls its facts, and says what an agent would: a turn is two messages that stream, a tool call
between them, the diff. A session that streams gets its next prompt, over HTTP, a second after a turn has ended.
"""

import asyncio
import contextlib
import os
import resource
import sys
import time

import msgspec
from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg
from valet_protocol import codec, subjects
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Data, Event
from valet_protocol.ids import new_id
from valet_protocol.requests import Attached, AttachRunner, SessionView
from valet_service import broker, credentials, rpc
from valet_service.credentials import Key, key_from_seed
from valet_service.durable_reader import ensure_consumer
from valet_service.outbox import Outbox

from valet_local.bench import limits, wire
from valet_local.bench.child import Commands, Started, report, serve
from valet_local.bench.errors import BenchFailed
from valet_local.client.endpoint import Endpoint

_LETTERS = "the quick brown fox jumps over the lazy dog "


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Where the platform is, and how fast an agent talks."""

    url: str
    token: str
    nats_url: str
    creds: str
    """The operator's."""
    account_seed: str
    """Signs the runners' credentials."""
    rate: float
    """Deltas a second of a session that streams."""
    message_seconds: float
    """How long one message streams."""


class Add(msgspec.Struct, frozen=True, kw_only=True):
    """An order for more sessions."""

    idle: int
    streaming: int


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """They are there."""

    streaming: list[str]
    """Those that stream, from now on."""
    seconds: float
    """How long it took."""


class Runner:
    """One of them."""

    def __init__(self, setup: Setup, account: Key, session_id: str) -> None:
        self._setup = setup
        self._account = account
        self.session_id = session_id
        self._epoch = 1
        self._turn: str | None = None
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, operator: Client, announcements: Outbox) -> None:
        """Everything up to `runner_ready`."""
        await ensure_consumer(
            operator, subjects.runner_consumer(self.session_id), [subjects.source(self.session_id, "fact")]
        )
        ready = sandbox.SandboxReady(epoch=1, provider="bench", sandbox_id=self.session_id, isolation="none")
        await announcements.put(self._encoded(ready))
        now = int(time.time())
        self._creds = credentials.creds(
            self._account,
            f"runner-{self.session_id}-1",
            credentials.runner_permissions(self.session_id),
            entropy=os.urandom(32),
            now=now,
            expires=now + 24 * 3600,
        )
        self._nc = await self._connect(True)
        self._outbox = await Outbox(lambda: self._connect(False)).__aenter__()
        request = AttachRunner(session_id=self.session_id, epoch=1, runner_version="bench")
        subject = subjects.sandbox_request(self.session_id, AttachRunner.method)
        await rpc.call(self._nc, subject, request, Attached, timeout=limits.STEP)
        self._spawn(self._pull())
        await self._outbox.put(self._encoded(agent.RunnerReady(opencode_version="bench", boot_ms=1)))

    async def prompt_for_ever(self, endpoint: Endpoint, after: float) -> None:
        """Be prompted again and again."""
        await asyncio.sleep(after)
        number = 0
        while True:
            number += 1
            self._ended.clear()
            body = msgspec.json.encode({"content": f"prompt {number}: go on with what you were doing"})
            try:
                # a turn is longer than the api keeps a connection on which nothing comes
                async with wire.Kept(endpoint) as api:
                    await api.post(f"/api/sessions/{self.session_id}/messages", body)
            except BenchFailed as refusal:  # a platform that is overloaded says so, and the session goes on later
                print(f"session {self.session_id}: {refusal}", file=sys.stderr)
                await asyncio.sleep(1.0)
                continue
            await self._ended.wait()
            await asyncio.sleep(1.0)

    async def _connect(self, reconnect: bool) -> Client:
        return await broker.connect(
            self._setup.nats_url,
            name=f"runner {self.session_id}",
            creds=RawCredentials(self._creds),  # type: ignore[arg-type]
            inbox_prefix=subjects.runner_inbox(self.session_id),
            reconnect=reconnect,
        )

    async def _pull(self) -> None:
        """Facts as they come. A waiting pull costs nothing here but a timer, so that a thousand of them cost little."""
        arrived: asyncio.Queue[Msg] = asyncio.Queue()
        inbox = self._nc.new_inbox()

        async def receive(message: Msg) -> None:
            arrived.put_nowait(message)

        await broker.subscribe(self._nc, inbox, receive)
        request = msgspec.json.encode({"batch": 1, "expires": int(limits.LOAD_PULL * 1e9)})
        consumer = subjects.runner_consumer(self.session_id)
        while True:
            await self._nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{subjects.STREAM}.{consumer}", request, reply=inbox)
            with contextlib.suppress(TimeoutError):
                message = await asyncio.wait_for(arrived.get(), limits.LOAD_PULL + 1.0)
                if message.headers and "Status" in message.headers:
                    continue
                event = codec.decode(message.data, 0)
                if isinstance(event.data, facts.TurnDispatched):
                    self._spawn(self._play(event.data))
                await self._nc.publish(message.reply, b"+ACK")

    async def _play(self, turn: facts.TurnDispatched) -> None:
        """One turn as an agent has it."""
        self._turn = turn.turn_id
        began = time.monotonic()
        started = agent.TurnStarted(turn_id=turn.turn_id, prompt_id=turn.prompt_id, opencode_session="ses_bench")
        self._say(started)
        await self._message("tool-calls")
        await self._message("stop")
        change = agent.FileChange(path="calculator.py", status="modified", additions=3, deletions=1)
        self._say(
            agent.GitChanged(
                base_commit="0" * 40, head_commit="0" * 40, branch="main", files=[change], patch=_LETTERS * 20
            )
        )
        took = round((time.monotonic() - began) * 1000)
        self._say(agent.TurnEnded(turn_id=turn.turn_id, status="completed", duration_ms=took))
        await self._outbox.flush()
        self._turn = None
        self._ended.set()

    async def _message(self, finish: str) -> None:
        message_id, part_id = f"msg_{new_id()}", f"prt_{new_id()}"
        self._say(agent.MessageCreated(message_id=message_id, model="scripted/scripted-1"))
        texts: list[str] = []
        offset = 0
        began = time.monotonic()
        for number in range(int(self._setup.rate * self._setup.message_seconds)):
            await asyncio.sleep(max(0.0, began + number / self._setup.rate - time.monotonic()))
            text = f"@{time.monotonic_ns()} "
            delta = Delta(message_id=message_id, part_id=part_id, offset=offset, text=text)
            self._outbox.put(codec.encode(self._event("delta.text", delta), source=f"/sandboxes/{self.session_id}"))
            offset += len(text)
            texts.append(text)
        # without the marks: a completed text is no new measurement
        whole = "".join(texts).replace("@", "#")
        self._say(agent.TextCompleted(message_id=message_id, part_id=part_id, kind="text", text=whole))
        if finish != "stop":
            self._tool(message_id)
        tokens = agent.Tokens(input=4000, output=200)
        self._say(
            agent.MessageCompleted(
                message_id=message_id, text=whole, finish=finish, model="scripted/scripted-1", tokens=tokens
            )
        )

    def _tool(self, message_id: str) -> None:
        part_id, call_id = f"prt_{new_id()}", f"call_{new_id()}"
        states: tuple[tuple[agent.ToolStatus, str | None], ...] = (
            ("pending", None),
            ("running", None),
            ("completed", _LETTERS * 20),
        )
        for status, output in states:
            given: dict[str, object] = {"command": "python -m unittest", "description": "Run the tests"}
            self._say(
                agent.ToolUpdated(
                    message_id=message_id,
                    part_id=part_id,
                    call_id=call_id,
                    tool="bash",
                    status=status,
                    input=given,
                    output=output,
                )
            )

    def _say(self, data: Data) -> None:
        self._outbox.put(self._encoded(data))

    def _encoded(self, data: Data) -> codec.Outgoing:
        now_ms = time.time_ns() // 1_000_000
        event = codec.new_event(
            data, id=new_id(), session_id=self.session_id, now_ms=now_ms, turn=self._turn, epoch=self._epoch
        )
        return codec.encode(event, source=f"/sandboxes/{self.session_id}")

    def _event(self, type: str, data: Delta) -> Event:
        return Event(
            id=new_id(),
            type=type,
            session_id=self.session_id,
            time_ms=time.time_ns() // 1_000_000,
            turn=self._turn,
            epoch=self._epoch,
            data=data,
        )

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:  # pyright: ignore[reportPrivateUsage]
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _main(commands: Commands) -> None:
    setup = await commands.next(Setup)
    if setup is None:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    account = key_from_seed(setup.account_seed)
    endpoint = Endpoint(url=setup.url, token=setup.token)
    prompting: list[asyncio.Task[None]] = []
    everybody: list[Runner] = []  # so that idle ones live on
    operator = await broker.connect(setup.nats_url, name="bench-operator", creds=setup.creds)

    async def connect() -> Client:
        return await broker.connect(setup.nats_url, name="bench-sandboxes", creds=setup.creds, reconnect=False)

    async with Outbox(connect) as announcements:
        report(Started())
        while order := await commands.next(Add):
            began = time.monotonic()
            runners: list[Runner] = []
            starting: list[asyncio.Task[None]] = []
            async with wire.Kept(endpoint) as api:
                for _ in range(order.idle + order.streaming):
                    view = msgspec.json.decode(await api.post("/api/sessions", b"{}"), type=SessionView)
                    runners.append(Runner(setup, account, view.id))
                    starting.append(asyncio.create_task(runners[-1].start(operator, announcements)))
                    if len(starting) >= limits.LOAD_STARTS:
                        await starting.pop(0)
            await asyncio.gather(*starting)
            streaming = runners[: order.streaming]
            for number, runner in enumerate(streaming):
                # one after the other, so that their turns do not begin together
                after = 2 * setup.message_seconds * number / len(streaming)
                prompting.append(asyncio.create_task(runner.prompt_for_ever(endpoint, after)))
            everybody += runners
            report(Added(streaming=[one.session_id for one in streaming], seconds=time.monotonic() - began))
            for task in prompting:
                if task.done():
                    task.result()


if __name__ == "__main__":
    serve(_main)
