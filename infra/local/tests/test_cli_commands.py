"""The commands as a person or a script runs them, against an API that says what the test wants."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest
from valet_local.client.testing import SESSION, VIEW, FakeApi, event
from valet_protocol.errors import Problem
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data, Event
from valet_protocol.requests import Accepted, Done, SessionPage

BEGUN: tuple[Data, ...] = (
    facts.SessionRequested(owner="u", model="p/m"),
    facts.PromptAccepted(prompt_id="P", content="do it", author="u", model="p/m"),
    facts.TurnDispatched(turn_id="T", prompt_id="P", content="do it", model="p/m", author="u"),
    agent.TextCompleted(message_id="m", part_id="p", kind="text", text="Doing it."),
)
COMPLETED = agent.TurnEnded(turn_id="T", status="completed", duration_ms=1000)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        path = f"/api/sessions/{SESSION}"
        api.answers = {
            ("POST", "/api/sessions"): (201, VIEW),
            ("GET", "/api/sessions"): (200, SessionPage(items=[VIEW], next=None)),
            ("POST", f"{path}/messages"): (202, Accepted(prompt_id="P", seq=2, status="queued")),
            ("POST", f"{path}/abort"): (202, Done(seq=7)),
            ("DELETE", path): (200, Done(seq=7)),
        }
        yield api


def batch(*data: Data) -> list[Event]:
    return [event(one) for one in data]


async def start(api: FakeApi, *words: str) -> asyncio.subprocess.Process:
    environment = os.environ | {"VALET_URL": api.endpoint.url, "VALET_TOKEN": api.endpoint.token}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from valet_local.cli import main; main()", *words,
        env=environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def shown(process: asyncio.subprocess.Process, words: bytes) -> None:
    """Wait for words of the transcript."""
    assert process.stdout is not None
    seen = b""
    while words not in seen:
        fresh = await asyncio.wait_for(process.stdout.read(4096), 20)
        assert fresh, f"ended after {seen!r}"
        seen += fresh


async def finish(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    out, err = await asyncio.wait_for(process.communicate(), 40)
    assert process.returncode is not None
    assert "Traceback" not in err.decode()
    return process.returncode, out.decode(), err.decode()


async def test_run_prints_the_transcript_alone_to_stdout_and_exits_0(api: FakeApi):
    await api.append(*batch(*BEGUN, COMPLETED))
    status, out, err = await finish(await start(api, "run", "--repo", "relative", "do it"))
    assert status == 0
    assert out.splitlines()[2:5] == ["> do it", "", "Doing it."]
    assert SESSION in err
    assert SESSION not in out
    assert msgspec.json.decode(api.seen[0].body)["repo"].endswith("/relative")


async def test_run_json_prints_every_event_on_a_line_with_its_sequence_first(api: FakeApi):
    await api.append(*batch(*BEGUN, COMPLETED))
    status, out, _ = await finish(await start(api, "run", "--json", "do it"))
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5]
    assert next(iter(lines[0])) == "seq"
    assert lines[-1]["type"] == "agent.turn_ended"


async def test_run_of_a_turn_that_fails_exits_1_with_its_words(api: FakeApi):
    error = agent.AgentError(name="APIError", message="no credit left")
    await api.append(*batch(*BEGUN, agent.TurnEnded(turn_id="T", status="failed", error=error)))
    status, out, err = await finish(await start(api, "run", "do it"))
    assert status == 1
    assert "no credit left" in out
    assert "no credit left" in err


async def test_run_of_a_repository_that_cannot_be_cloned_exits_1_with_gits_words(api: FakeApi):
    await api.append(*batch(*BEGUN[:2], facts.SessionFailed(code="clone_failed", detail="fatal: not found")))
    status, _, err = await finish(await start(api, "run", "--repo", "https://example.org/x", "do it"))
    assert status == 1
    assert "fatal: not found" in err


async def test_ctrl_c_aborts_the_turn_and_exits_130_when_it_has_ended(api: FakeApi):
    await api.append(*batch(*BEGUN))
    process = await start(api, "run", "do it")
    await shown(process, b"Doing it.")
    aborted = asyncio.Event()
    api.on_request = lambda seen: aborted.set() if seen.path.endswith("/abort") else None
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(aborted.wait(), 20)
    await api.append(*batch(*BEGUN, agent.TurnEnded(turn_id="T", status="interrupted"))[4:])
    status, out, _ = await finish(process)
    assert status == 130
    assert "interrupted" in out


async def test_ctrl_c_before_the_turn_began_ends_the_session_so_that_nothing_runs_unwatched(api: FakeApi):
    nothing = Problem(title="Conflict", status=409, detail="nothing runs", code="nothing_running")
    api.answers["POST", f"/api/sessions/{SESSION}/abort"] = (409, nothing)
    await api.append(*batch(*BEGUN[:2]))
    process = await start(api, "run", "do it")
    await shown(process, b"> do it")
    deleted = asyncio.Event()
    api.on_request = lambda seen: deleted.set() if seen.method == "DELETE" else None
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(deleted.wait(), 20)
    await api.append(*batch(*BEGUN[:2], facts.SessionTerminated(by="u"))[2:])
    status, _, _ = await finish(process)
    assert status == 130


async def test_a_connection_cut_while_it_runs_is_told_on_stderr_only(api: FakeApi):
    await api.append(*batch(*BEGUN, COMPLETED))
    api.cuts = [700]
    status, out, err = await finish(await start(api, "run", "do it"))
    assert status == 0
    assert out.count("Doing it.") == 1
    assert "nothing was lost" in err


async def test_follow_shows_a_session_until_it_ended(api: FakeApi):
    await api.append(*batch(*BEGUN, COMPLETED, facts.SessionTerminated(by="u")))
    status, out, _ = await finish(await start(api, "follow", SESSION, "--after", "3"))
    assert status == 0
    assert out.startswith("Doing it.\n")
    assert out.endswith("the session was ended\n")


async def test_sessions_are_listed_for_people_and_for_programs(api: FakeApi):
    status, out, _ = await finish(await start(api, "sessions"))
    assert status == 0
    assert f"{SESSION}  ready" in out
    status, out, _ = await finish(await start(api, "sessions", "--json"))
    assert json.loads(out)[0]["id"] == SESSION


@pytest.mark.parametrize("command", ["show", "follow"])
async def test_an_unknown_session_is_said_in_a_sentence(api: FakeApi, command: str):
    unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAA"
    api.refuse_streams = True
    status, out, err = await finish(await start(api, command, unknown))
    assert (status, out) == (1, "")
    assert err == "error: there is no such session\n"


async def test_a_refused_token_is_said_in_a_sentence(api: FakeApi):
    problem = Problem(title="Not signed in", status=401, detail="the token is not known", code="unauthorised")
    api.answers["GET", "/api/sessions"] = (401, problem)
    status, _, err = await finish(await start(api, "sessions"))
    assert (status, err) == (1, "error: the token is not known\n")


async def test_no_platform_is_said_with_how_to_start_one(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from valet_local.cli import main; main()", "sessions", "--data-dir", str(tmp_path),
        env={name: value for name, value in os.environ.items() if not name.startswith("VALET_")},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    status, _, err = await finish(process)
    assert status == 1
    assert "valet up --data-dir" in err
