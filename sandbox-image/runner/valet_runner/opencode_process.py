"""Keeping one OpenCode running: start, health, restart with back-off, end of its whole tree."""

import asyncio
import os
import re
import secrets
import shutil
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from valet_protocol.events.facts import SessionPolicy
from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import logs

from valet_runner import limits, opencode_config, processes
from valet_runner.errors import OpencodeFailed, OpencodeRefused, OpencodeUnavailable
from valet_runner.opencode_client import OpencodeClient
from valet_runner.opencode_config import Surroundings
from valet_runner.patience import until_started
from valet_runner.tools import skills

_LISTENING = re.compile(rb"listening on (http://\S+)")

_log = logs.get(__name__)

_SCRIPTS = Path(__file__).parent / "opencode_plugin"
_LOCKS = Path(".local") / "state" / "opencode" / "locks"


class OpencodeProcess:
    """OpenCode, restarted whenever it ends. `run()` is its life; `client()` gives whoever needs it the present one.

    `ended` is called when a healthy one is gone, before the next is started; `healthy` when one can be used, with
    whether it is the first; `delayed`, with the reason, when the first is tried once more. `reachable` is told which
    one runs, and none when it is gone.
    """

    def __init__(
        self, spec: RunnerSpec, around: Surroundings, *, reachable: Callable[[OpencodeClient | None], None]
    ) -> None:
        self._spec = spec
        self._around = around
        self._reachable = reachable
        self._client: OpencodeClient | None = None
        self._ready = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._last_words: deque[bytes] = deque()
        self._failed: OpencodeFailed | None = None
        self._policy = SessionPolicy()
        self._taken_in = False
        self._others: frozenset[int] = frozenset()
        self.version = ""
        self.ended: Callable[[str], Awaitable[None]] | None = None
        self.healthy: Callable[[bool], Awaitable[None]] | None = None
        self.delayed: Callable[[str], None] | None = None

    async def client(self, timeout: float) -> OpencodeClient:
        """The running OpenCode, waited for if need be.

        Raises `OpencodeUnavailable` after `timeout` seconds, `OpencodeFailed` when it could never be started.
        """
        try:
            await asyncio.wait_for(self._ready.wait(), timeout)
        except TimeoutError as error:
            raise OpencodeUnavailable(f"OpenCode is not ready within {timeout:.0f} s") from error
        if self._failed:
            raise self._failed
        assert self._client
        return self._client

    async def take_in(self) -> None:
        """Have OpenCode take the workspace in, now that it is there, however often that must be asked; one that is
        started later does it by itself. Raises what the client raises when it does not in time."""
        self._taken_in = True
        until = time.monotonic() + limits.START_TIMEOUT
        while True:
            try:
                await (await self.client(limits.START_TIMEOUT)).warm_up()
                return
            except OpencodeUnavailable as error:
                if time.monotonic() > until:
                    raise
                _log.warning("taking_in_repeats", reason=str(error))

    async def apply(self, policy: SessionPolicy) -> None:
        """Have OpenCode's configuration say what the policy says. Call it between turns: OpenCode takes the workspace
        in anew, and what runs would be aborted. Raises what the client raises."""
        if policy == self._policy:
            return
        client = await self.client(limits.READY_TIMEOUT)
        old, self._policy = self._policy, policy
        if self._config() == opencode_config.config(self._spec, self._around, policy=old):
            return
        try:
            _write_config(self._config_dir, self._config())
            await client.dispose()
        except (OpencodeUnavailable, OpencodeRefused):
            self._policy = old
            raise

    def kill(self) -> None:
        """End it at once, with everything it started; `run` starts another."""
        if self._process and self._process.returncode is None:
            processes.end_tree(self._process.pid)

    async def run(self) -> None:
        """Until cancelled; then it is ended in order. After a few failed first starts it gives up."""
        wait, starts, ever = limits.RESTART_WAIT, 0, False
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                try:
                    await self._start(starts if not ever else 0)
                    first, ever = not ever, True
                    if self.healthy:
                        await self.healthy(first)
                    await self._watch()
                    detail = f"OpenCode ended with status {self._code()}"
                except OpencodeUnavailable as error:
                    detail = str(error)
                    self.kill()
                await self._forget()
                _log.warning("opencode_ended", detail=detail, output=self._output())
                if ever and self.ended:
                    await self.ended(detail)
                starts += 1
                if not ever and starts >= limits.FIRST_STARTS:
                    self._failed = OpencodeFailed(f"{detail}\n{self._output()}".strip())
                    self._ready.set()
                    return
                if not ever and self.delayed:
                    self.delayed(f"{detail}; it is started again, {starts + 1} of {limits.FIRST_STARTS}")
                if loop.time() - began > limits.RESTART_RESET:
                    wait = limits.RESTART_WAIT
                await asyncio.sleep(wait)
                wait = min(wait * 2, limits.RESTART_WAIT_MAX)
        finally:
            await self._stop()

    async def _start(self, tries: int) -> None:
        config_file = _write_config(self._config_dir, self._config())
        password = secrets.token_urlsafe(24)
        self._last_words.clear()
        # one that was killed has not let go of its locks, and the next would wait for them with its first answer
        shutil.rmtree(Path(self._spec.home) / _LOCKS, ignore_errors=True)
        self._others = processes.children()
        try:
            self._process = await processes.start(
                self._spec.opencode,
                "serve",
                "--port",
                "0",
                "--hostname",
                "127.0.0.1",
                env=opencode_config.guarded(
                    opencode_config.environment(
                        self._spec, self._around, config_file=str(config_file), plugin_dir=str(self._config_dir)
                    ),
                    # not a copy in the home: what the agent can write must not see the password
                    str(_SCRIPTS / "guard.js"),
                ),
                # not the workspace: its clone may still be running, and OpenCode would look at it half done
                cwd=self._spec.home,
                stdin=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise OpencodeUnavailable(f"{self._spec.opencode} cannot be started: {error}") from error
        assert self._process.stdin
        self._process.stdin.write(f"{password}\n".encode())
        began = asyncio.get_running_loop().time()
        patience = min(limits.START_TIMEOUT * 2**tries, limits.START_TIMEOUT_MAX)
        try:
            client, is_open = await until_started(
                self._answering(password), pid=self._process.pid, patience=patience, most=limits.START_TIMEOUT_MAX
            )
        except TimeoutError as error:
            took = asyncio.get_running_loop().time() - began
            raise OpencodeUnavailable(f"OpenCode is not healthy after {took:.0f} s") from error
        self.version = (await client.health()).version
        if is_open:
            raise OpencodeUnavailable("OpenCode did not take its password, and the agent could call it")
        self._process.stdin.close()  # from now on nothing it starts inherits the password
        if self._taken_in:
            try:
                await client.warm_up()
            except (OpencodeUnavailable, OpencodeRefused) as error:
                _log.warning("not_warmed_up", reason=str(error))
        self._client = client
        self._ready.set()
        self._reachable(client)

    async def _answering(self, password: str) -> tuple[OpencodeClient, bool]:
        """The started OpenCode once it answers, and whether it does so to anybody."""
        assert self._process
        client = OpencodeClient(await self._listening(), password, self._spec.workspace)
        while True:
            if await _healthy(client):
                is_open = await _is_open(client)
                if is_open is not None:
                    return client, is_open
            elif self._process.returncode is not None:
                raise OpencodeUnavailable("OpenCode ended while it started")
            else:
                await asyncio.sleep(limits.PROBE_WAIT)

    @property
    def _config_dir(self) -> Path:
        return Path(self._spec.home) / ".config" / "valet-opencode"

    def _config(self) -> bytes:
        return opencode_config.config(self._spec, self._around, policy=self._policy)

    async def _listening(self) -> str:
        assert self._process
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            self._remember(line)
            if found := _LISTENING.search(line):
                return found[1].decode()
        raise OpencodeUnavailable("OpenCode ended before it listened")

    async def _watch(self) -> None:
        """Until it ends, or hangs and is killed. Its output is read, for a full pipe would stop it."""
        assert self._process
        assert self._process.stdout
        assert self._client
        loop = asyncio.get_running_loop()
        answered = loop.time()
        reader = asyncio.create_task(self._drain(self._process.stdout))
        try:
            waiting = asyncio.create_task(self._process.wait())
            while not waiting.done():
                if await _healthy(self._client):
                    answered = loop.time()
                elif loop.time() - answered > limits.HANG_TIMEOUT:
                    self._remember(b"it no longer answered and was killed\n")
                    self.kill()
                await processes.reap_adopted()
                await asyncio.wait([waiting], timeout=limits.LOOK_EVERY)
            await processes.end_orphans(self._process.pid, others=self._others)
        finally:
            reader.cancel()

    async def _drain(self, output: asyncio.StreamReader) -> None:
        while piece := await output.read(1 << 16):
            self._remember(piece)

    async def _forget(self) -> None:
        client, self._client = self._client, None
        self._ready.clear()
        if client:
            self._reachable(None)
            await client.close()

    async def _stop(self) -> None:
        process = self._process
        if process and process.returncode is None:
            try:
                os.killpg(process.pid, signal.SIGTERM)
                await asyncio.wait_for(process.wait(), limits.STOP_GRACE)
            except (TimeoutError, ProcessLookupError):
                _log.info("opencode_killed", reason="it did not end in time")
            processes.end_tree(process.pid)
            await process.wait()
            await processes.end_orphans(process.pid, others=self._others)
        await self._forget()

    def _remember(self, piece: bytes) -> None:
        self._last_words.append(piece)
        while sum(map(len, self._last_words)) > limits.LAST_WORDS_BYTES and len(self._last_words) > 1:
            self._last_words.popleft()

    def _output(self) -> str:
        return b"".join(self._last_words)[-limits.LAST_WORDS_BYTES :].decode(errors="replace").strip()

    def _code(self) -> int | None:
        return self._process.returncode if self._process else None


async def _healthy(client: OpencodeClient) -> bool:
    try:
        return (await client.health()).healthy
    except (OpencodeUnavailable, OpencodeRefused, ValueError):
        return False


async def _is_open(client: OpencodeClient) -> bool | None:
    """None when it did not answer in time."""
    try:
        return await client.is_open()
    except OpencodeUnavailable:
        return None


def _write_config(folder: Path, content: bytes) -> Path:
    """The configuration, readable by its user only, and the plugin and the platform's skills beside it."""
    plugins = folder / "plugin"
    plugins.mkdir(parents=True, exist_ok=True)
    (plugins / "shell_env.js").write_bytes((_SCRIPTS / "shell_env.js").read_bytes())
    skills.install(folder)
    path = folder / "opencode.json"
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return path
