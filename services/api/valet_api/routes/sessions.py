"""Sessions: create, list, look, end."""

from pathlib import Path
from typing import Annotated, Any

from litestar import Request, Response, Router, delete, get, post
from litestar.datastructures import State
from litestar.openapi.spec import Example
from litestar.params import Body, Parameter
from valet_protocol.errors import BadRequest
from valet_protocol.events.facts import SessionPolicy
from valet_protocol.ids import derived_id, is_ulid, new_id
from valet_protocol.requests import (
    CreateSession,
    DiffView,
    Done,
    GetDiff,
    GetSession,
    Identity,
    ListSessions,
    SessionPage,
    SessionView,
    TerminateSession,
)

from valet_api import limits, models, repos
from valet_api.auth import signed_in
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.routes.bodies import IdempotencyKey, NewSession, SessionId, json_only, text

Asking = Request[Identity, Any, State]


def _is_directory(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False


@post(
    "/",
    operation_id="createSession",
    summary="Create a session",
    guards=[json_only],
    responses=responses(400, 413, 415, 422),
    status_code=201,
)
async def create_session(
    request: Asking,
    ledger: Ledger,
    model_list: models.ModelList,
    policy: SessionPolicy,
    data: Annotated[
        NewSession,
        Body(
            examples=[
                Example(
                    summary="A repository by URL",
                    value={"repo": "https://git.example.org/team/app.git", "branch": "main", "title": "Fix the tests"},
                ),
                Example(summary="An empty workspace", value={}),
            ]
        ),
    ],
    idempotency_key: IdempotencyKey = None,
) -> Response[SessionView]:
    """Its sandbox starts at once; prompts are taken from now on and wait until it is ready."""
    user = request.user.user
    command = CreateSession(
        session_id=derived_id("session", user, idempotency_key) if idempotency_key else new_id(),
        owner=user,
        title=text(data.title or "", "title").strip(),
        repo=repos.checked_repo(data.repo, _is_directory) if data.repo is not None else None,
        branch=repos.checked_branch(data.branch) if data.branch is not None else None,
        model=models.chosen_model(model_list, data.model),
        policy=policy,
        idempotency_key=idempotency_key,
    )
    view = await ledger.ask(command, SessionView)
    return Response(view, status_code=201, headers={"Location": f"/api/sessions/{view.id}"})


@get("/", operation_id="listSessions", summary="List your sessions", responses=responses(400))
async def list_sessions(
    request: Asking,
    ledger: Ledger,
    limit: Annotated[int, Parameter(ge=1, le=limits.PAGE_SESSIONS)] = 50,
    before: Annotated[str | None, Parameter(description="`next` of the page before.")] = None,
) -> SessionPage:
    """Newest first, a page at a time."""
    if before is not None and not is_ulid(before):
        raise BadRequest("bad_cursor", f"before={before[:40]!r} is not a session id; pass `next` of the page before.")
    return await ledger.sessions(ListSessions(user=request.user.user, limit=limit, before=before))


@get("/{session_id:str}", operation_id="getSession", summary="Look at a session", responses=responses(404))
async def get_session(request: Asking, ledger: Ledger, session_id: SessionId) -> SessionView:
    """Status, running turn, queue, open questions, to-do list, cost."""
    return await ledger.ask(GetSession(session_id=session_id, user=request.user.user), SessionView)


@delete(
    "/{session_id:str}",
    operation_id="terminateSession",
    summary="End a session for good",
    responses=responses(404, 409),
    status_code=202,
)
async def terminate_session(request: Asking, ledger: Ledger, session_id: SessionId) -> Done:
    """Its sandbox and workspace are removed; its history stays readable."""
    return await ledger.ask(TerminateSession(session_id=session_id, user=request.user.user), Done)


@get(
    "/{session_id:str}/diff",
    operation_id="getDiff",
    summary="What the session changed",
    responses=responses(404),
)
async def get_diff(request: Asking, ledger: Ledger, session_id: SessionId) -> Response[DiffView]:
    """The workspace against the session's base, as of the end of the last turn.

    With `Accept: text/x-diff` the patch alone, fit for `git apply`.
    """
    view = await ledger.ask(GetDiff(session_id=session_id, user=request.user.user), DiffView)
    accepted = request.headers.get("accept", "")
    if any(kind in accepted for kind in ("text/x-diff", "text/x-patch", "text/plain")):
        return Response(view.patch, media_type="text/x-diff; charset=utf-8")  # type: ignore[arg-type]
    return Response(view)


router = Router(
    "/api/sessions",
    guards=[signed_in],
    route_handlers=[create_session, list_sessions, get_session, terminate_session, get_diff],
    tags=["sessions"],
)
