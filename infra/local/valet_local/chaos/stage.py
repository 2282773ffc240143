"""The platform of a run as its parties see it: started, found, stopped."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from valet_local import leftovers, postgres
from valet_local.chaos import limits, plan
from valet_local.chaos.errors import ChaosFailed
from valet_local.chaos.host import Setup
from valet_local.chaos.links import Link, to_port, to_socket
from valet_local.layout import Layout, layout, prepare
from valet_local.state import State, running

_CONFIG = """\
default_model = "scripted/scripted-1"

[providers.scripted]
base_url = "{model_url}"

[providers.scripted.models.scripted-1]
name = "Scripted"

[sandbox]
question_timeout_seconds = {question_timeout}
"""


class Stage:
    """A platform on a directory, and the links to it. Use with `async with`."""

    def __init__(self, data_dir: Path, model_url: str) -> None:
        self.places: Layout = layout(data_dir)
        self.links: dict[str, Link] = {}
        """`nats:<service>`, `postgres:<service>`, and `front`."""
        self.url = ""
        """Where clients go: through the front link."""
        self.direct_url = ""
        """The api itself."""
        self.token = ""
        self._model_url = model_url
        self._child: subprocess.Popen[bytes] | None = None
        self._state: State | None = None

    @property
    def state(self) -> State:
        """What the platform says of itself."""
        assert self._state
        return self._state

    async def __aenter__(self) -> "Stage":
        prepare(self.places)
        config = self.places.data / "valet.toml"
        config.write_text(_CONFIG.format(model_url=self._model_url, question_timeout=limits.QUESTION_TIMEOUT))
        setup = Setup(
            data_dir=str(self.places.data),
            config=str(config),
            log_level="info",
            nats_urls={service: await self._nats_link(service) for service in plan.LINKED},
            database_urls={service: await self._database_link(service) for service in plan.LINKED},
        )
        words = (self.places.logs / "host.log").open("ab")
        # From the main thread, with a pipe: it ends when we do, however that happens.
        self._child = subprocess.Popen(  # noqa: ASYNC220 - takes no time
            [sys.executable, "-m", "valet_local.chaos.host"],
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
        words.close()
        assert self._child.stdin
        self._child.stdin.write(msgspec.json.encode(setup) + b"\n")
        self._child.stdin.flush()
        try:
            self._state = await self._until_ready(self._child)
        except BaseException:
            await self.close()
            raise
        self.direct_url, self.token = self._state.url, self._state.token
        front = self.links["front"] = Link(to_port(lambda: urlsplit(self.direct_url).port or 80))
        self.url = f"http://127.0.0.1:{await front.listen()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the platform in order, and what is left of it after that."""
        child, self._child = self._child, None
        if child is not None:
            assert child.stdin
            child.stdin.close()
            try:
                await asyncio.to_thread(child.wait, limits.STOP)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                leftovers.end_processes(self.places)
                leftovers.end_sandboxes(self.places)
        for link in self.links.values():
            link.close()

    async def _until_ready(self, child: "subprocess.Popen[bytes]") -> State:
        deadline = time.monotonic() + limits.START
        while child.poll() is None and time.monotonic() < deadline:
            state = running(self.places)
            if state is not None and state.pid == child.pid:
                return state
            await asyncio.sleep(limits.POLL)
        said = (self.places.logs / "host.log").read_text(errors="replace")[-500:].strip()
        raise ChaosFailed(f"the platform did not become ready: {said or 'see ' + str(self.places.logs)}")

    async def _nats_link(self, service: str) -> str:
        link = self.links[f"nats:{service}"] = Link(to_port(self._nats_port))
        return f"nats://127.0.0.1:{await link.listen()}"

    def _nats_port(self) -> int:
        """The broker's port, which it keeps for the life of the directory."""
        return int((self.places.nats / "port").read_text())

    async def _database_link(self, service: str) -> str:
        folder = self.places.run / "links" / service
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        real = self.places.run / "postgres" / postgres.SOCKET_NAME
        link = self.links[f"postgres:{service}"] = Link(to_socket(real))
        await link.listen(folder / postgres.SOCKET_NAME)
        return postgres.url(folder)
