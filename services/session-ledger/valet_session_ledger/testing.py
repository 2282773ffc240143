"""For tests, of the ledger and of who uses it: a runner and a sandbox controller that write what real ones would.

What is fake: they start no sandbox and no agent. Their events go through the real outbox into the real log.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.codec import decode, encode, new_event
from valet_protocol.events import agent, delta, sandbox
from valet_protocol.events.envelope import Data, Event
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    Accepted,
    Attached,
    AttachRunner,
    CreateSession,
    GetSession,
    ListMessages,
    MessagePage,
    Reply,
    Request,
    SessionView,
    SubmitPrompt,
)
from valet_protocol.tools.base import Tool
from valet_service import rpc
from valet_service.log_reader import LogReader
from valet_service.outbox import Outbox
from valet_service.settings import Settings

START = 20.0
"""Seconds for a process to start on a busy machine."""

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class Killable(Protocol):
    """A server of a test."""

    url: str

    def start(self) -> None:
        """Start it and wait until it serves."""
        ...

    def kill(self) -> None:
        """kill -9."""
        ...


class FakeSandbox:
    """Writes the events of one session's sandbox and of its runner."""

    def __init__(self, outbox: Outbox, session_id: str, epoch: int = 1) -> None:
        self._outbox = outbox
        self.session_id = session_id
        self.epoch = epoch

    async def sandbox(self, data: Data) -> int:
        """One event of the sandbox controller; its sequence."""
        return await self._outbox.put(encode(self._event(data, epoch=None), source="/sandbox-controller"))

    async def agent(self, data: Data, turn: str | None = None) -> int:
        """One event of the runner; its sequence."""
        event = self._event(data, epoch=self.epoch, turn=turn)
        return await self._outbox.put(encode(event, source=f"/sandboxes/{self.session_id}"))

    async def delta(self, message_id: str, text: str, offset: int = 0) -> int:
        """One chunk of text; its sequence."""
        event = Event(
            id=new_id(),
            type="delta.text",
            session_id=self.session_id,
            time_ms=time.time_ns() // 1_000_000,
            epoch=self.epoch,
            data=delta.Delta(message_id=message_id, part_id=f"{message_id}.p", offset=offset, text=text),
        )
        return await self._outbox.put(encode(event, source=f"/sandboxes/{self.session_id}"))

    async def boot(self, attach: Callable[[int], Awaitable[object]]) -> int:
        """From provisioning to ready; `attach(epoch)` asks the ledger. The sequence of `runner_ready`."""
        await self.sandbox(sandbox.SandboxProvisioning(epoch=self.epoch, provider="fake"))
        await self.sandbox(
            sandbox.SandboxReady(epoch=self.epoch, provider="fake", sandbox_id=os.urandom(4).hex(), isolation="none")
        )
        await attach(self.epoch)
        return await self.agent(agent.RunnerReady(opencode_version="fake", base_commit="abc", boot_ms=1))

    async def play_turn(self, turn_id: str, prompt_id: str, *, steps: int = 1, text: str = "done") -> int:
        """A whole turn of `steps` messages, each with a tool call. The sequence of its end."""
        await self.agent(agent.TurnStarted(turn_id=turn_id, prompt_id=prompt_id, opencode_session="oc"), turn_id)
        for _ in range(steps):
            await self.play_message(turn_id, text=text)
        return await self.agent(agent.TurnEnded(turn_id=turn_id, status="completed", cost=0.01 * steps), turn_id)

    async def play_message(self, turn_id: str, *, text: str) -> None:
        """One message: deltas, its text, a tool call."""
        message = new_id()
        await self.agent(agent.MessageCreated(message_id=message, model="fake/model"), turn_id)
        await self.delta(message, text)
        part = f"{message}.p"
        await self.agent(agent.TextCompleted(message_id=message, part_id=part, kind="text", text=text), turn_id)
        for status in ("running", "completed"):
            await self.agent(
                agent.ToolUpdated(
                    message_id=message,
                    part_id=f"{message}.t",
                    call_id="c",
                    tool="bash",
                    status=status,
                    input={"command": "ls"},
                    output="a\0b" if status == "completed" else None,
                ),
                turn_id,
            )
        tokens = agent.Tokens(input=10, output=5)
        await self.agent(
            agent.MessageCompleted(
                message_id=message, text=text, finish="stop", model="fake/model", cost=0.01, tokens=tokens
            ),
            turn_id,
        )

    def _event(self, data: Data, *, epoch: int | None, turn: str | None = None) -> Event:
        return new_event(
            data,
            id=new_id(),
            session_id=self.session_id,
            now_ms=time.time_ns() // 1_000_000,
            turn=turn,
            epoch=epoch,
        )


class LedgerProcess:
    """`python -m valet_session_ledger`, ready when started."""

    def __init__(self, settings: Settings, name: str = "ledger") -> None:
        self.settings = settings
        self._name = name
        self.log = settings.data_dir / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, within: float = START) -> None:
        """Start it and wait until it is ready. Raises `AssertionError` with its last words."""
        path = self.settings.run_dir / f"{self._name}-{new_id()[-6:]}.notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, self.log.open("ab") as log:
            notify.bind(str(path))
            notify.settimeout(within)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "valet_session_ledger"],
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "VALET_NATS_URL": self.settings.nats_url,
                    "VALET_DATABASE_URL": self.settings.database_url,
                    "VALET_DATA_DIR": str(self.settings.data_dir),
                    "VALET_RUN_DIR": str(self.settings.run_dir),
                    "VALET_SHARDS": ",".join(map(str, sorted(self.settings.shards))),
                    "NOTIFY_SOCKET": str(path),
                },
            )
            try:
                assert notify.recv(100) == b"READY=1"
            except TimeoutError:
                raise AssertionError(f"the ledger did not become ready: {self.log.read_text()[-2000:]}") from None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cpu_seconds(self) -> float:
        """What it has used so far."""
        assert self._process
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self._process
        self._process.terminate()
        status = self._process.wait(timeout=START)
        self._process = None
        return status


class Platform:
    """A client's view of a ledger: requests as api and runners make them, and fake sandboxes."""

    def __init__(self, nc: Client, outbox: Outbox) -> None:
        self.nc = nc
        self.outbox = outbox

    async def ask(self, request: Request, reply: type[R], *, timeout: float = 15.0) -> R:
        """A request, with its reply. Raises `Refused`."""
        if isinstance(request, AttachRunner):
            subject = subjects.sandbox_request(request.session_id, request.method)
        elif hasattr(request, "session_id"):
            subject = subjects.ledger_command(getattr(request, "session_id"), request.method)  # noqa: B009
        else:
            subject = subjects.ledger_query(request.method)
        return await rpc.call(self.nc, subject, request, reply, timeout=timeout)

    async def tool(self, tool: Tool, *, timeout: float = 15.0) -> Any:
        """What a session's agent asks of the platform, with its reply. Raises `Refused`."""
        subject = subjects.sandbox_request(tool.session_id, tool.method)
        return await rpc.call(self.nc, subject, tool, tool.reply, timeout=timeout)

    async def create(self, **fields: object) -> str:
        """A new session of ada's; its id."""
        session_id = new_id()
        await self.ask(
            CreateSession(session_id=session_id, owner="ada", model="fake/model", **fields),  # type: ignore[arg-type]
            SessionView,
        )
        return session_id

    async def prompt(self, session_id: str, content: str = "Hello", prompt_id: str | None = None) -> Accepted:
        """A prompt of ada's."""
        request = SubmitPrompt(session_id=session_id, user="ada", prompt_id=prompt_id or new_id(), content=content)
        return await self.ask(request, Accepted)

    async def session(self, session_id: str) -> SessionView:
        """Its view."""
        return await self.ask(GetSession(session_id=session_id, user="ada"), SessionView)

    async def messages(self, session_id: str) -> MessagePage:
        """Its first page of messages."""
        return await self.ask(ListMessages(session_id=session_id, user="ada"), MessagePage)

    async def log(self, session_id: str) -> list[Event]:
        """Every event of a session that is in the log."""
        events: list[Event] = []
        async with LogReader(self.nc, [subjects.session(session_id)], start=1) as reader:
            pending = reader.pending_at_start
            while pending:
                entries = await reader.batch(1000)
                pending = entries[-1].pending
                events += [decode(entry.payload, entry.seq) for entry in entries]
        return events

    def fake(self, session_id: str, epoch: int = 1) -> FakeSandbox:
        """Its sandbox, not booted."""
        return FakeSandbox(self.outbox, session_id, epoch)

    async def boot(self, session_id: str, epoch: int = 1) -> FakeSandbox:
        """A runner that is ready for its first turn."""
        sandbox = self.fake(session_id, epoch)

        async def attach(epoch: int) -> object:
            return await self.ask(AttachRunner(session_id=session_id, epoch=epoch, runner_version="t"), Attached)

        await sandbox.boot(attach)
        return sandbox

    async def until(
        self, session_id: str, holds: Callable[[SessionView], object], timeout: float = 15.0
    ) -> SessionView:
        """Wait until something holds of a session's view."""
        return await wait_for(lambda: self.session(session_id), holds, timeout)

    async def dispatched(self, session_id: str, turns: int = 1) -> tuple[str, str]:
        """Wait for the n-th turn; its id and its prompt's."""
        view = await self.until(session_id, lambda view: view.turns >= turns and view.active_turn)
        assert view.active_turn
        return view.active_turn.turn_id, view.active_turn.prompt_id


async def wait_for(read: Callable[[], Awaitable[T]], holds: Callable[[T], object], timeout: float = 15.0) -> T:
    """Read again and again until a condition holds. Raises `AssertionError` with what was read last."""
    deadline = time.monotonic() + timeout
    while True:
        value = await read()
        if holds(value):
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain; the last was {value}")
        await asyncio.sleep(0.02)
