"""Fixtures of the whole-system tests: one platform for all that leave it as they found it."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from harness.platform import Model, Platform


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    server = Model(Path(str(files("valet_local") / "scenarios" / "tests.toml")))
    yield server
    server.close()


@pytest.fixture(scope="session")
def platform(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform for everybody. A test that kills parts of it waits until it is whole again."""
    running = Platform(tmp_path_factory.mktemp("platform"), model.url).start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _sessions_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every session that a test begins ends with it: an agent that waits takes half a gigabyte, and there are some
    sixty of them. One that a module's fixture made stays."""
    if "platform" not in request.fixturenames:
        yield
        return
    platform: Platform = request.getfixturevalue("platform")
    before = _active(platform)
    yield
    for session in _active(platform) - before:
        platform.request("DELETE", f"/api/sessions/{session}")


def _active(platform: Platform) -> set[str]:
    listed = platform.request("GET", "/api/sessions", params={"limit": 200, "status": "active"}).json()
    return {session["id"] for session in listed["items"]}


@pytest.fixture
def sample_repo(tmp_path: Path) -> Path:
    """A small git repository on this machine."""
    import subprocess

    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "hello.txt").write_text("hello\n")
    for command in (
        ["git", "init", "-q", "-b", "main"],
        ["git", "add", "."],
        ["git", "-c", "user.name=T", "-c", "user.email=t@example.invalid", "commit", "-qm", "start"],
    ):
        subprocess.run(command, cwd=repo, check=True)
    return repo
