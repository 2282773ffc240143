"""`/mcp`: the same tools by the Model Context Protocol."""

import base64
import importlib.metadata

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from valet_protocol.errors import Refused
from valet_protocol.tools import BY_NAME, Tool
from valet_service import logs

from valet_runner.tools import limits, reading, schema
from valet_runner.tools.running import Answer, Tools

_log = logs.get(__name__)
Context = ServerRequestContext[dict[str, object]]

KEY = "valet/idempotency-key"
"""Where in a call's `_meta` a client that may ask twice says that it is the same call: numbers of requests begin anew
with every client."""


def server(tools: Tools) -> Server[dict[str, object]]:
    """The MCP server of a session's tools."""
    listed = [_listed(tool) for tool in tools.offered]
    schemas = {tool.name: tool.input_schema for tool in listed}

    async def list_tools(_: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = BY_NAME.get(params.name)
        if tool is None:
            return _failed(f"There is no tool {params.name!r}.")
        try:
            return _result(await tools.call(tool, params.arguments or {}, lax=True, key=_key(params)))
        except Refused as refusal:
            return _failed(f"{refusal.detail} ({refusal.code})")
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent must be told something
            _log.exception("tool_failed", tool=tool.name, error=str(error))
            return _failed("Something went wrong in this sandbox; try again. (internal)")

    return Server(
        "valet",
        version=importlib.metadata.version("valet-runner"),
        instructions="What the platform this session runs on can do for you and for the people you work with.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=schemas.get,
    )


def _key(params: types.CallToolRequestParams) -> str | None:
    key = (params.meta or {}).get(KEY)
    return None if key is None else reading.check_key(str(key))


def _listed(tool: type[Tool]) -> types.Tool:
    verb = tool.route.partition(" ")[0]
    return types.Tool(
        name=tool.name,
        description=schema.description(tool),
        input_schema=schema.schema(tool),
        annotations=types.ToolAnnotations(read_only_hint=verb == "GET", destructive_hint=verb == "DELETE"),
    )


def _result(answer: Answer) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(text=msgspec.json.encode(answer.reply).decode())]
    note = answer.note
    if answer.image and len(answer.image.content) > limits.IMAGE_TO_MODEL_BYTES:
        note = "People see the picture now; it is too large for you to see. Make it smaller if you want to look at it."
    elif answer.image:
        data = base64.b64encode(answer.image.content).decode()
        content.append(types.ImageContent(data=data, mime_type=answer.image.media_type))
    if note:
        content.append(types.TextContent(text=note))
    return types.CallToolResult(content=content)


def _failed(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=why)], is_error=True)
