"""The platform that is measured: `valet up` as a child process in a directory of its own, gone afterwards."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import httpx
import msgspec
from nats.aio.client import Client as Broker
from valet_protocol.requests import SessionView
from valet_service import broker, credentials
from valet_service.credentials import Permissions, key_from_seed
from valet_service.outbox import Outbox

from valet_local import launch
from valet_local.assembly import Options
from valet_local.bench import limits
from valet_local.bench.errors import BenchFailed
from valet_local.client.endpoint import Endpoint
from valet_local.files import write_atomically
from valet_local.layout import Layout

_CONFIG = """\
default_model = "scripted/scripted-1"

[providers.scripted]
base_url = "{model_url}"

[providers.scripted.models.scripted-1]
name = "Scripted"
"""

NO_MODEL = "http://127.0.0.1:9/v1"
"""Where the stand-in's platform thinks its model is: it never asks it."""


class Stage:
    """A running platform and the operator's ways into it."""

    def __init__(self, platform: launch.Platform) -> None:
        self.places = platform.places
        self.endpoint = Endpoint(url=platform.state.url, token=platform.state.token)
        self.nats_url = platform.state.nats_url
        self.creds = _mint(platform.places)
        """Credentials that may do everything: the data directory's account key is the operator's own."""

    async def connect(self, name: str = "bench", *, reconnect: bool = True) -> Broker:
        """A connection to its broker."""
        return await broker.connect(self.nats_url, name=name, creds=str(self.creds), reconnect=reconnect)

    def outbox(self) -> Outbox:
        """The way into its log."""
        return Outbox(lambda: self.connect("bench-outbox", reconnect=False))

    def create_session(self) -> SessionView:
        """A new session with an empty workspace. Raises `BenchFailed`."""
        return self._ask("POST", "/api/sessions", {})

    def session(self, session_id: str) -> SessionView:
        """A session as it is now. Raises `BenchFailed`."""
        return self._ask("GET", f"/api/sessions/{session_id}")

    def end_session(self, session_id: str) -> None:
        """End it with its sandbox, so that it costs the next measurement nothing. Raises `BenchFailed`."""
        self._request("DELETE", f"/api/sessions/{session_id}")
        self.wait(session_id, lambda view: view.status == "terminated", "the session's end")

    def prompt(self, session_id: str, content: str) -> None:
        """Give it a prompt. Raises `BenchFailed`."""
        self._request("POST", f"/api/sessions/{session_id}/messages", {"content": content})

    def ready_session(self) -> str:
        """A new session whose runner takes prompts; its id. Raises `BenchFailed`."""
        session_id = self.create_session().id
        self.wait(session_id, lambda view: view.status == "ready", "a runner that is ready")
        return session_id

    def wait(
        self, session_id: str, holds: Callable[[SessionView], bool], what: str, within: float = limits.READY
    ) -> SessionView:
        """Look until something holds of a session. Raises `BenchFailed`."""
        deadline = time.monotonic() + within
        while True:
            view = self.session(session_id)
            if holds(view):
                return view
            if view.status == "failed" or time.monotonic() > deadline:
                raise BenchFailed(f"waited in vain for {what}: {view.status} {view.status_detail}".strip())
            time.sleep(limits.POLL * 10)

    def _ask(self, method: str, path: str, body: dict[str, str] | None = None) -> SessionView:
        return msgspec.json.decode(self._request(method, path, body), type=SessionView)

    def _request(self, method: str, path: str, body: dict[str, str] | None = None) -> bytes:
        answer = httpx.request(
            method,
            self.endpoint.url + path,
            json=body,
            headers={"authorization": f"Bearer {self.endpoint.token}"},
            timeout=limits.STEP,
            trust_env=False,
        )
        if answer.status_code >= 400:
            raise BenchFailed(f"{method} {path} was answered {answer.status_code}: {answer.text[:300]}")
        return answer.content


@contextmanager
def folder() -> Iterator[Path]:
    """A directory for one platform; short, for unix sockets lie below it. Gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="valet-bench-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@contextmanager
def platform(
    data: Path,
    *,
    model_url: str = NO_MODEL,
    opencode: Path | None = None,
    services: tuple[str, ...] | None = None,
) -> Iterator[Stage]:
    """A platform on a directory, stopped at the end. `opencode` takes the place of the real one; `services` are those
    to run, if not all.
    """
    config = data.with_suffix(".toml")
    config.write_text(_CONFIG.format(model_url=model_url))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VALET_OPENCODE")}
    if opencode is not None:
        environment["VALET_OPENCODE_BIN"] = str(opencode)
    options = Options(data_dir=data, port=0, config=config, quiet=True, log_level="warning", services=services)
    with launch.start(options, environment=environment) as running:
        yield Stage(running)


def write_standin(directory: Path) -> Path:
    """The stand-in for OpenCode as a program."""
    source = resources.files("valet_local.bench").joinpath("standin.py").read_text()
    path = directory / "standin-opencode"
    path.write_text(source.replace("#!PYTHON", f"#!{sys.executable}", 1))
    path.chmod(0o755)
    return path


def _mint(places: Layout) -> Path:
    account = key_from_seed((places.keys / "account.seed").read_text())
    everything = Permissions(publish=(">",), subscribe=(">",))
    text = credentials.creds(account, "bench", everything, entropy=os.urandom(32), now=int(time.time()))
    path = places.creds / "bench.creds"
    write_atomically(path, text.encode())
    return path
