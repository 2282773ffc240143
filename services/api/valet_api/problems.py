"""Every error as an RFC 9457 problem document: one shape, a stable code, and what to do about it."""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from valet_protocol.errors import Problem, Refused, Unavailable
from valet_protocol.ids import new_id
from valet_service import logs

from valet_api import limits
from valet_api.disk import Disk
from valet_api.routes.bodies import PATTERNS_IN_WORDS

MEDIA_TYPE = "application/problem+json"

_log = logs.get(__name__)

_CODES = {
    400: ("Bad request", "bad_request"),
    404: ("Not found", "no_such_route"),
    405: ("Method not allowed", "method_not_allowed"),
    413: ("Too large", "body_too_large"),
    415: ("Unsupported media type", "unsupported_media_type"),
}

_DETAILS = {
    404: "There is nothing at this address; /schema lists what there is.",
    405: "This address does not take that method; the header Allow says which it takes.",
    413: f"A request body may have {limits.BODY_BYTES} bytes. Put long text into a file of the repository.",
}


def document(problem: Problem, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    """A problem as a response."""
    extra = dict(headers or {})
    if problem.status == 401:
        extra["WWW-Authenticate"] = 'Bearer realm="valet"'
    if problem.status in (429, 503):
        extra["Retry-After"] = str(limits.RETRY_AFTER)
    return Response(msgspec.json.encode(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=extra)


def refused(request: Request[Any, Any, Any], refusal: Refused) -> Response[bytes]:
    """A refusal of ours or of the service behind. What is unavailable on a full disk is so for that reason."""
    problem = refusal.problem()
    if isinstance(refusal, Unavailable) and refusal.code != "disk_nearly_full":
        disk: Disk = request.app.state.disk
        if (full := disk.full()) is not None:
            problem = msgspec.structs.replace(problem, detail=f"{full} {problem.detail}")
    return document(problem)


def http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """An error the framework found: no route, wrong method, a body or parameter that does not fit."""
    status = error.status_code
    if status >= 500:
        _log.error("request_failed", method=request.method, path=request.url.path, error=str(error))
        return document(Unavailable("internal", "The request could not be handled; try again.").problem())
    title, code = _CODES.get(status, ("Bad request", "bad_request"))
    detail = _DETAILS.get(status) or _explain(error)
    if "after" in _keys(error):
        code = "bad_cursor"
    return document(Problem(title=title, status=status, detail=detail, code=code), error.headers)


def undecodable(_: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """A body that is not UTF-8, or nested deeper than anything meant seriously."""
    reason = "nested too deeply" if isinstance(error, RecursionError) else "not UTF-8"
    return document(
        Problem(
            title="Bad request", status=400, detail=f"The body is {reason}; send JSON in UTF-8.", code="bad_request"
        )
    )


def unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """A fault of ours: the log gets the trace, the client a number under which it is found there."""
    instance = new_id()
    _log.exception("request_failed", instance=instance, method=request.method, path=request.url.path)
    detail = f"Something went wrong here. If it stays so, report it with the number {instance} from the log of api."
    return document(
        Problem(title="Internal error", status=500, detail=detail, code="internal", instance=f"urn:ulid:{instance}")
    )


def _explain(error: HTTPException) -> str:
    """Which part of the request does not fit, and why."""
    if isinstance(error.extra, list) and error.extra:
        reasons = [
            f"{item['key']}: {_in_words(item)}" if item.get("key") not in (None, "data") else _in_words(item)
            for item in error.extra
        ]
        if reasons == [repr("data")]:  # the framework's KeyError: what the body would be is not there at all
            return "The request has no body; send a JSON object, which may be empty: {}."
        return "; ".join(reasons) + "."
    return f"{error.detail}."


def _in_words(item: Mapping[str, Any]) -> str:
    """What is wrong with a value; nobody is shown a regular expression."""
    message = str(item["message"])
    for pattern, words in PATTERNS_IN_WORDS.items():
        message = message.replace(f"`str` matching regex {pattern!r}", words)
    return message


def _keys(error: HTTPException) -> set[str]:
    return {str(item.get("key")) for item in error.extra} if isinstance(error.extra, list) else set()


def responses(*statuses: int) -> dict[int, ResponseSpec]:
    """The problems of an operation, for the OpenAPI document."""
    return {
        status: ResponseSpec(
            data_container=Problem, description=_MEANINGS[status], media_type=MEDIA_TYPE, generate_examples=False
        )
        for status in sorted({400, 401, 503, *statuses})
    }


_MEANINGS = {
    400: "The request is malformed.",
    401: "No valid token.",
    403: "Not allowed.",
    404: "No such session, or not yours.",
    409: "It does not fit the present state.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A value cannot be used.",
    429: "A limit is reached.",
    503: "A part of the platform is restarting; try again.",
}
