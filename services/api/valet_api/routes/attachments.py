"""Files for the agent: upload, download."""

from dataclasses import dataclass
from typing import Annotated

from litestar import Response, Router, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIFormat, OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema
from litestar.params import Parameter
from litestar.response import Stream
from valet_protocol.errors import Forbidden
from valet_protocol.events.facts import Attachment
from valet_protocol.ids import derived_id, new_id
from valet_protocol.requests import GetSession, SessionView

from valet_api import limits, streams
from valet_api.attachments import ANYTHING, Attachments, clean_mime, clean_name, disposition, too_large
from valet_api.auth import signed_in
from valet_api.disk import needs_room
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.routes.bodies import IdempotencyKey, SessionId
from valet_api.routes.sessions import Asking


@dataclass
class _Upload(Operation):
    def __post_init__(self) -> None:
        content = {"*/*": OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY))}
        self.request_body = RequestBody(content=content, required=True, description="The file as it is.")


@post(
    "/attachments",
    operation_id="addAttachment",
    operation_class=_Upload,
    summary="Upload a file",
    guards=[needs_room],
    opt={"repeatable": True, "stream_bytes": limits.ATTACHMENT_BYTES},
    request_max_body_size=None,  # the limit is kept while the body passes, with words of its own
    responses=responses(400, 403, 404, 413, 422),
    status_code=201,
)
async def add_attachment(
    request: Asking,
    ledger: Ledger,
    attached: Attachments,
    session_id: SessionId,
    name: Annotated[str, Parameter(description="The file's name.", min_length=1, max_length=4096)],
    idempotency_key: IdempotencyKey = None,
) -> Response[Attachment]:
    """The body is the file, `Content-Type` its type. Name its `attachment_id` in `attachments` of a prompt."""
    view = await ledger.ask(GetSession(session_id=session_id, user=request.user.user), SessionView)
    if view.role == "viewer":
        raise Forbidden("role_too_low", "Viewers read; ask the session's owner to make you a collaborator.")
    if (request.content_length or 0) > limits.ATTACHMENT_BYTES:
        raise too_large()
    called = clean_name(name)
    attachment = await attached.add(
        session_id,
        derived_id("attachment", session_id, request.user.user, idempotency_key) if idempotency_key else new_id(),
        called,
        clean_mime(request.headers.get("content-type", ""), called),
        streams.body_of(request),
        request.user.user,
    )
    place = f"/api/sessions/{session_id}/attachments/{attachment.attachment_id}"
    return Response(attachment, status_code=201, headers={"Location": place})


@get(
    "/attachments/{attachment_id:str}",
    operation_id="getAttachment",
    summary="Download a file",
    responses={
        **responses(404),
        200: ResponseSpec(bytes, description="The file as it is.", media_type=ANYTHING, generate_examples=False),
    },
)
async def get_attachment(
    request: Asking,
    ledger: Ledger,
    attached: Attachments,
    session_id: SessionId,
    attachment_id: Annotated[str, Parameter(description="As it was given when the file was uploaded.")],
) -> Stream:
    """Always as a download, never shown in place: it is somebody else's content."""
    await ledger.ask(GetSession(session_id=session_id, user=request.user.user), SessionView)
    attachment, content = await attached.open(session_id, attachment_id)
    headers = {
        "Content-Disposition": disposition(attachment.name),
        "Content-Length": str(attachment.bytes),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Stream(content, media_type=attachment.mime, headers=headers)


router = Router(
    "/api/sessions/{session_id:str}",
    guards=[signed_in],
    route_handlers=[add_attachment, get_attachment],
    tags=["attachments"],
)
