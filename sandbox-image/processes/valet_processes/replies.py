"""Answers of HTTP: JSON, and problem documents for all that is refused."""

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web
from valet_protocol.errors import BadRequest, Problem, Refused, TooLarge
from valet_service import logs

from valet_processes import limits

_log = logs.get(__name__)


def reply(value: object, status: int = 200) -> web.Response:
    """A value as JSON."""
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")


def problem(document: Problem) -> web.Response:
    """A refusal (RFC 9457)."""
    return web.Response(
        status=document.status, body=msgspec.json.encode(document), content_type="application/problem+json"
    )


@web.middleware
async def refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Whatever a handler raises, as a problem document."""
    try:
        return await handler(request)
    except Refused as error:
        return problem(error.problem())
    except web.HTTPRequestEntityTooLarge:
        return problem(TooLarge("body_too_large", f"A request has at most {limits.BODY_BYTES} bytes").problem())
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        detail = f"{request.path} does not take {request.method}; it takes {allowed}"
        response = problem(
            Problem(title="Method not allowed", status=error.status, detail=detail, code="method_not_allowed")
        )
        response.headers["Allow"] = allowed
        return response
    except web.HTTPNotFound as error:
        detail = f"Nothing is at {request.path}; processes are at /v1/processes"
        return problem(Problem(title="Not found", status=error.status, detail=detail, code="no_such_route"))
    except web.HTTPException as error:
        detail = f"{request.method} {request.path}: {error.text or error.reason}"
        return problem(Problem(title=error.reason, status=error.status, detail=detail, code="bad_request"))
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:  # noqa: BLE001 a mistake of ours must not end the connection without a word
        _log.exception("request_failed", method=request.method, path=request.path, error=str(error))
        return problem(
            Problem(title="Internal error", status=500, detail="The process service failed; see its log", code="failed")
        )


async def body(request: web.Request) -> bytes:
    """The whole of a request's body. Raises `BadRequest`, `HTTPRequestEntityTooLarge`."""
    try:
        return await request.read()
    except ConnectionError as error:
        raise BadRequest("body_cut", "The connection ended within the request") from error
