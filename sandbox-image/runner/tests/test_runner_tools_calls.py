"""Claims about the agent's tools, over HTTP and over MCP: a real broker and MCP client; the services are stand-ins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import jsonschema
import mcp_types as types
import msgspec
import pytest
import pytest_asyncio
from mcp import Client
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from valet_protocol import ids
from valet_protocol.errors import Conflict, Problem, Unavailable
from valet_protocol.tools import FILLED_IN, TOOLS, ListTasks, SearchMemories, SpawnChild, Tool, UpdateTask, WriteMemory
from valet_runner.testing import Broker, condition
from valet_runner.tools import limits, schema, testing
from valet_runner.tools.answers import Answers
from valet_runner.tools.platform import Platform
from valet_runner.tools.running import Answer, Tools
from valet_runner.tools.serving import serving
from valet_service import broker

pytestmark = pytest.mark.asyncio(loop_scope="module")

every_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
SESSION = ids.derived_id("the session")
OTHER = ids.derived_id("another session")
TURN = ids.derived_id("the turn")

Q = TypeVar("Q", bound=Tool)


class World:
    """One sandbox's tools, and the services that answer them."""

    def __init__(self, services: testing.Services, http: httpx.AsyncClient, path: Path) -> None:
        self.services = services
        self.http = http
        self._path = path
        self.here: list[Tool] = []
        """What the sandbox answered itself."""

    async def handle(self, request: Tool) -> Answer:
        self.here.append(request)
        return Answer(reply=testing.reply(type(request)))

    def asked(self, tool: type[Q]) -> list[Q]:
        asked = self.services.asked if tool.served_by == "platform" else self.here
        return [request for request in asked if isinstance(request, tool)]

    def mcp(self) -> AbstractAsyncContextManager[Client]:
        return testing.mcp_client(self._path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nc(nats: Broker) -> AsyncIterator[Nats]:
    client = await broker.connect(nats.url, name="test tools")
    yield client
    await broker.close(client)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(nc: Nats, folder: Path) -> AsyncIterator[World]:
    path = folder / "tools.sock"
    services = testing.Services(nc, SESSION)
    await services.serve_all()
    async with testing.http_client(path) as http:
        world = World(services, http, path)
        tools = Tools(
            session_id=SESSION,
            orchestrator=False,
            platform=Platform(nc).call,
            local={tool: world.handle for tool in TOOLS if tool.served_by == "runner"},
            turn=lambda: TURN,
            answers=Answers(folder),
        )
        async with serving(path, tools):
            yield world


def call(tool: type[Tool], values: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Verb, path, and what httpx is to send besides."""
    verb, path = tool.route.split(" ")
    path = path.format(**values)
    rest = {name: value for name, value in values.items() if f"{{{name}}}" not in tool.route}
    return verb, path, {"params": rest} if verb == "GET" else {"json": rest}


def problem(response: httpx.Response) -> Problem:
    assert response.headers["content-type"] == "application/problem+json"
    found = msgspec.json.decode(response.content, type=Problem)
    assert found.status == response.status_code
    return found


def text(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@every_tool
async def test_every_tool_is_asked_over_http_with_all_that_was_given(world: World, tool: type[Tool]) -> None:
    values = testing.values(tool)
    verb, path, more = call(tool, values)
    response = await world.http.request(verb, path, **more)
    assert response.status_code == 200, response.text
    assert msgspec.json.decode(response.content, type=tool.reply) == testing.reply(tool)
    request = world.asked(tool)[-1]
    whole = msgspec.convert(values, tool)
    assert request == msgspec.structs.replace(whole, session_id=SESSION, turn_id=TURN, request_id=request.request_id)
    assert ids.is_ulid(request.request_id)


@every_tool
async def test_every_tool_is_asked_over_mcp_with_all_that_was_given(world: World, tool: type[Tool]) -> None:
    values = testing.values(tool)
    async with world.mcp() as mcp:
        result = await mcp.call_tool(tool.name, values)
    assert not result.is_error, text(result)
    assert msgspec.json.decode(text(result), type=tool.reply) == testing.reply(tool)
    request = world.asked(tool)[-1]
    whole = msgspec.convert(values, tool)
    assert request == msgspec.structs.replace(whole, session_id=SESSION, turn_id=TURN, request_id=request.request_id)


async def test_the_listed_schemas_are_those_of_the_declarations_and_take_their_values(world: World) -> None:
    async with world.mcp() as mcp:
        listed = {tool.name: tool for tool in (await mcp.list_tools()).tools}
    assert list(listed) == [tool.name for tool in TOOLS]
    for tool in TOOLS:
        found = listed[tool.name].input_schema
        assert found == schema.schema(tool)
        jsonschema.Draft202012Validator.check_schema(found)
        assert not FILLED_IN & set(found["properties"])
        assert all(field["description"] for field in found["properties"].values()), tool.name
        jsonschema.validate(testing.values(tool), found)
        assert listed[tool.name].description
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"prompt": "x", "session_id": "mine"}, listed["spawn_child"].input_schema)


@pytest.mark.parametrize(
    ("verb", "path", "body", "field"),
    [
        ("POST", "/api/spawn-child", {}, "prompt"),
        ("POST", "/api/spawn-child", {"prompt": 5}, "prompt"),
        ("POST", "/api/spawn-child", {"prompt": ""}, "prompt"),
        ("POST", "/api/spawn-child", {"prompt": "x", "promt": "y"}, "promt"),
        ("POST", "/api/spawn-child", {"prompt": "x", "session_id": "another"}, "session_id"),
        ("POST", "/api/tunnels", {"name": "Bad Name", "port": 80}, "name"),
        ("POST", "/api/tunnels", {"name": "good", "port": 0}, "port"),
        ("GET", "/api/tasks?limit=many", None, "limit"),
        ("GET", "/api/tasks?status=lost", None, "status"),
        ("PUT", "/api/tasks/one", {"task_id": "two"}, "task_id"),
        ("POST", "/api/tasks", {"title": "x", "blocked_by": ["a", 5]}, "blocked_by[1]"),
        ("POST", "/api/workflows/w/run", {"variables": []}, "variables"),
    ],
)
async def test_bad_input_is_a_problem_that_names_the_field(
    world: World, verb: str, path: str, body: object, field: str
) -> None:
    response = await world.http.request(verb, path, json=body)
    assert response.status_code == 400
    assert field in problem(response).detail


async def test_what_is_not_json_is_refused(world: World) -> None:
    for body in (b"{", b"[1]", b'"x"'):
        response = await world.http.post("/api/spawn-child", content=body)
        assert problem(response).code == "malformed_body"


async def test_bad_input_over_mcp_is_an_error_that_names_the_field(world: World) -> None:
    async with world.mcp() as mcp:
        result = await mcp.call_tool("spawn_child", {"prompt": "x", "title": 5})
        assert result.is_error
        assert "title" in text(result)
        assert (await mcp.call_tool("no_such_tool", {})).is_error


async def test_who_chooses_another_word_is_told_which_there_are(world: World) -> None:
    async with world.mcp() as mcp:
        for tool, arguments, words in (
            ("update_task", {"task_id": "t", "status": "weird"}, "status: Invalid enum value 'weird'; it is one of "),
            (
                "register_tunnel",
                {"name": "web", "port": 3000, "protocol": "ftp"},
                "; it is one of http, ws. (bad_field)",
            ),
        ):
            assert words in text(await mcp.call_tool(tool, arguments))


async def test_numbers_that_a_model_writes_as_text_are_taken(world: World) -> None:
    async with world.mcp() as mcp:
        result = await mcp.call_tool("list_tasks", {"limit": "7"})
    assert not result.is_error, text(result)
    assert world.asked(ListTasks)[-1].limit == 7


async def test_a_refusal_reaches_the_agent_as_it_is(world: World) -> None:
    refusal = Conflict("too_many_children", "Five children run already; end one first.")
    world.services.refusal = refusal
    response = await world.http.post("/api/spawn-child", json={"prompt": "x"})
    assert problem(response) == refusal.problem()
    world.services.refusal = refusal
    async with world.mcp() as mcp:
        result = await mcp.call_tool("spawn_child", {"prompt": "x"})
    assert result.is_error
    assert refusal.detail in text(result)


async def test_an_idempotency_key_makes_the_same_request_of_the_same_call(world: World) -> None:
    for key in ("one", "one", "two"):
        response = await world.http.post("/api/spawn-child", json={"prompt": "x"}, headers={"Idempotency-Key": key})
        assert response.status_code == 200
    first, again, other = (request.request_id for request in world.asked(SpawnChild)[-3:])
    assert first == again != other
    response = await world.http.post("/api/memories", json={"content": "x"}, headers={"Idempotency-Key": "one"})
    assert response.status_code == 200
    assert world.asked(WriteMemory)[-1].request_id != first
    response = await world.http.post("/api/memories", json={"content": "x"}, headers={"Idempotency-Key": "k" * 256})
    assert problem(response).code == "bad_key"


async def test_the_sandbox_carries_out_a_keyed_call_once(world: World) -> None:
    before = len(world.here)
    for _ in range(2):
        response = await world.http.post(
            "/api/channel-reply", json={"channel": "web:default", "text": "x"}, headers={"Idempotency-Key": "reply"}
        )
        assert response.status_code == 200
    assert len(world.here) == before + 1


async def test_a_field_in_the_path_is_decoded(world: World) -> None:
    response = await world.http.put("/api/tasks/a%20task", json={"status": "done"})
    assert response.status_code == 200
    assert world.asked(UpdateTask)[-1].task_id == "a task"


async def test_a_fixed_path_is_not_taken_for_a_field(world: World) -> None:
    response = await world.http.get("/api/memories/search", params={"query": "how to build"})
    assert response.status_code == 200
    assert world.asked(SearchMemories)[-1].query == "how to build"


async def test_what_is_no_tool_is_a_problem_too(world: World) -> None:
    assert problem(await world.http.get("/api/nothing")).status == 404
    assert problem(await world.http.patch("/api/tasks")).status == 405
    assert problem(await world.http.get("/mcp")).status == 405


async def test_more_than_a_request_may_carry_is_refused(world: World) -> None:
    response = await world.http.post("/api/image", content=b" " * (17 << 20))
    assert problem(response).code == "body_too_large"


async def test_agents_that_direct_others_are_not_offered_the_tools_of_a_child(nc: Nats, folder: Path) -> None:
    path = folder / "orchestrator.sock"
    tools = Tools(
        session_id=SESSION,
        orchestrator=True,
        platform=Platform(nc).call,
        local={},
        turn=lambda: None,
        answers=Answers(folder),
    )
    async with serving(path, tools), testing.http_client(path) as http, testing.mcp_client(path) as mcp:
        names = {tool.name for tool in (await mcp.list_tools()).tools}
        assert names == {tool.name for tool in TOOLS} - {"complete_session", "notify_parent"}
        response = await http.post("/api/notify-parent", json={"content": "x"})
        assert problem(response).code == "not_for_orchestrators"
        result = await mcp.call_tool("complete_session", {"summary": "x"})
        assert result.is_error
        assert problem(await http.get("/api/tunnels")).code == "unavailable"


async def test_a_part_of_the_platform_that_is_not_there_is_named(nc: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MISSING_AFTER", 0.1)
    with pytest.raises(Unavailable, match="session-ledger") as caught:
        await Platform(nc).call(SpawnChild(prompt="x", session_id=OTHER))
    assert caught.value.code == "unavailable"


async def test_a_part_of_the_platform_that_restarts_gets_its_time(
    nats: Broker, nc: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug class: a service that is gone for a few seconds is taken for one that does not exist."""
    monkeypatch.setattr(limits, "MISSING_AFTER", 0.0)
    platform = Platform(nc)
    request = SpawnChild(prompt="x", session_id=OTHER)
    theirs = await broker.connect(nats.url, name="test service")
    await testing.Services(theirs, OTHER).serve(SpawnChild)
    await theirs.flush()
    await platform.call(request)
    await broker.close(theirs)
    tries = 0
    ask = broker.request

    async def counted(*args: Any, **more: Any) -> Msg:
        nonlocal tries
        tries += 1
        return await ask(*args, **more)

    monkeypatch.setattr(broker, "request", counted)
    calling = asyncio.create_task(platform.call(request))
    await condition(lambda: tries >= 3 or calling.done())
    again = testing.Services(nc, OTHER)
    await again.serve(SpawnChild)
    assert await calling == testing.reply(SpawnChild)
    assert again.asked == [request]
