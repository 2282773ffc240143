"""`/api/*`: every tool at its route, errors as problem documents."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from valet_protocol.errors import Problem, Refused, TooLarge
from valet_protocol.tools import Tool
from valet_service import logs

from valet_runner.tools import limits, reading
from valet_runner.tools.running import Tools

_log = logs.get(__name__)


def routes(declared: tuple[type[Tool], ...], tools: Tools) -> list[Route]:
    """A route for each tool; fixed paths before those with a field in them."""
    fixed_first = sorted(declared, key=lambda tool: "{" in tool.route)
    return [_route(tool, tools) for tool in fixed_first]


def problem(document: Problem) -> Response:
    """A refusal, as it is sent."""
    return Response(msgspec.json.encode(document), document.status, media_type="application/problem+json")


def _route(tool: type[Tool], tools: Tools) -> Route:
    verb, path = tool.route.split(" ")

    async def answer(request: Request) -> Response:
        try:
            path_fields: dict[str, str] = request.path_params
            if verb == "GET":
                values, lax = reading.join(dict(request.query_params), path_fields), True
            else:
                values, lax = reading.join(reading.read_json(await _body(request)), path_fields), False
            key = request.headers.get("idempotency-key")
            found = await tools.call(tool, values, lax=lax, key=None if key is None else reading.check_key(key))
            return Response(msgspec.json.encode(found.reply), media_type="application/json")
        except Refused as refusal:
            return problem(refusal.problem())
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent must be told something
            _log.exception("tool_failed", tool=tool.name, error=str(error))
            return problem(INTERNAL)

    return Route(path, answer, methods=[verb], name=tool.name)


INTERNAL = Problem(
    title="Internal error", status=500, code="internal", detail="Something went wrong in this sandbox; try again."
)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limits.BODY_BYTES:
            raise TooLarge("body_too_large", f"A request may have {limits.BODY_BYTES} bytes.")
    return bytes(body)
