"""A service that is started for its first visitor: until then it costs nothing, and a boot does not wait for it.

Its door listens from the beginning. The first connection starts the programs and waits for them; then people are
passed on to them directly. When one of the programs ends, all do, and the next visitor starts them again.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from valet_service import logs

from valet_runner import limits, processes, relay
from valet_runner.boot_steps import BootSteps
from valet_runner.errors import ServiceUnavailable
from valet_runner.optional_services import Program, Recipe

_log = logs.get(__name__)


class OnDemand:
    """One such service. `prepare` clears away what the last one left and says how to start it; `leads_to` is told the
    port at which it is found now: the door's, or its own."""

    def __init__(
        self,
        name: str,
        *,
        prepare: Callable[[], Recipe],
        environment: Mapping[str, str],
        folder: str,
        steps: BootSteps,
        clock: Callable[[], float],
        leads_to: Callable[[int], None],
    ) -> None:
        self.name = name
        self._prepare = prepare
        self._environment = environment
        self._folder = folder
        self._steps = steps
        self._clock = clock
        self._leads_to = leads_to
        self._running: list[asyncio.subprocess.Process] = []
        self._port: int | None = None
        self._door = 0
        self._starting = asyncio.Lock()
        self._failed: tuple[float, str] | None = None
        self._last_words: deque[bytes] = deque(maxlen=20)
        self._watching: asyncio.Task[None] | None = None

    async def run(self, port: int, *, opened: Callable[[], Awaitable[None]]) -> None:
        """Open the door, at the port or at another if it is taken, and keep it open until cancelled; then everything is
        ended. `opened` is called in between."""
        try:
            server = await asyncio.start_server(self._visit, "127.0.0.1", port)
        except OSError:
            server = await asyncio.start_server(self._visit, "127.0.0.1", 0)
        try:
            self._door = server.sockets[0].getsockname()[1]
            self._leads_to(self._door)
            await opened()
            await asyncio.Event().wait()
        finally:
            server.close()
            if self._watching:
                self._watching.cancel()
            await self._end()

    async def start(self) -> int:
        """Have it run; gives its own port. Raises `ServiceUnavailable`."""
        async with self._starting:
            if self._port is not None:
                return self._port
            if self._failed and self._clock() - self._failed[0] < limits.ON_DEMAND_PAUSE:
                raise ServiceUnavailable(self._failed[1])
            try:
                port = await self._start()
            except ServiceUnavailable as error:
                await self._end()
                self._failed = (self._clock(), str(error))
                self._steps.stopped(self.name, str(error))
                raise
            self._failed, self._port = None, port
            self._watching = asyncio.create_task(self._watch())
            self._steps.running(self.name)
            self._leads_to(port)
            return port

    async def _start(self) -> int:
        recipe = self._prepare()
        self._last_words.clear()
        try:
            async with asyncio.timeout(limits.ON_DEMAND_START_TIMEOUT):
                for program in recipe.programs:
                    await self._start_program(program)
        except TimeoutError as error:
            raise ServiceUnavailable(
                f"{self.name} does not answer after {limits.ON_DEMAND_START_TIMEOUT:.0f} s. {self._words()}".strip()
            ) from error
        return recipe.port

    async def _start_program(self, program: Program) -> None:
        name = program.command[0]
        try:
            process = await processes.start(
                *program.command, env=self._environment, cwd=self._folder, stderr=asyncio.subprocess.STDOUT
            )
        except OSError as error:
            raise ServiceUnavailable(f"{name} cannot be started: {error.strerror or error}") from error
        self._running.append(process)
        asyncio.create_task(self._drain(process))
        while program.listens is not None and not await _connects(program.listens):
            if process.returncode is not None:
                raise ServiceUnavailable(f"{name} ended with status {process.returncode}. {self._words()}".strip())
            await asyncio.sleep(limits.ON_DEMAND_POLL)

    async def _watch(self) -> None:
        waits = {asyncio.create_task(process.wait()): process for process in self._running}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        first = waits[done.pop()]
        self._port = None
        self._leads_to(self._door)
        await self._end()
        self._steps.stopped(
            self.name, f"one of its programs ended with status {first.returncode}. {self._words()}".strip()
        )

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far = await asyncio.open_connection("127.0.0.1", await self.start())
        except (ServiceUnavailable, OSError) as error:
            _log.info("visitor_turned_away", part=self.name, reason=str(error))
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(limits.RELAY_CONNECT_TIMEOUT):  # closed unread, it would not get the answer
                    await reader.readuntil(b"\r\n\r\n")
            await relay.answer(writer, 503, f"{self.name} could not be started: {error}")
            return
        await relay.join(reader, writer, *far)

    async def _end(self) -> None:
        ended, self._running = self._running, []
        self._port = None
        for process in reversed(ended):
            processes.end_tree(process.pid)
        for process in ended:
            await process.wait()
            processes.forget(process.pid)

    async def _drain(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout
        while piece := await process.stdout.read(limits.LAST_WORDS_BYTES):
            self._last_words.append(piece)

    def _words(self) -> str:
        return b"".join(self._last_words)[-limits.LAST_WORDS_BYTES :].decode(errors="replace").strip()


async def _connects(place: int | str) -> bool:
    with contextlib.suppress(OSError):
        if isinstance(place, int):
            _, writer = await asyncio.open_connection("127.0.0.1", place)
        else:
            _, writer = await asyncio.open_unix_connection(place)
        writer.close()
        return True
    return False


def free_port() -> int:
    """A TCP port of loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
