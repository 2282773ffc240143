"""Claims about what a boot says, what the runner is told and tells git and the agent, and what is told of processes. No
OpenCode, no broker.
"""

import asyncio
import itertools
import os
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest
from valet_protocol.events.envelope import Data
from valet_protocol.events.machine import (
    BootStepCompleted,
    ProcessCreated,
    ProcessDeleted,
    ProcessExited,
    ProcessInfo,
    ProcessUpdated,
)
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner import config, git_environment, limits, patience, persona, process_changes
from valet_runner.boot_steps import BootSteps
from valet_runner.errors import BadSpec, OpencodeFailed
from valet_runner.opencode_config import Surroundings
from valet_runner.opencode_process import OpencodeProcess
from valet_runner.shown_processes import ShownProcesses, told


async def no_wait() -> None:
    """There is always room."""


def new_spec(**changes: object) -> RunnerSpec:
    spec = RunnerSpec(
        session_id="s",
        epoch=1,
        nats_creds="",
        portal_socket="/p",
        portal_token="T",
        workspace="/w",
        home="/h",
        repo="https://me:secret@example.org/a.git",
        branch="topic",
        model="a/m",
        providers=[],
        opencode="/o",
        path="/bin",
    )
    return msgspec.structs.replace(spec, **changes)


# -- boot steps


def test_what_is_said_before_the_log_is_open_is_said_first_when_it_is() -> None:
    clock = itertools.count()
    steps = BootSteps(lambda: float(next(clock)))
    with steps.step("git"):
        pass
    with pytest.raises(ValueError, match="no such branch"), steps.step("clone"):
        raise ValueError("no such branch")
    said: list[Data] = []
    steps.open(said.extend, no_wait)
    steps.absent("vscode", "not here")
    assert said == [
        BootStepCompleted(step="git", ms=1000, outcome="ok"),
        BootStepCompleted(step="clone", ms=1000, outcome="failed", detail="no such branch"),
        BootStepCompleted(step="vscode", ms=0, outcome="absent", detail="not here"),
    ]


# -- the spec


def piped(content: bytes) -> BinaryIO:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as end:
        end.write(content)
    return os.fdopen(reader, "rb")


def test_the_spec_comes_from_standard_input_or_from_a_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    spec = new_spec()
    content = msgspec.json.encode(spec)
    assert config.load({"VALET_RUNNER_SPEC": "-"}, piped(content)) == spec
    file = tmp_path / "runner.json"
    file.write_bytes(content)
    assert config.load({"VALET_RUNNER_SPEC": str(file)}) == spec
    assert not file.exists()
    with pytest.raises(BadSpec, match="standard input is not a runner's spec"):
        config.load({"VALET_RUNNER_SPEC": "-"}, piped(b""))


def test_a_spec_that_never_comes_is_not_waited_for_for_ever() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"{")  # and nothing more, and no end
    with os.fdopen(reader, "rb") as stdin, pytest.raises(BadSpec, match=r"did not come .* create a session"):
        config.load({"VALET_RUNNER_SPEC": "-"}, stdin, patience=0.05)
    os.close(writer)


async def test_a_start_is_waited_for_as_long_as_the_program_gets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([0.0, 1.0, 2.0, 2.0])
    monkeypatch.setattr(patience, "cpu_seconds", lambda pid: next(looks))

    async def started(after: asyncio.Event) -> str:
        await after.wait()
        return "up"

    with pytest.raises(TimeoutError):  # it did nothing in the third time
        await patience.until_started(started(asyncio.Event()), pid=1, patience=0.01, most=60)
    assert next(looks, None) is None
    busy = itertools.count()
    monkeypatch.setattr(patience, "cpu_seconds", lambda pid: float(next(busy)))
    with pytest.raises(TimeoutError):  # it is busy for ever
        await patience.until_started(started(asyncio.Event()), pid=1, patience=0.01, most=0.05)
    late = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, late.set)
    assert await patience.until_started(started(late), pid=1, patience=0.01, most=60) == "up"


async def test_each_start_of_opencode_that_fails_is_said_until_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESTART_WAIT", 0.001)
    broken = tmp_path / "opencode"
    broken.write_text("#!/bin/sh\necho no such library\n")
    broken.chmod(0o755)
    spec = new_spec(home=str(tmp_path), workspace=str(tmp_path), opencode=str(broken), path="/usr/bin:/bin")
    around = Surroundings()
    process = OpencodeProcess(spec, around, reachable=lambda client: None)
    said: list[str] = []
    process.delayed = said.append
    life = asyncio.create_task(process.run())
    with pytest.raises(OpencodeFailed, match="no such library"):
        await process.client(30)
    await life
    assert [text.rpartition("; ")[2] for text in said] == [f"it is started again, {number} of 3" for number in (2, 3)]


def test_the_processor_time_of_a_program_is_known() -> None:
    before = patience.cpu_seconds(os.getpid())
    while patience.cpu_seconds(os.getpid()) == before:
        sum(range(10_000))
    assert patience.cpu_seconds(2**30) == 0


def test_the_persona_is_in_order_and_cannot_leave_its_folder(tmp_path: Path) -> None:
    spec = new_spec(home=str(tmp_path), persona={"20-style.md": "B", "../../10 who": "A"})
    files = persona.files(spec, "abc123")
    assert list(files) == ["00-repo-context.md", "10-who.md", "20-style.md"]
    assert "https://example.org/a.git" in files["00-repo-context.md"]
    assert "topic" in files["00-repo-context.md"]
    assert "abc123" in files["00-repo-context.md"]
    assert "secret" not in files["00-repo-context.md"]
    persona.write(tmp_path, files)
    persona.write(tmp_path, files)
    assert [Path(path).read_text() for path in persona.paths(spec)] == list(files.values())


async def test_git_takes_a_token_from_the_environment_and_ignores_what_is_ours(tmp_path: Path) -> None:
    git_environment.write_config(tmp_path)
    git_environment.write_config(tmp_path)
    script = """
      printf 'protocol=https\\nhost=github.com\\n\\n' | git credential fill
      git init -q r && cd r && mkdir -p .valet && touch .valet/a b && git status --porcelain && git config user.name
    """
    process = await asyncio.create_subprocess_exec(
        *("bash", "-ec", script),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GITHUB_TOKEN": "tok", "GIT_CONFIG_NOSYSTEM": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 20)
    assert out.decode().splitlines()[-4:] == ["username=x-access-token", "password=tok", "?? b", "Valet agent"]


# -- processes


def info(**changes: object) -> ProcessInfo:
    plain = ProcessInfo(id="proc_1", command="make", args=["a b"], cwd="/w", pid=7, pty=True, created_at="2026-01-01")
    return msgspec.structs.replace(plain, **changes)


def test_what_happened_to_a_process_is_said_once_however_often_it_comes() -> None:
    known: process_changes.Known = {}
    ended = info(status="exited", exit_code=2)
    kinds: list[type[Data]] = []
    for kind, data in [
        ("process.created", info()),
        ("process.created", info()),
        ("process.updated", info(label="Build")),
        ("process.exited", msgspec.structs.replace(ended, label="Build")),
        ("process.updated", info(label="Build")),
        ("process.deleted", info()),
        ("process.deleted", info()),
        ("process.something", info()),
    ]:
        known, news = process_changes.happened(known, kind, msgspec.json.encode(data))
        kinds += [type(said) for said in news]
    assert kinds == [ProcessCreated, ProcessUpdated, ProcessExited, ProcessDeleted]


def test_a_list_says_what_was_missed() -> None:
    before: process_changes.Known = {"proc_1": info(), "proc_2": info(id="proc_2")}
    listed = {"items": [info(status="exited", signal="SIGKILL"), info(id="proc_3", status="exited", exit_code=0)]}
    known, news = process_changes.happened(before, "snapshot", msgspec.json.encode(listed))
    assert list(known) == ["proc_1", "proc_3"]
    assert [type(said) for said in news] == [
        ProcessExited,
        ProcessDeleted,
        ProcessExited,
        ProcessCreated,
        ProcessExited,
    ]
    assert process_changes.happened(known, "snapshot", msgspec.json.encode(listed)) == (known, [])


def test_the_agent_is_told_what_was_run_without_the_colours_of_the_terminal(tmp_path: Path) -> None:
    shown = told(info(exit_code=1, status="exited"), b"\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07done\r\n", offset=5)
    assert "<command>make 'a b'</command>" in shown.text
    assert "<output>\n[the first 5 bytes are left out]\nred\ndone\n</output>" in shown.text
    kept = ShownProcesses(tmp_path)
    kept.add(shown)
    kept.add(shown)
    assert ShownProcesses(tmp_path).waiting() == [shown]
    for number in range(limits.SHOWN_PROCESSES):
        kept.add(told(info(id=f"proc_x{number}"), b"", offset=0))
    assert len(kept.waiting()) == limits.SHOWN_PROCESSES
    kept.given(kept.waiting())
    assert kept.waiting() == []
