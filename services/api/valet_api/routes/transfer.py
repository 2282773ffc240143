"""Sessions made from sessions: fork, export, import."""

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Response, Router, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example, OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema
from litestar.params import Body, Parameter
from litestar.response import Stream
from valet_protocol.errors import Unavailable
from valet_protocol.events.agent import WorkRef
from valet_protocol.ids import derived_id, new_id
from valet_protocol.requests import ForkPlan, ForkSession, GetSession, ImportEvents, PlanFork, SessionView
from valet_service.config_file import LocalRepos
from valet_service.object_store import ObjectStoreUnavailable

from valet_api import limits, streams, transfer_files, transfers
from valet_api.attachments import Attachments
from valet_api.auth import signed_in
from valet_api.disk import needs_room
from valet_api.forks import Forks, ForkView
from valet_api.ledger import Ledger
from valet_api.local_repos import LocalMachine
from valet_api.problems import responses
from valet_api.routes.bodies import IdempotencyKey, NewFork, SessionId, json_only, text
from valet_api.routes.sessions import Asking
from valet_api.transfers import Stores

V = TypeVar("V", bound=SessionView)

LINES = "application/jsonl"
_LINES = (LINES, "application/x-ndjson", "application/ndjson", "application/jsonlines", "application/x-jsonlines")


@post(
    "/api/sessions/{session_id:str}/fork",
    operation_id="forkSession",
    summary="Fork a session",
    guards=[json_only, needs_room],
    opt={"repeatable": True},
    responses=responses(400, 403, 404, 409, 413, 415, 422),
    status_code=201,
)
async def fork_session(
    request: Asking,
    ledger: Ledger,
    forks: Forks,
    attached: Attachments,
    session_id: SessionId,
    data: Annotated[
        NewFork,
        Body(
            examples=[
                Example(summary="As it is now", value={}),
                Example(summary="At a message", value={"message_id": "msg_0198f2c4", "title": "Another way"}),
            ]
        ),
    ],
    idempotency_key: IdempotencyKey = None,
) -> Response[ForkView]:
    """A new session with the conversation and the files as they were. The source is left as it is. Files are kept of
    the latest turns only: at older messages the fork begins with the repository, and `left_out` says so."""
    user = request.user.user
    message_id = text(data.message_id, "message_id") if data.message_id is not None else None
    plan = await ledger.ask(PlanFork(session_id=session_id, user=user, message_id=message_id), ForkPlan)
    fork_id = derived_id("fork", user, session_id, idempotency_key) if idempotency_key else new_id()
    start = await forks.start(ledger, plan, source=session_id, message_id=message_id, session_id=fork_id, user=user)
    await attached.copy(session_id, fork_id, user)
    command = ForkSession(
        session_id=fork_id,
        owner=user,
        source_session=session_id,
        message_id=message_id,
        title=text(data.title, "title").strip() if data.title is not None else None,
        work=start.work,
        idempotency_key=idempotency_key,
    )
    made = await ledger.ask(command, SessionView, timeout=limits.FORK_TIMEOUT)
    return _made(ForkView(**msgspec.structs.asdict(made), left_out=start.left_out))


@get(
    "/api/sessions/{session_id:str}/export",
    operation_id="exportSession",
    summary="Export a session",
    responses={
        **responses(404),
        200: ResponseSpec(
            str,
            description="A CloudEvent per line, with its sequence as `seq`; the first line is the session's first "
            "event, streamed chunks are left out. With `files`, lines of files between them: `file`, then `piece` "
            "(base 64) as often as needed, then `end` with size and SHA-256. An answer that ends in the middle is to "
            "be asked for again; as long as `Valet-Export` is the same, it begins with the same bytes.",
            media_type=LINES,
            generate_examples=False,
        ),
    },
)
async def export_session(
    request: Asking,
    ledger: Ledger,
    stores: Stores,
    session_id: SessionId,
    files: Annotated[
        bool,
        Parameter(
            description="With the content of attachments and images and, unless you may only read the session, what "
            "its agent starts from elsewhere: the changed files and its memory, as saved after the last turn."
        ),
    ] = False,
) -> Stream:
    """Everything that happened, as JSON lines. What opens share links is not in it, nor e-mail addresses but your own,
    unless the session is yours."""
    user = request.user.user
    view = await ledger.ask(GetSession(session_id=session_id, user=user), SessionView)
    work: WorkRef | None = None
    if files and view.role != "viewer":
        work = (await ledger.ask(PlanFork(session_id=session_id, user=user), ForkPlan)).work
    sending = transfer_files.Sending(stores.objects, ledger, session_id, user) if files else None
    export = transfers.Export(ledger, session_id, view.seq, user, sending=sending, work=work)
    try:
        lines = await streams.begun(export.lines())
    except ObjectStoreUnavailable as error:
        raise Unavailable("objects_unavailable", "The files cannot be read at the moment; try again.") from error
    headers = {
        "Content-Disposition": f'attachment; filename="{session_id}.jsonl"',
        "Valet-Export": f"{view.seq}-{work.sha256[:16] if work else 'events'}",
    }
    return Stream(lines, media_type=LINES, headers=headers)


def lines_only(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard: the body is announced as JSON lines."""
    kind = connection.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _LINES:
        raise HTTPException(detail=f"Send an export with the header 'Content-Type: {LINES}'", status_code=415)


@dataclass
class _Lines(Operation):
    def __post_init__(self) -> None:
        content = {LINES: OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))}
        self.request_body = RequestBody(content=content, required=True, description="An export, as it came.")


@post(
    "/api/import",
    operation_id="importSession",
    operation_class=_Lines,
    summary="Import a session",
    guards=[lines_only, needs_room],
    opt={"repeatable": True, "stream_bytes": limits.IMPORT_BYTES},
    request_max_body_size=None,  # the limit is kept while the body passes, with words of its own
    responses=responses(400, 403, 409, 413, 415, 422),
    status_code=201,
)
async def import_session(
    request: Asking,
    ledger: Ledger,
    stores: Stores,
    local_repos: LocalRepos,
    title: Annotated[
        str | None,
        Parameter(description="None: the source's.", max_length=limits.TITLE_CHARACTERS),
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response[SessionView]:
    """A session of yours with the same messages, and the files that are in the export. Its agent knows what was said:
    from its own memory where the export has that, else from the text. Every line is checked first; one that is wrong is
    named, and nothing is made."""
    user = request.user.user
    if (request.content_length or 0) > limits.IMPORT_BYTES:
        raise transfers.too_large()
    asked = ImportEvents(
        session_id=derived_id("import", user, idempotency_key) if idempotency_key else new_id(),
        owner=user,
        title=text(title, "title").strip() if title is not None else None,
        source_session="",
        offset=0,
        events=[],
        last=False,
        idempotency_key=idempotency_key,
    )
    machine = LocalMachine(local_repos, administrator=request.user.admin)
    return _made(await transfers.Import(ledger, asked, stores, machine).run(streams.body_of(request)))


def _made(view: V) -> Response[V]:
    return Response(view, status_code=201, headers={"Location": f"/api/sessions/{view.id}"})


router = Router(
    "/", guards=[signed_in], route_handlers=[fork_session, export_session, import_session], tags=["transfer"]
)
