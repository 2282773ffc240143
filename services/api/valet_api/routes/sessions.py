"""Sessions: create, list, look, end."""

from typing import Annotated, Any, Literal

from litestar import Request, Response, Router, delete, get, patch, post
from litestar.datastructures import State
from litestar.openapi.spec import Example
from litestar.params import Body, Parameter
from valet_protocol.errors import BadRequest, Unprocessable
from valet_protocol.events.facts import SessionPolicy
from valet_protocol.ids import derived_id, is_ulid, new_id
from valet_protocol.requests import (
    ChangePolicy,
    CreateSession,
    Done,
    GetSession,
    ListSessions,
    RenameSession,
    SessionPage,
    SessionView,
    TerminateSession,
)
from valet_service.config_file import LocalRepos

from valet_api import booting, limits, models, policies, repos
from valet_api.auth import signed_in
from valet_api.disk import needs_room
from valet_api.ledger import Ledger
from valet_api.local_repos import LocalMachine
from valet_api.problems import responses
from valet_api.routes.bodies import IdempotencyKey, NewSession, SessionChange, SessionId, json_only, text
from valet_api.store import Person

Asking = Request[Person, Any, State]


@post(
    "/",
    operation_id="createSession",
    summary="Create a session",
    guards=[json_only, needs_room],
    responses=responses(400, 403, 409, 413, 415, 422),
    opt={"repeatable": True},
    status_code=201,
)
async def create_session(
    request: Asking,
    ledger: Ledger,
    model_list: models.ModelList,
    usual_policy: SessionPolicy,
    local_repos: LocalRepos,
    data: Annotated[
        NewSession,
        Body(
            examples=[
                Example(
                    summary="A repository by URL",
                    value={"repo": "https://git.example.org/team/app.git", "branch": "main", "title": "Fix the tests"},
                ),
                Example(summary="An empty workspace", value={}),
                Example(
                    summary="Ask before anything is pushed",
                    value={
                        "repo": "https://git.example.org/team/app.git",
                        "policy": {
                            "permission_rules": [{"permission": "bash", "pattern": "git push*", "action": "ask"}]
                        },
                    },
                ),
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
        repo=repos.checked_repo(data.repo, LocalMachine(local_repos, administrator=request.user.admin))
        if data.repo is not None
        else None,
        branch=repos.checked_branch(data.branch) if data.branch is not None else None,
        model=models.chosen_model(model_list, data.model),
        policy=policies.changed(usual_policy, data.policy),
        idempotency_key=idempotency_key,
        orchestrator=data.orchestrator,
    )
    view = await ledger.ask(command, SessionView)
    return Response(view, status_code=201, headers={"Location": f"/api/sessions/{view.id}"})


@get("/", operation_id="listSessions", summary="List your sessions", responses=responses(400))
async def list_sessions(
    request: Asking,
    ledger: Ledger,
    limit: Annotated[int, Parameter(ge=1, le=limits.PAGE_SESSIONS)] = 50,
    before: Annotated[str | None, Parameter(description="`next` of the page before.")] = None,
    parent: Annotated[str | None, Parameter(description="Only the sessions that this one's agent has spawned.")] = None,
    tree: Annotated[str | None, Parameter(description="Only this session, and all below it.")] = None,
    status: Annotated[
        Literal["all", "active", "ended"], Parameter(description="`ended`: terminated or failed; `active`: the others.")
    ] = "all",
) -> SessionPage:
    """Newest first, a page at a time; without what there is in their sandboxes."""
    if before is not None and not is_ulid(before):
        raise BadRequest("bad_cursor", f"before={before[:40]!r} is not a session id; pass `next` of the page before.")
    query = ListSessions(user=request.user.user, limit=limit, before=before, parent=parent, tree=tree, status=status)
    return await ledger.sessions(query)


@get("/{session_id:str}", operation_id="getSession", summary="Look at a session", responses=responses(404))
async def get_session(request: Asking, ledger: Ledger, session_id: SessionId) -> SessionView:
    """Status, running turn, queue, open questions, to-do list, cost, and what there is in its sandbox. While that boots
    `status_detail` says how far it is."""
    return booting.told(await ledger.ask(GetSession(session_id=session_id, user=request.user.user), SessionView))


@patch(
    "/{session_id:str}",
    operation_id="changeSession",
    summary="Rename a session, change its policy",
    guards=[json_only],
    responses=responses(400, 403, 404, 409, 413, 415, 422),
)
async def change_session(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    data: Annotated[
        SessionChange,
        Body(
            examples=[
                Example(summary="A title", value={"title": "Faster tests"}),
                Example(summary="Ask from now on", value={"policy": {"permissions": "ask"}}),
            ]
        ),
    ],
) -> SessionView:
    """What is left out stays as it is. The policy counts at once, for open questions and permissions too."""
    user = request.user.user
    if data.title is None and data.policy is None:
        raise BadRequest("nothing_to_change", "Name in `title` or `policy` what is to change.")
    title = text(data.title, "title").strip() if data.title is not None else None
    if title == "":
        raise Unprocessable("empty_title", "The title is empty; leave it out to keep the one there is.")
    if data.policy is not None:
        view = await ledger.ask(GetSession(session_id=session_id, user=user), SessionView)
        policy = policies.changed(view.policy, data.policy)
        await ledger.ask(ChangePolicy(session_id=session_id, user=user, policy=policy), Done)
    if title is not None:
        await ledger.ask(RenameSession(session_id=session_id, user=user, title=title), Done)
    return await ledger.ask(GetSession(session_id=session_id, user=user), SessionView)


@delete(
    "/{session_id:str}",
    operation_id="terminateSession",
    summary="End a session for good",
    responses=responses(404, 409),
    status_code=202,
)
async def terminate_session(request: Asking, ledger: Ledger, session_id: SessionId) -> Done:
    """Its sandbox and workspace are removed; its history stays readable. The sessions its agent has spawned end with
    it."""
    return await ledger.ask(TerminateSession(session_id=session_id, user=request.user.user), Done)


router = Router(
    "/api/sessions",
    guards=[signed_in],
    route_handlers=[create_session, list_sessions, get_session, change_session, terminate_session],
    tags=["sessions"],
)
