"""`valet up` as a child process, with the scripted model for a provider."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil

from harness import limits
from harness.stream import Follower
from harness.waiting import until

VALET = [str(Path(sys.executable).parent / "valet")]

CONFIG = """
default_model = "scripted/scripted-1"

[providers.scripted]
base_url = "{model_url}"

[providers.scripted.models.scripted-1]
name = "Scripted"
cost = {{ input = 1.0, output = 2.0 }}

[sandbox]
question_timeout_seconds = {question_timeout}
"""


class Model:
    """The scripted model server as a child process."""

    def __init__(self, scenario: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "valet_local.model", "--scenario", str(scenario)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        self.url: str = json.loads(self._process.stdout.readline())["url"]

    def requests(self) -> list[dict[str, Any]]:
        return httpx.get(self.url.removesuffix("/v1") + "/requests").json()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(limits.STOP)


class Platform:
    """A running platform and what a client does with it."""

    def __init__(self, data_dir: Path, model_url: str, *, question_timeout: float = 12.0, config: str = CONFIG) -> None:
        self.data_dir = data_dir
        data_dir.mkdir(parents=True, exist_ok=True)
        self.config = data_dir / "valet.toml"
        self.config.write_text(config.format(model_url=model_url, question_timeout=question_timeout))
        self.process: subprocess.Popen[str] | None = None
        self.url = self.token = ""

    def start(self) -> "Platform":
        self._log = (self.data_dir / "up.log").open("a")
        self.process = subprocess.Popen(
            [*VALET, "up", "--data-dir", str(self.data_dir), "--port", "0", "--config", str(self.config)],
            stdout=self._log,
            stderr=self._log,
            text=True,
        )
        state = self.data_dir / "valet.json"

        def ready() -> dict[str, Any] | None:
            assert self.process
            assert self.process.poll() is None, self.log()
            try:
                answer = json.loads(state.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                return None
            return answer if answer["pid"] == self.process.pid else None  # not one that a kill left behind

        answer = until(ready, limits.READY, f"valet up\n{self.log()}")
        self.url, self.token = answer["url"], answer["token"]
        return self

    def log(self) -> str:
        return (self.data_dir / "up.log").read_text()[-4000:]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process
        self.process.send_signal(how)
        code = self.process.wait(limits.STOP)
        self._log.close()
        return code

    def client(self, token: str | None = None) -> httpx.Client:
        return httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token or self.token}"},
            timeout=limits.REQUEST,
        )

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request that, like any client, tries again while the platform restarts a part of itself."""

        def attempt() -> httpx.Response | None:
            try:
                with self.client() as client:
                    response = client.request(method, path, **options)
            except httpx.TransportError:
                return None
            return None if response.status_code == 503 else response

        return until(attempt, limits.REQUEST, f"{method} {path}")

    def create(self, **body: Any) -> dict[str, Any]:
        response = self.request("POST", "/api/sessions", json=body)
        assert response.status_code == 201, response.text
        return response.json()

    def prompt(self, session: str, content: str, **body: Any) -> dict[str, Any]:
        response = self.request("POST", f"/api/sessions/{session}/messages", json={"content": content, **body})
        assert response.status_code == 202, response.text
        return response.json()

    def session(self, session: str) -> dict[str, Any]:
        return self.request("GET", f"/api/sessions/{session}").json()

    def messages(self, session: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self.request("GET", f"/api/sessions/{session}/messages", params={"after": after}).json()
            items += page["items"]
            after = page["next"]
        return items

    def follow(self, session: str, after: int = 0) -> Follower:
        return Follower(self.url, self.token, session, after)

    def cli(self, *arguments: str, timeout: float = limits.TURN, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*VALET, *arguments, "--data-dir", str(self.data_dir)],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environ},
        )

    # -- its processes ----------------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Every process below the supervisor."""
        assert self.process
        return psutil.Process(self.process.pid).children(recursive=True)

    def find(self, word: str, *, among: list[psutil.Process] | None = None) -> psutil.Process:
        """The oldest process of this platform whose command line contains `word`."""

        def search() -> psutil.Process | None:
            found: list[psutil.Process] = []
            for process in among if among is not None else self.own():
                try:
                    if any(word in part for part in process.cmdline()[:4]):
                        found.append(process)
                except psutil.Error:
                    continue
            return min(found, key=lambda process: process.create_time(), default=None)

        return until(search, limits.READY, f"a process {word!r}")

    def sandbox(self, session: str) -> list[psutil.Process]:
        """The processes of a session's sandbox, without bubblewrap's own."""

        def search() -> list[psutil.Process]:
            found: dict[int, psutil.Process] = {}
            for process in self.own():
                try:
                    if process.name() == "bwrap" and f"/{session}/" in " ".join(process.cmdline()):
                        found.update({child.pid: child for child in process.children(recursive=True)})
                except psutil.Error:
                    continue
            return [process for process in found.values() if process.name() != "bwrap"]

        return until(search, limits.READY, f"the sandbox of {session}")

    def own(self) -> list[psutil.Process]:
        """Every process on this machine that belongs to this platform, sandboxes included, wherever it hangs."""
        marker = str(self.data_dir)
        own = (
            {process.pid: process for process in self.processes()}
            if self.process and self.process.poll() is None
            else {}
        )
        for process in psutil.process_iter():
            try:
                if process.pid in own or process.pid == os.getpid():
                    continue
                if marker in " ".join(process.cmdline()) or process.environ().get("VALET_DATA_DIR") == marker:
                    own[process.pid] = process
                    own.update({child.pid: child for child in process.children(recursive=True)})
            except psutil.Error:
                continue
        own.pop(os.getpid(), None)
        return list(own.values())
