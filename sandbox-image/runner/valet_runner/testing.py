"""For tests of the runner: a real broker, a real runner with a real OpenCode, and stand-ins for the two others.

`Ledger` stands for the session ledger (it answers `attach_runner` and appends facts when a test says so), `Portal`
for the sandbox's portal (it lets models and the broker through, and nothing else).
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from urllib.parse import urlsplit

import msgspec
from nats.aio.client import Client, RawCredentials
from valet_protocol import codec, subjects
from valet_protocol.errors import Conflict
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event
from valet_protocol.ids import new_id
from valet_protocol.requests import Attached, AttachRunner, ListWriters, Writers
from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import broker, durable_reader, rpc
from valet_service.log_reader import LogReader

WAIT = 60.0
"""Seconds a test waits for anything: OpenCode starts in 3 s alone, and in far more on a machine full of tests."""

D = TypeVar("D", bound=Data)


class Logged(msgspec.Struct, Generic[D], frozen=True, kw_only=True):
    """An event of the log whose kind is known."""

    seq: int
    turn: str | None
    epoch: int | None
    data: D


async def condition(check: Callable[[], bool]) -> None:
    """Wait until something of the world outside is so."""
    async with asyncio.timeout(WAIT):
        while not check():  # noqa: ASYNC110 - processes and files set no event
            await asyncio.sleep(0.02)


class Broker:
    """A nats-server that can be killed and started again on its store. `settings` makes its configuration of its port;
    by default it lets everybody do everything."""

    def __init__(self, folder: Path, settings: Callable[[int], str] | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._config = folder / "nats.conf"
        open_to_all = f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{folder}" }}\nmax_payload: 8MB\n'
        self._config.write_text(settings(self.port) if settings else open_to_all)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it accepts connections."""
        binary = Path(sys.executable).with_name("nats-server")
        self._process = subprocess.Popen(
            [binary, "-c", self._config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + WAIT
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < until, "nats-server does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait(5)
            self._process = None


class Portal:
    """The portal's unix socket: `/model/<provider>/…` goes to one model server, `CONNECT nats.valet` to a broker, and
    `/objects/…` to the socket `objects`, if there is one."""

    def __init__(self, path: Path, *, token: str, model_url: str, nats_port: int) -> None:
        self.path = path
        self._token = token
        self._model = urlsplit(model_url)
        self._nats_port = nats_port
        self._server: asyncio.Server | None = None
        self.objects: Path | None = None
        """Socket of an object store."""
        self.heads: list[str] = []
        """Heads of the requests it got."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            method, target, _ = head.split(" ", 2)
            if f"uthorization: Bearer {self._token}\r\n" not in head:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            elif method == "CONNECT" and target == "nats.valet:4222":
                far = await asyncio.open_connection("127.0.0.1", self._nats_port)
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await _both(reader, writer, *far)
            elif target.startswith("/model/"):
                far = await asyncio.open_connection(self._model.hostname, self._model.port)
                path = self._model.path + "/" + target.split("/", 3)[3]
                far[1].write(head.replace(target, path, 1).encode("latin-1"))
                await _both(reader, writer, *far)
            elif target.startswith("/objects/") and self.objects:
                far = await asyncio.open_unix_connection(self.objects)
                far[1].write(head.encode("latin-1"))
                await _both(reader, writer, *far)
            else:
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        writer.close()


async def _both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
        target.close()

    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))


class Ledger:
    """One session's log, and the ledger's part in it; `creds` for a broker that wants some. Use with `async with`."""

    def __init__(self, url: str, session_id: str, *, creds: str | None = None) -> None:
        self._url = url
        self._creds = RawCredentials(creds) if creds else None
        self.session_id = session_id
        self.events: list[Event] = []
        """The log so far, in order."""
        self.current_epoch = 1
        """Runners of an older one are refused."""
        self.base_commit: str | None = None
        """What a runner is told of earlier ones."""
        self.policy = facts.SessionPolicy()
        """How a runner is told to treat permissions."""
        self.work: agent.WorkRef | None = None
        """Saved work that a runner is told of."""
        self.writers: dict[str, int] = {"u1": 0, "u2": 0}
        """Who a runner is told may be in the sandbox, by user id since when."""
        self._arrived = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._nc: Client = await broker.connect(self._url, name="test ledger", creds=self._creds)  # type: ignore[arg-type]
        self._stack.push_async_callback(self._nc.close)
        await broker.ensure_stream(self._nc)
        await durable_reader.ensure_consumer(
            self._nc, subjects.runner_consumer(self.session_id), [subjects.source(self.session_id, "fact")]
        )
        subject = subjects.sandbox_request(self.session_id, AttachRunner.method)
        await rpc.serve(self._nc, subject, AttachRunner, self._attach, queue="ledger")
        subject = subjects.sandbox_request(self.session_id, ListWriters.method)
        await rpc.serve(self._nc, subject, ListWriters, self._list_writers, queue="ledger")
        reader = await self._stack.enter_async_context(
            LogReader(self._nc, [subjects.session(self.session_id)], start=1)
        )
        task = asyncio.create_task(self._read(reader))
        self._stack.callback(task.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # a broker that was just killed
            await self._stack.aclose()

    async def append(self, data: Data) -> None:
        """Append a fact; tried again while the broker is away."""
        out = codec.encode(
            codec.new_event(data, id=new_id(), session_id=self.session_id, now_ms=time.time_ns() // 1_000_000),
            source="/session-ledger",
        )
        js = self._nc.jetstream(timeout=5)
        await js.publish(out.subject, out.payload, headers={"Nats-Msg-Id": out.msg_id})

    async def dispatch(self, content: str, *, model: str = "scripted/scripted-1", **more: Any) -> str:
        """Dispatch a turn; gives its id. `more` are further fields of `turn_dispatched`."""
        turn_id = new_id()
        fact = facts.TurnDispatched(turn_id=turn_id, prompt_id=new_id(), content=content, model=model, author="u")
        await self.append(msgspec.structs.replace(fact, **more))
        return turn_id

    async def steer(self, turn_id: str, content: str) -> str:
        """Steer a turn; gives the prompt's id."""
        prompt_id = new_id()
        await self.append(facts.PromptSteered(turn_id=turn_id, prompt_id=prompt_id, content=content, author="u"))
        return prompt_id

    async def command(self, command: facts.CommandName, **more: Any) -> Logged[agent.CommandCompleted]:
        """Have a command carried out; gives its result. `more` are further fields of `command_requested`."""
        due = time.time_ns() // 1_000_000 + 60_000
        fact = facts.CommandRequested(request_id=new_id(), command=command, by="u", due_ms=due)
        fact = msgspec.structs.replace(fact, **more)
        mark = len(self.events)
        await self.append(fact)
        return await self.until(agent.CommandCompleted, lambda done: done.request_id == fact.request_id, after=mark)

    async def deliver_again(self) -> None:
        """Have the broker forget what the runner acknowledged: every fact is delivered once more."""
        name = subjects.runner_consumer(self.session_id)
        await durable_reader.delete_consumer(self._nc, name)
        await durable_reader.ensure_consumer(self._nc, name, [subjects.source(self.session_id, "fact")])

    async def until(
        self,
        kind: type[D],
        wanted: Callable[[D], bool] = lambda _: True,
        *,
        after: int = 0,
        turn: str | None = None,
    ) -> Logged[D]:
        """The first event of a kind that fits, waited for; `after` skips that many events of the log."""
        async with asyncio.timeout(WAIT):
            while True:
                self._arrived.clear()
                for event in self.events[after:]:
                    if isinstance(event.data, kind) and turn in (None, event.turn) and wanted(event.data):
                        return Logged(seq=event.seq, turn=event.turn, epoch=event.epoch, data=event.data)
                await self._arrived.wait()

    def said(self, kind: type[D], *, turn: str | None = None) -> list[D]:
        """The data of every event of a kind, of one turn or all."""
        return [e.data for e in self.events if isinstance(e.data, kind) and turn in (None, e.turn)]

    async def _attach(self, request: AttachRunner) -> Attached:
        if request.epoch < self.current_epoch:
            raise Conflict("replaced", f"epoch {self.current_epoch} has the session")
        seq = self.events[-1].seq if self.events else 0
        return Attached(seq=seq, base_commit=self.base_commit, policy=self.policy, work=self.work)

    async def _list_writers(self, _: ListWriters) -> Writers:
        return Writers(seq=self.events[-1].seq if self.events else 0, since=self.writers)

    async def _read(self, reader: LogReader) -> None:
        while True:
            for entry in await reader.batch(500):
                self.events.append(codec.decode(entry.payload, entry.seq))
            self._arrived.set()


class Runner:
    """`python -m valet_runner` as the sandbox controller starts it, without the sandbox, unless the command line
    `inside` makes one; then its spec comes on standard input."""

    def __init__(self, spec: RunnerSpec, folder: Path, *, inside: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.spec = spec
        self.inside = inside
        self._path = folder / f"runner-{spec.epoch}.json"
        self._log = folder / f"runner-{spec.epoch}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        spec = msgspec.json.encode(self.spec)
        if not self.inside:
            self._path.write_bytes(spec)
            self._path.chmod(0o600)
        environ = {"PATH": self.spec.path, "VALET_RUNNER_SPEC": "-" if self.inside else str(self._path)}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.inside, sys.executable, "-m", "valet_runner"],
                env=environ,
                stdin=subprocess.PIPE,
                stderr=log,
                stdout=log,
                start_new_session=True,
            )
        assert self.process.stdin
        with self.process.stdin as stdin:
            stdin.write(spec if self.inside else b"")

    def children(self) -> Iterable[tuple[int, str]]:
        """Pid and command line of the processes it started itself."""
        assert self.process
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == self.process.pid:
                    yield int(entry.name), (entry / "cmdline").read_text().replace("\0", " ")

    def opencode(self) -> int:
        """Pid of its OpenCode."""
        return next(pid for pid, command in self.children() if " serve " in command)

    def status(self) -> int | None:
        """Its exit status; none while it runs."""
        assert self.process
        return self.process.poll()

    def wait(self) -> int:
        """Wait for its end; gives the exit status."""
        assert self.process
        return self.process.wait(WAIT)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; gives the exit status."""
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(20)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)

    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text() if self._log.exists() else ""


def search_path() -> str:
    """A `PATH` with `rg` and `git`."""
    return os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
