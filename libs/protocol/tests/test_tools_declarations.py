"""Claims about the declarations of the agent's tools."""

import re
from collections import Counter

import msgspec
import pytest
from valet_protocol.struct_docs import describe
from valet_protocol.tools import BY_NAME, FILLED_IN, TOOLS, Tool

every_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)

SPECIFIED = """
POST /api/spawn-child
POST /api/terminate-child
POST /api/complete-session
POST /api/session-message
GET /api/session-messages
POST /api/forward-messages
GET /api/child-sessions
GET /api/session-status
POST /api/create-pull-request
POST /api/update-pull-request
GET /api/pull-requests
GET /api/pull-request
POST /api/git-state
GET /api/memories
POST /api/memories
DELETE /api/memories/:id
POST /api/notifications/emit
GET /api/notifications
GET /api/tasks
POST /api/tasks
PUT /api/tasks/:id
GET /api/my-tasks
POST /api/secrets/list
POST /api/secrets/inject
POST /api/secrets/run
POST /api/secrets/fill
POST /api/channel-reply
POST /api/image
POST /api/tunnels
DELETE /api/tunnels/:name
GET /api/tunnels
"""
"""The internal API of the specification, verb by verb."""


def shape(route: str) -> str:
    """A route without the names of its fields."""
    return re.sub(r"\{\w+\}|:\w+", "*", route)


def fields(tool: type[Tool]) -> dict[str, msgspec.structs.FieldInfo]:
    return {f.encode_name: f for f in msgspec.structs.fields(tool) if f.encode_name not in FILLED_IN}


def test_every_endpoint_of_the_specification_is_there_with_its_verb_and_path() -> None:
    assert {shape(route) for route in SPECIFIED.split("\n") if route} <= {shape(tool.route) for tool in TOOLS}


def test_each_category_has_as_many_tools_as_the_specification_counts() -> None:
    counted = Counter(tool.category for tool in TOOLS)
    assert counted.pop("notifications") + counted.pop("tasks") == 8
    assert counted == {
        "sessions": 10,
        "pull_requests": 6,
        "memory": 4,
        "workflows": 13,
        "triggers": 4,
        "executions": 5,
        "tunnels": 4,
        "secrets": 4,
        "channels": 2,
        "parallel": 4,
        "other": 4,
    }


def test_no_two_tools_have_one_name_or_one_route() -> None:
    assert len(BY_NAME) == len({shape(tool.route) for tool in TOOLS}) == len(TOOLS)


def test_agents_that_direct_others_lack_the_tools_of_a_child() -> None:
    assert {tool.name for tool in TOOLS if not tool.orchestrators} == {"complete_session", "notify_parent"}


@every_tool
def test_a_tool_is_asked_by_its_name(tool: type[Tool]) -> None:
    assert tool.method == tool.name
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", tool.name)


@every_tool
def test_a_route_takes_its_fields_from_the_declaration(tool: type[Tool]) -> None:
    verb, path = tool.route.split(" ")
    assert verb in ("GET", "POST", "PUT", "DELETE")
    assert re.fullmatch(r"/api(/([a-z-]+|\{[a-z_]+\}))+", path)
    in_path = re.findall(r"\{(\w+)\}", path)
    declared = fields(tool)
    assert all(declared[name].required for name in in_path)
    if verb == "DELETE":
        assert list(declared) == in_path


@every_tool
def test_what_is_asked_in_a_query_is_plain(tool: type[Tool]) -> None:
    if tool.route.startswith("GET "):
        for field in fields(tool).values():
            assert "list[" not in str(field.type)
            assert "dict[" not in str(field.type)


@every_tool
def test_every_tool_and_every_field_says_what_it_means(tool: type[Tool]) -> None:
    doc = describe(tool)
    assert doc.meaning
    assert all(field.meaning for field in doc.fields if field.name not in FILLED_IN), doc.name
    assert describe(tool.reply).meaning


@every_tool
def test_no_field_hides_what_is_declared_of_the_tool(tool: type[Tool]) -> None:
    declared = {"name", "category", "route", "reply", "timeout", "orchestrators", "served_by", "method"}
    names = {field.name for field in msgspec.structs.fields(tool)}
    assert not names & declared
    assert names >= FILLED_IN
