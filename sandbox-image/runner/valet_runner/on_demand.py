"""A service that is started for its first visitor: until then it costs nothing, and a boot does not wait for it.

Its door listens from the beginning. When the boot is over, the first connection starts the programs; then people are
passed on to them directly. When one of the programs ends, or nobody has been connected for long, all of them are ended,
and the next visitor starts them again. Who comes while it does not run waits a little, or is told to come again.
"""

import asyncio
import contextlib
import math
import socket
from collections import deque
from collections.abc import Callable, Mapping

from valet_service import logs

from valet_runner import connections, door, limits, processes, relay
from valet_runner.boot_steps import BootSteps
from valet_runner.errors import ServiceUnavailable
from valet_runner.optional_services import Program, Recipe

_log = logs.get(__name__)


class OnDemand:
    """One such service. `prepare` clears away what the last one left and says how to start it; `leads_to` is told the
    port at which it is found now: the door's, or its own. `listener` is the door's (see `listen`)."""

    def __init__(
        self,
        name: str,
        *,
        title: str,
        listener: socket.socket,
        prepare: Callable[[], Recipe],
        environment: Mapping[str, str],
        folder: str,
        steps: BootSteps,
        clock: Callable[[], float],
        leads_to: Callable[[int], None],
    ) -> None:
        self.name = name
        self._title = title
        self._listener = listener
        self._prepare = prepare
        self._environment = environment
        self._folder = folder
        self._steps = steps
        self._clock = clock
        self._leads_to = leads_to
        self._may_start = False
        self._running: list[asyncio.subprocess.Process] = []
        self._port: int | None = None
        self._starting = asyncio.Lock()
        self._attempt: asyncio.Task[int] | None = None
        self._failed: tuple[float, str] | None = None
        self._last_words: deque[bytes] = deque(maxlen=20)
        self._watching: asyncio.Task[None] | None = None

    @property
    def door(self) -> int:
        """Port of its door, from the beginning to the end."""
        return self._listener.getsockname()[1]

    async def run(self) -> None:
        """Keep the door open until cancelled; then everything is ended."""
        server = await asyncio.start_server(self._visit, sock=self._listener, limit=limits.RELAY_HEAD_BYTES)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for task in (self._watching, self._attempt):
                if task:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
            await self._end()

    def open(self) -> None:
        """The boot is over: it may be started from now on."""
        self._may_start = True

    async def start(self) -> int:
        """Have it run; gives its own port. Raises `ServiceUnavailable`."""
        async with self._starting:
            if self._port is not None:
                return self._port
            if self._failed and self._pause() > 0:
                raise ServiceUnavailable(self._failed[1])
            try:
                recipe = self._prepare()
                await self._start(recipe)
            except ServiceUnavailable as error:
                await self._end()
                self._failed = (self._clock(), str(error))
                self._steps.stopped(self.name, str(error))
                raise
            self._failed, self._port = None, recipe.port
            self._watching = asyncio.create_task(self._watch(recipe))
            self._steps.running(self.name)
            self._leads_to(recipe.port)
            return recipe.port

    async def _start(self, recipe: Recipe) -> None:
        self._last_words.clear()
        try:
            async with asyncio.timeout(limits.ON_DEMAND_START_TIMEOUT):
                for program in recipe.programs:
                    await self._start_program(program)
        except TimeoutError as error:
            raise ServiceUnavailable(
                f"{self.name} does not answer after {limits.ON_DEMAND_START_TIMEOUT:.0f} s. {self._words()}".strip()
            ) from error

    async def _start_program(self, program: Program) -> None:
        name = program.command[0]
        try:
            process = await processes.start(
                *program.command, env=self._environment, cwd=self._folder, stderr=asyncio.subprocess.STDOUT
            )
        except OSError as error:
            raise ServiceUnavailable(f"{name} cannot be started: {error.strerror or error}") from error
        self._running.append(process)
        drained = asyncio.create_task(self._drain(process))
        while program.listens is not None and not await _connects(program.listens):
            if process.returncode is not None:
                await asyncio.wait((drained,), timeout=limits.ON_DEMAND_POLL)  # what it said last
                raise ServiceUnavailable(f"{name} ended with status {process.returncode}. {self._words()}".strip())
            await asyncio.sleep(limits.ON_DEMAND_POLL)

    async def _watch(self, recipe: Recipe) -> None:
        """Until one of its programs ends, or nobody uses it any more; then end all of it."""
        waits = {asyncio.create_task(process.wait()): process for process in self._running}
        unused = asyncio.create_task(self._unused(recipe))
        try:
            while True:
                done, _ = await asyncio.wait((*waits, unused), return_when=asyncio.FIRST_COMPLETED)
                async with self._starting:  # who comes now waits for the end, and starts it again
                    self._leads_to(self.door)
                    ended = next((process for task, process in waits.items() if task in done), None)
                    if ended is None and await self._is_used(recipe.port):
                        self._leads_to(recipe.port)
                        unused = asyncio.create_task(self._unused(recipe))
                        continue
                    await self._end()
                    break
        finally:
            for wait in (*waits, unused):
                wait.cancel()
        if ended is None:
            why = f"nobody has visited it for {(recipe.unused or 0) / 60:.0f} minutes; the next visitor starts it again"
        else:
            why = f"one of its programs ended with status {ended.returncode}. {self._words()}".strip()
        self._steps.stopped(self.name, why)

    async def _unused(self, recipe: Recipe) -> None:
        """Wait until nobody has been connected for as long as the recipe says."""
        if recipe.unused is None:
            await asyncio.Event().wait()
            return
        since = self._clock()
        while self._clock() - since < recipe.unused:
            await asyncio.sleep(limits.UNUSED_POLL)
            if connections.to(recipe.port) != 0:
                since = self._clock()

    async def _is_used(self, port: int) -> bool:
        await asyncio.sleep(limits.UNUSED_LAST_LOOK)
        return connections.to(port) != 0

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(limits.DOOR_HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.close()
            return
        try:
            port = await self._reach(limits.DOOR_PATIENCE if door.is_page(head) else None)
            if port is None:
                await _say(writer, door.answer("starting", self._on_its_way(), retry_after=limits.DOOR_RETRY))
                return
            far = await asyncio.open_connection("127.0.0.1", port)
        except (ServiceUnavailable, OSError) as error:
            _log.info("visitor_turned_away", part=self.name, reason=str(error))
            detail = f"{self._title} could not be started: {error}"
            await _say(writer, door.answer("failed", detail, retry_after=math.ceil(self._pause()) or 1))
            return
        far[1].write(head)
        await relay.join(reader, writer, *far)

    async def _reach(self, patience: float | None) -> int | None:
        """Its own port once it runs; none if it takes longer than that. Raises `ServiceUnavailable`."""
        if not self._may_start:
            return None
        attempt = self._attempt
        if attempt is None or attempt.done():
            attempt = self._attempt = asyncio.create_task(self.start())
            attempt.add_done_callback(_heard)
        done, _ = await asyncio.wait((attempt,), timeout=patience)
        return attempt.result() if done else None

    def _on_its_way(self) -> str:
        if self._may_start:
            return f"{self._title} is starting in this sandbox."
        return f"The sandbox is still booting. {self._title} can be opened as soon as that is over."

    def _pause(self) -> float:
        """Seconds until it may be tried again after a failure."""
        return max(0.0, self._failed[0] + limits.ON_DEMAND_PAUSE - self._clock()) if self._failed else 0.0

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


def listen(port: int) -> socket.socket:
    """A listener for a door, at this port of loopback or at another if it is taken."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def free_port() -> int:
    """A TCP port of loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _heard(attempt: asyncio.Task[int]) -> None:
    # whoever waited for it may be gone; that it failed was said by then
    if not attempt.cancelled():
        attempt.exception()


async def _say(writer: asyncio.StreamWriter, response: bytes) -> None:
    with contextlib.suppress(OSError):
        writer.write(response)
        await writer.drain()
    writer.close()


async def _connects(place: int | str) -> bool:
    with contextlib.suppress(OSError):
        if isinstance(place, int):
            _, writer = await asyncio.open_connection("127.0.0.1", place)
        else:
            _, writer = await asyncio.open_unix_connection(place)
        writer.close()
        return True
    return False
