"""`docker compose up` from nothing: a session, a stop, a start, and the session is still there.

Builds the images; the model is scripted, everything else real. `VALET_TEST_COMPOSE` names another compose command.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from harness import limits
from harness.stream import Follower
from harness.waiting import until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "docker-compose.yml", ROOT / "tests" / "compose" / "scripted-model.yml"]
BUILD = 1200.0
"""Seconds for `up` to build both images: it downloads 300 MB."""

COMMAND = 60.0
"""Seconds for any other command of compose."""

CONFIG = """
default_model = "scripted/scripted-1"
[providers.scripted]
base_url = "http://model:8000/v1"
models = ["scripted-1"]
"""


class Compose:
    """The installation of this test: a project name, a configuration and a port of its own."""

    def __init__(self, config: Path) -> None:
        command = os.environ.get("VALET_TEST_COMPOSE")
        files = [word for path in FILES for word in ("-f", str(path))]
        self.command = shlex.split(command) if command else ["docker", "compose", *files]
        self._environment = {**os.environ, "VALET_PORT": "0", "VALET_CONFIG_FILE": str(config)}
        self._environment["COMPOSE_PROJECT_NAME"] = f"valet-test-{os.getpid()}"

    def run(self, *arguments: str, timeout: float = COMMAND) -> str:
        """The output of a command. Raises `CalledProcessError`."""
        done = subprocess.run(
            [*self.command, "--project-directory", str(ROOT), *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    @contextmanager
    def up(self) -> Iterator[httpx.Client]:
        """Start everything; a client of the API once it is ready."""
        self.run("up", "-d", timeout=BUILD)
        token = self.run("exec", "-T", "api", "cat", "/var/lib/valet/keys/token").strip()
        self.token = token
        self.url = f"http://{self.run('port', 'api', '8700').strip()}"
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=limits.REQUEST) as client:

            def ready() -> bool:
                try:
                    return client.get("/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(ready, limits.READY, "the API to be ready")
            yield client


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Compose]:
    found = Compose(tmp_path / "valet.toml")
    for command in (["docker", "info"], [*found.command, "version"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND, check=False)
        except OSError as error:
            pytest.skip(f"{command[0]} is not installed: {error}")
        if done.returncode != 0:
            pytest.skip(f"`{shlex.join(command)}` fails: {done.stderr.strip()[:200]}")
    (tmp_path / "valet.toml").write_text(CONFIG)
    # read by the containers' own user, below a directory that only we may enter
    (tmp_path / "valet.toml").chmod(0o644)
    try:
        yield found
    finally:
        found.run("down", "--volumes", "--timeout", "10")


def test_a_session_works_and_outlives_the_containers(compose: Compose) -> None:
    with compose.up() as client:
        session = turn(compose, client, None, "say hello")
        with Follower(compose.url, compose.token, session) as follower:
            until(lambda: follower.synced, limits.REQUEST, "the history")
            before = [event.seq for event in follower.events]
        token = compose.token
    compose.run("down")
    with compose.up() as client:
        assert compose.token == token
        turn(compose, client, session, "say hello again")
        texts = [item["text"] for item in client.get(f"/api/sessions/{session}/messages").json()["items"]]
        assert texts == ["say hello", "hello", "say hello again", "hello again"]
        with Follower(compose.url, compose.token, session) as follower:
            until(lambda: follower.synced, limits.REQUEST, "the history")
            again = [event.seq for event in follower.events if not event.type.startswith("delta.")]
        assert [seq for seq in again if seq <= max(before)] == [seq for seq in before if seq in again]


def turn(compose: Compose, client: httpx.Client, session: str | None, prompt: str) -> str:
    """One turn that completes, followed live; the session's id."""
    if session is None:
        created = client.post("/api/sessions", json={})
        assert created.status_code == 201, created.text
        session = str(created.json()["id"])
    posted = client.post(f"/api/sessions/{session}/messages", json={"content": prompt})
    assert posted.status_code == 202, posted.text
    began = time.monotonic()
    with Follower(compose.url, compose.token, session, after=posted.json()["seq"]) as follower:
        ended = until(
            lambda: next((event for event in follower.events if event.type == "agent.turn_ended"), None),
            limits.TURN,
            f"the end of the turn; {time.monotonic() - began:.0f} s",
        )
    assert ended.data["status"] == "completed", ended.data
    return session
