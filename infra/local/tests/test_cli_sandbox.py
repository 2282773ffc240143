"""`valet open`, `ps` and `exec`: the real process service behind a front that can be cut; the API says where it is."""

import asyncio
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from valet_local.cli.sandbox_access import SandboxToken, SandboxUrls
from valet_local.client.testing import SESSION, VIEW, FakeApi
from valet_protocol.errors import Problem
from valet_protocol.requests import BootStepView, SandboxView, ServiceView
from valet_protocol.sandbox_spec import ProcessesSpec

COMMAND = [sys.executable, "-c", "from valet_local.cli import main; main()"]
SESSION_AT = f"/api/sessions/{SESSION}"
AT = f"/api/sessions/{SESSION}/sandbox-token"


@pytest.fixture(scope="module")
def processes() -> Iterator[Path]:
    """The socket of a process service."""
    folder = Path(tempfile.mkdtemp(prefix="vcs-"))
    spec = ProcessesSpec(
        socket=str(folder / "p"),
        workspace=str(folder),
        spool_dir=str(folder / "spool"),
        environment={"PATH": os.environ["PATH"], "TERM": "xterm"},
    )
    with (folder / "log").open("w") as log:
        service = subprocess.Popen(
            [sys.executable, "-m", "valet_processes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        assert service.stdin
        assert service.stdout
        service.stdin.write(msgspec.json.encode(spec))
        service.stdin.close()
        assert service.stdout.readline() == b"READY\n", (folder / "log").read_text()
    yield folder / "p"
    service.terminate()
    service.wait(10)
    service.stdout.close()
    shutil.rmtree(folder)


class Front:
    """Joins TCP connections with the process service, as the portal and the gateway do, and cuts them when told to."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._open: set[asyncio.StreamWriter] = set()
        self.cut_after: list[int] = []
        """Bytes to the client after which a connection is cut, one for each connection; 0: it gets no answer."""
        self.cuts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_unix_connection(str(self._socket))
        left = self.cut_after.pop(0) if self.cut_after else None

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, most: int | None) -> None:
            try:
                while piece := await source.read(8192):
                    if most == 0:
                        self.cuts += 1
                        break
                    target.write(piece)
                    await target.drain()
                    if most is not None and (most := most - len(piece)) <= 0:
                        self.cuts += 1
                        break
            except ConnectionError:
                pass
            for end in (writer, outer):
                end.transport.abort()

        await asyncio.gather(copy(reader, outer, None), copy(inner, writer, left))


@pytest.fixture
def front(processes: Path) -> Front:
    return Front(processes)


@pytest.fixture
async def api(front: Front) -> AsyncIterator[FakeApi]:
    server = await asyncio.start_server(front.serve, "127.0.0.1", 0)
    gateway = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with FakeApi() as api:
        urls = SandboxUrls(
            gateway=gateway,
            vscode=f"{gateway}/vscode/",
            vnc=f"{gateway}/vnc/",
            ttyd=f"{gateway}/ttyd/",
            processes=f"{gateway}/v1/processes",
            tunnels={"web": f"{gateway}/t/web/"},
        )
        api.answers["GET", AT] = (200, SandboxToken(token="a.b.c", expires_at="2030-01-01T00:00:00Z", urls=urls))
        api.answers["GET", SESSION_AT] = (200, VIEW)
        yield api
    server.close()


async def start(api: FakeApi, *words: str, **options: object) -> asyncio.subprocess.Process:
    environment = os.environ | {"VALET_URL": api.endpoint.url, "VALET_TOKEN": api.endpoint.token}
    given = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    return await asyncio.create_subprocess_exec(*COMMAND, *words, env=environment, **(given | options))  # type: ignore[arg-type]


async def finish(process: asyncio.subprocess.Process, given: bytes = b"") -> tuple[int, bytes, str]:
    out, err = await asyncio.wait_for(process.communicate(given), 60)
    assert "Traceback" not in err.decode()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


async def test_what_is_typed_written_and_returned_passes_through_though_the_connection_is_cut(
    api: FakeApi, front: Front
) -> None:
    given = b"".join(b"%06d %s\n" % (number, b"x" * 90) for number in range(4000))
    # the first connection asks for the process; those after it are its output's
    front.cut_after = [1 << 30, 60_000, 10, 150_000]
    script = "cat >given; cat given; echo complaint >&2; exit 7"
    status, out, err = await finish(await start(api, "exec", SESSION, "--", "sh", "-c", script), given)
    assert (status, out) == (7, given)
    assert front.cuts == 3
    assert "complaint\n" in err
    assert "again" in err
    listed = json.loads((await finish(await start(api, "ps", "--json", SESSION)))[1])
    assert script not in str(listed), "what was kept for one reader is gone"


async def test_a_program_is_started_once_though_the_answer_to_its_start_is_cut(api: FakeApi, front: Front) -> None:
    front.cut_after = [0, 0]
    status, out, _ = await finish(await start(api, "exec", "--detach", SESSION, "--", "sleep", "9872"))
    assert (status, front.cuts) == (0, 2)
    listed = json.loads((await finish(await start(api, "ps", "--json", SESSION)))[1])
    assert [each["id"] for each in listed if each["args"] == ["9872"]] == [out.decode().strip()]


async def test_a_terminal_here_is_a_terminal_there_of_the_same_size(api: FakeApi) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    script = "test -t 0 && stty size; read line; echo got $line; kill -KILL $$"
    process = await start(
        api, "exec", SESSION, "--", "sh", "-c", script, stdin=theirs, stdout=theirs, stderr=theirs
    )  # fmt: skip
    os.close(theirs)
    seen = b""

    async def until(words: bytes) -> None:
        nonlocal seen
        async with asyncio.timeout(30):
            while words not in seen:
                seen += await asyncio.to_thread(os.read, ours, 1000)

    await until(b"33 101")
    os.write(ours, b"it\r")
    await until(b"got it")
    assert await asyncio.wait_for(process.wait(), 30) == 128 + signal.SIGKILL
    os.close(ours)


async def test_ctrl_c_reaches_the_program_and_its_status_comes_back(api: FakeApi) -> None:
    script = "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    process = await start(api, "exec", SESSION, "--", "sh", "-c", script)
    assert process.stdout
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert (await finish(process))[:2] == (3, b"interrupted\n")


async def test_a_detached_program_goes_on_and_is_listed_and_one_that_cannot_start_is_said(api: FakeApi) -> None:
    status, out, _ = await finish(await start(api, "exec", "--detach", SESSION, "--", "sleep", "9871"))
    assert status == 0
    status, table, _ = await finish(await start(api, "ps", SESSION))
    (line,) = [line for line in table.decode().splitlines() if out.decode().strip() in line]
    assert "running" in line
    assert "sleep 9871" in line
    status, out, err = await finish(await start(api, "exec", SESSION, "--", "no-such-program"))
    assert (status, out) == (127, b"")
    assert err.startswith("error: ")
    assert "no-such-program" in err
    for words in (["--", "/etc/passwd"], ["--cwd", "/no-such-folder", "--", "true"]):
        assert (await finish(await start(api, "exec", SESSION, *words)))[:2] == (126, b"")


async def test_open_prints_addresses_with_the_token(api: FakeApi) -> None:
    status, out, _ = await finish(await start(api, "open", SESSION, "terminal"))
    assert (status, out.decode().endswith("/ttyd/?token=a.b.c\n"), out.count(b"\n")) == (0, True, 1)
    out = (await finish(await start(api, "open", SESSION)))[1].decode()
    assert [line.split()[0] for line in out.splitlines()] == ["web", "vscode", "vnc", "terminal"]
    assert out.splitlines()[0].endswith("/t/web/?token=a.b.c")
    status, out, err = await finish(await start(api, "open", SESSION, "mail"))
    assert (status, out) == (1, b"")
    assert "no 'mail'" in err


async def test_open_says_what_is_not_there_and_how_to_get_it(api: FakeApi) -> None:
    boot = [
        BootStepView(step="vscode", ms=0, outcome="absent", detail="not installed here: code-server"),
        BootStepView(step="desktop", ms=9, outcome="ok"),
    ]
    stopped = ServiceView(service="vnc", state="stopped", detail="it ended", since="2026-01-01T00:00:00Z")
    sandbox = SandboxView(boot=boot, services=[stopped])
    api.answers["GET", SESSION_AT] = (200, msgspec.structs.replace(VIEW, sandbox=sandbox))
    status, out, err = await finish(await start(api, "open", SESSION, "vscode"))
    assert (status, out) == (1, b"")
    assert "vscode: not there: not installed here: code-server" in err
    assert "valet doctor" in err
    status, out, err = await finish(await start(api, "open", SESSION))
    assert [line.split()[0] for line in out.decode().splitlines()] == ["web", "vnc", "terminal"]
    assert (status, "vnc: stopped: it ended" in err) == (0, True)
    status, out, _ = await finish(await start(api, "open", "--json", SESSION))
    assert [(one["name"], one["state"], "url" in one) for one in json.loads(out)] == [
        ("web", "there", True),
        ("vscode", "absent", False),
        ("vnc", "stopped", True),
        ("terminal", "there", True),
    ]
    status, out, _ = await finish(await start(api, "open", "--json", SESSION, "vscode"))
    assert (status, json.loads(out)[0]["state"]) == (1, "absent")


async def test_a_sandbox_that_does_not_run_is_said_in_a_sentence(api: FakeApi) -> None:
    asleep = Problem(title="Conflict", status=409, detail="The sandbox is not running.", code="sandbox_not_running")
    api.answers["GET", AT] = (409, asleep)
    status, out, err = await finish(await start(api, "exec", SESSION, "--", "true"))
    assert (status, out, err) == (125, b"", "error: The sandbox is not running.\n")
    status, _, err = await finish(await start(api, "exec", "no-session", "--", "true"))
    assert (status, "no session 'no-session'" in err) == (125, True)


async def test_a_reader_that_has_enough_ends_the_program_there_without_a_word(api: FakeApi) -> None:
    process = await start(api, "exec", SESSION, "--", "sh", "-c", "yes enough")
    assert process.stdout
    assert process.stderr
    assert await asyncio.wait_for(process.stdout.readexactly(7), 30) == b"enough\n"
    process.stdout._transport.close()  # type: ignore[attr-defined]
    assert await asyncio.wait_for(process.stderr.read(), 30) == b""
    assert await asyncio.wait_for(process.wait(), 30) == 128 + signal.SIGPIPE
    listed = json.loads((await finish(await start(api, "ps", "--json", SESSION)))[1])
    assert "yes enough" not in str(listed)


async def test_output_that_cannot_be_written_is_said_and_ends_the_program_there(api: FakeApi) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    status, _, err = await finish(await start(api, "exec", SESSION, "--", "yes", "full", stdout=full))
    os.close(full)
    assert (status, "No space left" in err) == (125, True)
    listed = json.loads((await finish(await start(api, "ps", "--json", SESSION)))[1])
    assert ["full"] not in [each["args"] for each in listed]


async def test_input_that_a_program_wants_no_more_of_is_read_no_more_and_nothing_is_said(api: FakeApi) -> None:
    ours, theirs = os.pipe()
    process = await start(
        api, "exec", SESSION, "--", "sh", "-c", "head -c 3; exec 0<&-; sleep 1; echo over", stdin=ours
    )
    os.close(ours)
    os.set_blocking(theirs, False)
    written = 0

    async def feed() -> None:
        nonlocal written
        while process.returncode is None:
            try:
                written += os.write(theirs, b"y\n" * 4096)
            except (BlockingIOError, BrokenPipeError):
                await asyncio.sleep(0.01)

    feeding = asyncio.create_task(feed())
    out, err = await asyncio.wait_for(process.communicate(), 60)
    await feeding
    os.close(theirs)
    assert (process.returncode, out, err) == (0, b"y\nyover\n", b"")
    assert written < 8 << 20


async def test_a_program_whose_sandbox_is_gone_or_replaced_is_given_up_at_once(api: FakeApi, front: Front) -> None:
    for view, why in (
        (msgspec.structs.replace(VIEW, epoch=2), "another sandbox"),
        (msgspec.structs.replace(VIEW, status="lost"), "lost"),
    ):
        api.answers["GET", SESSION_AT] = (200, VIEW)
        front.cut_after = [1 << 30, 3000]
        process = await start(api, "exec", SESSION, "--", "sh", "-c", "echo ready; read go; yes")
        assert process.stdout
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
        api.answers["GET", SESSION_AT] = (200, view)
        status, _, err = await finish(process, b"go\n")
        assert (status, err.count("\n"), why in err) == (125, 1, True), err
        assert err.startswith("error: the program is gone")
