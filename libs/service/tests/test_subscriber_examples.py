"""Claims about the page "Write a subscriber": it shows the example files, and they do what it says on a real log."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from valet_protocol import codec
from valet_protocol.events.agent import MessageCompleted, TurnStarted
from valet_service import broker, credentials
from valet_service.outbox import Outbox
from valet_service.testing import BrokerProcess, until

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = DOCS / "examples"
SESSIONS = ("01JAAAAAAAAAAAAAAAAAAAAAA1", "01JBBBBBBBBBBBBBBBBBBBBBB2")

NPM_TIMEOUT = 120.0
"""Four small packages; a cold registry mirror needs some seconds for each."""


@pytest.mark.parametrize("name", ["subscriber.py", "subscriber.mjs"])
def test_the_page_shows_the_example_as_it_is(name: str) -> None:
    assert (EXAMPLES / name).read_text() in (DOCS / "subscribe.md").read_text()


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (EXAMPLES / "package-lock.json").read_text()


class Log:
    """A real log behind a broker that asks for credentials, with those of a subscriber."""

    def __init__(self, server: BrokerProcess, folder: Path) -> None:
        self.server = server
        self.subscriber_creds = folder / "subscriber.creds"
        self.writer_creds = folder / "writer.creds"

    async def complete(self, *texts: str) -> None:
        """Each text becomes a completed message, by turns in two sessions, with other events between."""
        async with Outbox(lambda: self.server.connect("writer", reconnect=False, creds=self.writer_creds)) as outbox:
            for number, text in enumerate(texts):
                for data in (
                    TurnStarted(turn_id=text, prompt_id="p", opencode_session="s"),
                    MessageCompleted(message_id=text, text=text),
                ):
                    event = codec.new_event(
                        data, id=f"{text}-{type(data).__name__}", session_id=SESSIONS[number % 2], now_ms=0
                    )
                    outbox.put(codec.encode(event, source="/test"))
            await asyncio.wait_for(outbox.flush(), 10)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    operator = credentials.key_from_entropy("operator", b"o" * 32)
    system, account = (credentials.key_from_entropy("account", entropy * 32) for entropy in (b"s", b"a"))
    trust = credentials.trust(operator=operator, system=system, account=account, now=1_000)
    with BrokerProcess(tmp_path / "nats", trust) as server:
        log = Log(server, tmp_path)
        log.subscriber_creds.write_text(
            credentials.creds(
                account,
                credentials.SUBSCRIBER,
                credentials.service_permissions(credentials.SUBSCRIBER),
                entropy=b"1" * 32,
                now=1_000,
            )
        )
        everything = credentials.Permissions(publish=(">",), subscribe=(">",))
        log.writer_creds.write_text(credentials.creds(account, "writer", everything, entropy=b"2" * 32, now=1_000))
        nc = await server.connect(creds=log.writer_creds)
        await broker.ensure_stream(nc)
        await broker.close(nc)
        yield log


class Example:
    """A running example and the lines it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.lines: list[str] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: list[str], log: Log, cursor: Path) -> "Example":
        process = await asyncio.create_subprocess_exec(
            *command,
            env={
                **os.environ,
                "NATS_URL": log.server.url,
                "NATS_CREDS": str(log.subscriber_creds),
                "CURSOR": str(cursor),
            },
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def _read(self) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()
        await self._reading


async def python_command(folder: Path) -> list[str]:
    return [sys.executable, str(EXAMPLES / "subscriber.py")]


async def node_command(folder: Path) -> list[str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node or npm is missing: the example for Node is not run")
    place = folder / "example"
    place.mkdir()
    for name in ("subscriber.mjs", "package.json", "package-lock.json"):
        shutil.copy(EXAMPLES / name, place)
    install = await asyncio.create_subprocess_exec(
        npm, "ci", "--ignore-scripts", cwd=place, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(install.communicate(), NPM_TIMEOUT)
    assert install.returncode == 0, out.decode()
    return [node, str(place / "subscriber.mjs")]


@pytest.mark.parametrize("command", [python_command, node_command])
async def test_the_example_prints_each_completed_message_once_across_restarts_of_both_sides(
    command: Callable[[Path], Awaitable[list[str]]], log: Log, tmp_path: Path
) -> None:
    arguments = await command(tmp_path)
    expected: list[str] = []

    async def complete(*texts: str) -> None:
        for number, text in enumerate(texts):
            expected.append(f"{2 * len(expected) + 2} {SESSIONS[number % 2]} {text}")
        await log.complete(*texts)

    await complete("one", "two", "three")
    example = await Example.start(arguments, log, tmp_path / "cursor")
    await until(lambda: example.lines == expected, f"history is printed, not {example.lines}", timeout=20)
    await complete("four")
    await until(lambda: example.lines == expected, f"what comes later is printed, not {example.lines}")
    log.server.kill()
    log.server.start()
    await complete("five", "six")
    await until(lambda: example.lines == expected, f"it survives the broker's restart: {example.lines}", timeout=30)
    await until(lambda: (tmp_path / "cursor").read_text() == "12", "the cursor is written")
    await example.kill()
    await complete("seven")
    again = await Example.start(arguments, log, tmp_path / "cursor")
    await until(lambda: again.lines == expected[-1:], f"it goes on where it stopped: {again.lines}", timeout=20)
    await again.kill()
