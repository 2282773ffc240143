"""Claims about the scripted model under the real agent: OpenCode drives it, over HTTP and server-sent events.

The binary is the one named by $VALET_OPENCODE_BIN, else the one of the user's cache, fetched if it is not there.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from valet_local.model import ScriptedModel, load_builtin

START = 30.0  # OpenCode takes 2 to 3 s to start, more on a machine that is busy
TURN = 60.0  # the longest turn here waits for OpenCode's own retries

CALCULATOR = """\
def add(a, b):
    return a + b


def divide(a, b):
    return a / b
"""
TEST_CALCULATOR = """\
import unittest

from calculator import divide


class Divide(unittest.TestCase):
    def test_by_zero_is_a_value_error(self):
        with self.assertRaises(ValueError):
            divide(1, 0)


if __name__ == "__main__":
    unittest.main()
"""


class Agent:
    """A running OpenCode server and what it said on its event stream."""

    def __init__(self, http: httpx.AsyncClient, directory: Path) -> None:
        self.http = http
        self.directory = directory
        self.frames: list[dict] = []
        self.arrived = asyncio.Event()

    async def follow(self) -> None:
        async with self.http.stream("GET", "/event", timeout=None) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    self.frames.append(json.loads(line.removeprefix("data: ")))
                    self.arrived.set()

    async def until(self, found: Callable[[dict], bool], after: int = 0) -> dict:
        async with asyncio.timeout(TURN):
            while True:
                self.arrived.clear()
                for frame in self.frames[after:]:
                    if found(frame):
                        return frame
                await self.arrived.wait()

    async def prompt(self, text: str, *, answer: str | None = None) -> list[dict]:
        """Run one turn in a new session and return its messages."""
        session = (await self.http.post("/session", json={})).json()["id"]
        return await self.prompt_in(session, text, answer=answer)

    async def prompt_in(self, session: str, text: str, *, answer: str | None = None) -> list[dict]:
        mark = len(self.frames)
        sent = await self.http.post(
            f"/session/{session}/prompt_async", json={"parts": [{"type": "text", "text": text}]}
        )
        assert sent.status_code == 204
        if answer is not None:
            asked = await self.until(lambda frame: frame["type"] == "question.asked", mark)
            reply = f"/question/{asked['properties']['id']}/reply"
            assert (await self.http.post(reply, json={"answers": [[answer]]})).json() is True
        await self.until(
            lambda frame: frame["type"] == "session.idle" and frame["properties"]["sessionID"] == session, mark
        )
        return (await self.http.get(f"/session/{session}/message")).json()


def tools(messages: list[dict]) -> list[tuple[str, str]]:
    parts = [part for message in messages for part in message["parts"] if part["type"] == "tool"]
    return [(part["tool"], part["state"]["status"]) for part in parts]


def texts(messages: list[dict]) -> list[str]:
    return [
        part["text"]
        for message in messages
        if message["info"]["role"] == "assistant"
        for part in message["parts"]
        if part["type"] == "text" and part["text"]
    ]


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("VALET_OPENCODE_BIN")
    if named:
        return Path(named)
    from valet_local import npm, provision, tools  # only here: with a binary at hand nothing need be fetched

    own = tmp_path_factory.mktemp("tools")
    return tools.ensure_opencode(own, provision.shared_tools(), fetch=npm.fetch, progress=lambda *_: None)


@contextlib.asynccontextmanager
async def opencode(binary: Path, model: ScriptedModel, root: Path) -> AsyncIterator[Agent]:
    directory = root / "repo"
    directory.mkdir()
    (directory / "calculator.py").write_text(CALCULATOR)
    (directory / "test_calculator.py").write_text(TEST_CALCULATOR)
    git = await asyncio.create_subprocess_exec("git", "init", "-q", str(directory))
    assert await asyncio.wait_for(git.wait(), START) == 0
    config = {
        "model": "scripted/scripted-1",
        "small_model": "scripted/scripted-1",
        "enabled_providers": ["scripted"],
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Scripted",
                "options": {"baseURL": model.url, "apiKey": "none"},
                "models": {
                    "scripted-1": {
                        "name": "Scripted",
                        "limit": {"context": 100_000, "output": 8_000},
                        "tool_call": True,
                        "reasoning": True,
                    }
                },
            }
        },
    }
    off = ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE", "EMBEDDED_WEB_UI")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # the wheel's ripgrep is beside Python
        "HOME": str(root / "home"),
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "npm_config_registry": "http://127.0.0.1:1",  # nothing may be fetched
        "npm_config_fetch_retries": "0",
        **{f"OPENCODE_DISABLE_{name}": "1" for name in off},
    }
    process = await asyncio.create_subprocess_exec(
        str(binary), "serve", "--hostname", "127.0.0.1", "--port", "0",
        cwd=directory, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(START):
            assert process.stdout is not None
            address = None
            while address is None:
                line = (await process.stdout.readline()).decode()
                assert line, "OpenCode ended before it listened"
                address = re.search(r"listening on (http://\S+)", line)
        async with httpx.AsyncClient(base_url=address[1], timeout=START) as http:
            agent = Agent(http, directory)
            following = asyncio.create_task(agent.follow())
            await agent.until(lambda frame: frame["type"] == "server.connected")
            try:
                yield agent
            finally:
                following.cancel()
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(load_builtin("tests")) as model:
        yield model


@pytest.mark.parametrize("answer", ["Leave it", "Add a test"])
async def test_the_demo_plays_to_its_end(binary: Path, tmp_path: Path, answer: str) -> None:
    async with ScriptedModel(load_builtin("demo")) as model, opencode(binary, model, tmp_path) as agent:
        messages = await agent.prompt("Make the failing test pass.", answer=answer)
        more = [("write", "completed"), ("bash", "completed")] if answer == "Add a test" else []
        assert tools(messages) == [(name, "completed") for name in ("read", "edit", "bash", "question")] + more
        shells = [
            part["state"]
            for message in messages
            for part in message["parts"]
            if part["type"] == "tool" and part["tool"] == "bash"
        ]
        assert all(state["metadata"]["exit"] == 0 for state in shells), shells
        assert any("OK" in state["output"] for state in shells)
        assert 'raise ValueError("cannot divide by zero")' in (agent.directory / "calculator.py").read_text()
        assert (agent.directory / "test_divide_zero.py").exists() == (answer == "Add a test")
        assert texts(messages)[-1].startswith("Done.")
        assert messages[-1]["info"]["finish"] == "stop"
        assert [record.turn for record in model.requests].count("title") == 1
        titles = [f["properties"]["info"]["title"] for f in agent.frames if f["type"] == "session.updated"]
        assert titles[-1] == "Fix division by zero"
        assert sum(frame["type"] == "message.part.delta" for frame in agent.frames) > 20


async def test_the_prompts_of_the_tests_do_what_they_say(binary: Path, model: ScriptedModel, tmp_path: Path) -> None:
    async with opencode(binary, model, tmp_path) as agent:
        assert texts(await agent.prompt("say hello")) == ["hello"]
        assert texts(await agent.prompt("stream 500 words"))[0].endswith("w500")
        assert tools(await agent.prompt("write new.txt some words")) == [("write", "completed")]
        assert (agent.directory / "new.txt").read_text() == "some words"
        assert tools(await agent.prompt("edit new.txt some few")) == [("edit", "completed")]
        assert "few words" in texts(await agent.prompt("read new.txt"))[-1]
        assert texts(await agent.prompt("bash echo $((6 * 7))"))[-1].strip() == "42"
        assert tools(await agent.prompt("two tools")) == [("bash", "completed"), ("bash", "completed")]
        asked = await agent.prompt("ask Shall I go on?", answer="Yes")
        assert "Yes" in texts(asked)[-1]
        assert tools(await agent.prompt("todo write it down")) == [("todowrite", "completed")]
        assert "from below" in texts(await agent.prompt("task say from below"))[-1]
        assert tools(await agent.prompt("call nosuch")) == [("invalid", "completed")]
        assert tools(await agent.prompt("work made.txt")) == [
            ("bash", "completed"),
            ("write", "completed"),
            ("bash", "completed"),
        ]
        thought = await agent.prompt("think about it")
        assert [part["text"] for part in thought[-1]["parts"] if part["type"] == "reasoning"] == ["about it"]
        assert (await agent.prompt("length"))[-1]["info"]["finish"] == "length"


async def test_opencode_recovers_from_faults_that_pass(binary: Path, model: ScriptedModel, tmp_path: Path) -> None:
    async with opencode(binary, model, tmp_path) as agent:
        assert texts(await agent.prompt("fail 429 once")) == ["Answered after a 429."]
        assert texts(await agent.prompt("fail 500 once")) == ["Answered after a 500."]
        assert texts(await agent.prompt("cut once"))[-1].endswith("w20")
        cut = await agent.prompt("cut tool once")
        assert tools(cut) == [("bash", "completed")]
        assert texts(cut)[-1].strip() == "after the cut"
        assert texts(await agent.prompt("error once"))[-1].endswith("w20")
        await agent.prompt("fail 401 always")
        error = await agent.until(lambda frame: frame["type"] == "session.error")  # may come after idle (measured)
        assert error["properties"]["error"]["name"] == "APIError"


async def test_a_prompt_that_comes_while_the_agent_works_is_answered_as_its_own_turn(
    binary: Path, model: ScriptedModel, tmp_path: Path
) -> None:
    async with opencode(binary, model, tmp_path) as agent:
        session = (await agent.http.post("/session", json={})).json()["id"]
        first = asyncio.create_task(agent.prompt_in(session, "bash sleep 1; echo slept"))
        await agent.until(
            lambda frame: (
                frame["type"] == "message.part.updated"
                and frame["properties"]["part"].get("state", {}).get("status") == "running"
            )
        )
        await agent.http.post(
            f"/session/{session}/prompt_async", json={"parts": [{"type": "text", "text": "say second"}]}
        )
        assert texts(await first)[-1] == "second"
