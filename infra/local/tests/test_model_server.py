"""Claims about the server, over real HTTP."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from valet_local.model import ScriptedModel, load_builtin
from valet_local.model.errors import ModelNotServing
from valet_local.model.scenario import parse

TIMEOUT = 10.0  # of any one request here; none takes a second


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(load_builtin("tests")) as model:
        yield model


@pytest.fixture
async def client(model: ScriptedModel) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=model.url, timeout=TIMEOUT) as client:
        yield client


def body(prompt: str, *, stream: bool = True) -> dict[str, object]:
    return {
        "model": "scripted-1",
        "messages": [{"role": "user", "content": prompt}],
        "tools": [{"type": "function", "function": {"name": "bash"}}],
        "stream": stream,
        "stream_options": {"include_usage": True},
    }


async def events(client: httpx.AsyncClient, prompt: str, seen: list[dict] | None = None) -> list[dict]:
    """The chunks of a streamed answer; into `seen` as they come, for streams that break."""
    chunks = [] if seen is None else seen
    async with client.stream("POST", "/chat/completions", json=body(prompt)) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        ended = False
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line:
                chunks.append(json.loads(line.removeprefix("data: ")))
    assert ended or "error" in chunks[-1]
    return chunks


def content(chunks: list[dict]) -> str:
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", ()))


async def test_a_stream_has_role_content_finish_and_usage(client: httpx.AsyncClient) -> None:
    chunks = await events(client, "say Hello there, world of streams")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert content(chunks) == "Hello there, world of streams"
    assert chunks[-2]["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] > 0
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_parallel_tool_calls_have_their_own_index(client: httpx.AsyncClient) -> None:
    arguments: dict[int, str] = {}
    names: dict[int, str] = {}
    chunks = await events(client, "two tools")
    for chunk in chunks[:-1]:
        for call in chunk["choices"][0]["delta"].get("tool_calls", ()):
            names.setdefault(call["index"], call["function"].get("name"))
            arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
    assert names == {0: "bash", 1: "bash"}
    assert [json.loads(text)["command"] for text in arguments.values()] == ["echo first", "echo second"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_long_burst_is_complete(client: httpx.AsyncClient) -> None:
    assert len(content(await events(client, "stream 5000 words")).split(" ")) == 5000


async def test_slow_words_come_at_the_pace_of_the_scenario(client: httpx.AsyncClient) -> None:
    start = time.monotonic()
    await events(client, "slow 11 words")
    assert time.monotonic() - start >= 0.5  # ten pauses of 50 ms


async def test_the_same_answer_without_streaming(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/chat/completions", json=body("bash ls", stream=False))).json()
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "bash"


async def test_a_refused_first_try_says_when_to_come_back_and_the_second_is_answered(
    client: httpx.AsyncClient,
) -> None:
    refused = await client.post("/chat/completions", json=body("fail 429 once"))
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert content(await events(client, "fail 429 once")) == "Answered after a 429."


async def test_a_cut_stream_breaks_the_connection_after_its_chunks(client: httpx.AsyncClient) -> None:
    seen: list[dict] = []
    with pytest.raises(httpx.RemoteProtocolError):
        await events(client, "cut once", seen)
    assert content(seen) == "w1 w2 w3 w4 w5 "
    assert content(await events(client, "cut once")).endswith("w20")


async def test_an_error_in_the_stream_ends_it(client: httpx.AsyncClient) -> None:
    chunks = await events(client, "error once")
    assert chunks[-1]["error"]["message"] == "scripted fault"
    assert len(chunks) == 7  # the role, five words, the error


async def test_a_hanging_answer_sends_nothing_and_stops_when_the_client_leaves(
    model: ScriptedModel, client: httpx.AsyncClient
) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/chat/completions", json=body("hang"), timeout=0.3)
    await asyncio.wait_for(model.stop(), TIMEOUT)


async def test_stopping_breaks_off_a_stream(model: ScriptedModel, client: httpx.AsyncClient) -> None:
    seen: list[dict] = []
    stream = asyncio.create_task(events(client, "stall", seen))
    while len(seen) < 6 and not stream.done():
        await asyncio.wait([stream], timeout=0.01)
    await model.stop()
    with pytest.raises(httpx.RemoteProtocolError):
        await asyncio.wait_for(stream, TIMEOUT)


async def test_it_remembers_what_it_was_asked(model: ScriptedModel, client: httpx.AsyncClient) -> None:
    await client.post("/chat/completions", json=body("say hi"), headers={"x-session-id": "ses_1"})
    (record,) = (await client.get(model.url.removesuffix("/v1") + "/requests")).json()
    assert (record["session"], record["prompt"], record["turn"], record["step"]) == ("ses_1", "say hi", "say", 0)
    assert model.requests[0].tools == ("bash",)


async def test_models_are_listed(client: httpx.AsyncClient) -> None:
    assert [model["id"] for model in (await client.get("/models")).json()["data"]] == ["scripted-1"]


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/chat/completions", b"{", 400),
        ("POST", "/chat/completions", json.dumps(body("stream 999999999 words")).encode(), 400),
        ("GET", "/nothing", None, 404),
    ],
)
async def test_a_bad_request_gets_an_openai_error(
    client: httpx.AsyncClient, method: str, path: str, content: bytes | None, status: int
) -> None:
    answer = await client.request(method, path, content=content)
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_key_is_insisted_on_when_there_is_one() -> None:
    async with ScriptedModel(parse("", "f"), api_key="k") as model, httpx.AsyncClient(timeout=TIMEOUT) as client:
        assert (await client.get(model.url + "/models")).status_code == 401
        right = await client.get(model.url + "/models", headers={"authorization": "Bearer k"})
        assert right.status_code == 200


async def test_a_taken_port_is_named(model: ScriptedModel) -> None:
    port = httpx.URL(model.url).port or 0
    with pytest.raises(ModelNotServing, match=f"{port}: Address already in use"):
        async with ScriptedModel(parse("", "f"), port=port):
            pass


async def _start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "valet_local.model", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_the_command_announces_itself_and_ends_on_sigterm() -> None:
    process = await _start("--scenario", "tests")
    assert process.stdout is not None
    announced = json.loads(await asyncio.wait_for(process.stdout.readline(), TIMEOUT))
    assert announced["pid"] == process.pid
    async with httpx.AsyncClient(timeout=TIMEOUT) as client:
        assert (await client.get(announced["url"] + "/models")).status_code == 200
        process.send_signal(signal.SIGTERM)  # with a connection that is kept open
        assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0


async def test_the_command_refuses_a_wrong_scenario_without_a_stack_trace(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("nam = 'x'\n")
    process = await _start("--scenario", str(file))
    _, complaint = await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert process.returncode == 1
    assert complaint.decode().strip() == f"{file}: the file: Object contains unknown field `nam`"
