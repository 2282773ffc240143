"""Who takes part in a session: by name, or by a link."""

import time
from typing import Annotated

import msgspec
from litestar import Response, Router, delete, get, post, put
from litestar.openapi.spec import Example
from litestar.params import Body, Parameter
from valet_protocol.errors import NotFound, Unavailable, Unprocessable
from valet_protocol.events.facts import Role
from valet_protocol.ids import derived_id, is_ulid, new_id
from valet_protocol.requests import (
    AddParticipant,
    CreateShareLink,
    Done,
    JoinSession,
    ListParticipants,
    ParticipantList,
    RemoveParticipant,
    RevokeShareLink,
    SessionView,
    ShareLinkView,
)
from valet_service import database

from valet_api import tokens
from valet_api.auth import signed_in
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.routes.bodies import IdempotencyKey, Join, NewLink, NewRole, SessionId, json_only, text
from valet_api.routes.sessions import Asking
from valet_api.store import Named, Store

User = Annotated[str, Parameter(description="A user's name or id.")]


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who takes part."""

    user: str
    """User id."""
    name: str
    role: Role
    link_id: str | None = None
    """The link they came by."""


class Participants(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes part. The owner is the first."""

    participants: list[Participant]
    links: list[ShareLinkView]
    """Valid ones; for owners."""


class CreatedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A new link. The token is shown this once; only its hash is kept."""

    link_id: str
    token: str
    """For `POST /api/join`, or `valet join`."""
    url: str
    """An address to send to people; the token stands behind the `#`, which no server is told."""


async def _known(store: Store, user: str) -> Named | None:
    try:
        return await store.known_as(text(user, "user"))
    except database.UNAVAILABLE as error:
        raise Unavailable("database_unavailable", "Users cannot be looked up at the moment; try again.") from error


@get("/participants", operation_id="listParticipants", summary="Who takes part", responses=responses(404))
async def list_participants(request: Asking, ledger: Ledger, store: Store, session_id: SessionId) -> Participants:
    """And, for owners, the links by which one may join."""
    query = ListParticipants(session_id=session_id, user=request.user.user)
    found = await ledger.ask(query, ParticipantList)
    try:
        names = await store.names([one.user for one in found.participants])
    except database.UNAVAILABLE:
        names = {}  # ids say it as well
    return Participants(
        participants=[
            Participant(user=one.user, name=names.get(one.user, one.user), role=one.role, link_id=one.link_id)
            for one in found.participants
        ],
        links=found.links,
    )


@put(
    "/participants/{user:str}",
    operation_id="addParticipant",
    summary="Let somebody take part",
    guards=[json_only],
    responses=responses(400, 403, 404, 409, 413, 415, 422),
)
async def add_participant(
    request: Asking,
    ledger: Ledger,
    store: Store,
    session_id: SessionId,
    user: User,
    data: Annotated[NewRole, Body(examples=[Example(summary="A viewer", value={"role": "viewer"})])],
) -> Done:
    """Or change their role. For owners."""
    found = await _known(store, user)
    if found is None:
        raise Unprocessable(
            "unknown_user", f"There is no user {user[:40]!r} here. An administrator makes users with POST /api/users."
        )
    command = AddParticipant(session_id=session_id, user=request.user.user, participant=found.id, role=data.role)
    return await ledger.ask(command, Done)


@delete(
    "/participants/{user:str}",
    operation_id="removeParticipant",
    summary="End somebody's part",
    responses=responses(403, 404, 409),
    status_code=200,
)
async def remove_participant(request: Asking, ledger: Ledger, store: Store, session_id: SessionId, user: User) -> Done:
    """An owner anybody's, everybody their own. It ends at once, open streams too. Who never took part is refused with
    `participant_not_found`."""
    found = await _known(store, user)
    participant = found.id if found is not None else user
    command = RemoveParticipant(session_id=session_id, user=request.user.user, participant=participant)
    try:
        return await ledger.ask(command, Done)
    except NotFound as refusal:
        if refusal.code != "participant_not_found":
            raise
        raise NotFound(refusal.code, f"{user[:40]!r} has never taken part in this session.") from refusal


@post(
    "/links",
    operation_id="createLink",
    summary="Make a share link",
    opt={"repeatable": True, "secret_answer": True},
    guards=[json_only],
    responses=responses(400, 403, 404, 409, 413, 415, 422),
    status_code=201,
)
async def create_link(
    request: Asking,
    ledger: Ledger,
    secret: bytes,
    session_id: SessionId,
    data: Annotated[
        NewLink, Body(examples=[Example(summary="For a day", value={"role": "viewer", "expires_in_s": 86400})])
    ],
    idempotency_key: IdempotencyKey = None,
) -> CreatedLink:
    """Whoever has it may join with its role, until it is revoked or has run out. For owners."""
    user = request.user.user
    link_id = derived_id("link", session_id, user, idempotency_key) if idempotency_key else new_id()
    token = tokens.share_token(session_id, tokens.token(secret, "link", session_id, user, idempotency_key))
    lasts = data.expires_in_s
    command = CreateShareLink(
        session_id=session_id,
        user=user,
        link_id=link_id,
        token_sha256=tokens.sha256_of(token),
        role=data.role,
        expires_ms=None if lasts is None else time.time_ns() // 1_000_000 + lasts * 1000,
    )
    try:
        await ledger.ask(command, Done)
    except Unprocessable as refusal:
        # a repetition would end at another moment than the first: that alone is no other request
        if refusal.code != "idempotency_key_reused" or not await _there(ledger, command):
            raise
    return CreatedLink(link_id=link_id, token=token, url=f"{str(request.base_url).rstrip('/')}/join#{token}")


async def _there(ledger: Ledger, link: CreateShareLink) -> bool:
    """Whether there is this very link with its role."""
    query = ListParticipants(session_id=link.session_id, user=link.user)
    found = await ledger.ask(query, ParticipantList)
    return any((one.link_id, one.role) == (link.link_id, link.role) for one in found.links)


@delete(
    "/links/{link_id:str}",
    operation_id="revokeLink",
    summary="Revoke a share link",
    responses=responses(403, 404, 409),
    status_code=200,
)
async def revoke_link(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    link_id: Annotated[str, Parameter(description="As it was given when the link was made.")],
) -> Done:
    """Who came by it may no longer take part. For owners."""
    command = RevokeShareLink(session_id=session_id, user=request.user.user, link_id=text(link_id, "link_id"))
    return await ledger.ask(command, Done)


@post(
    "/api/join",
    operation_id="joinSession",
    summary="Join by a share link",
    guards=[signed_in, json_only],
    opt={"repeatable": True},
    responses=responses(400, 404, 409, 413, 415, 422),
    status_code=200,
    tags=["sharing"],
)
async def join_session(
    request: Asking,
    ledger: Ledger,
    data: Annotated[
        Join,
        Body(examples=[Example(summary="A token", value={"token": "01K9XQ5V7R8B3T6D2M4N0P1S9Z.kq3…"})]),
    ],
    idempotency_key: IdempotencyKey = None,
) -> SessionView:
    """A higher role one has already is kept."""
    session_id = tokens.session_of(data.token)
    if not is_ulid(session_id):
        raise NotFound("link_not_found", "This is not the token of a share link; ask for a new one.")
    command = JoinSession(session_id=session_id, user=request.user.user, token_sha256=tokens.sha256_of(data.token))
    return await ledger.ask(command, SessionView)


@get("/join", operation_id="joinPage", summary="What to do with a share link", security=[{}], tags=["sharing"])
async def join_page() -> Response[str]:
    """The token stands behind the `#` of the address: it stays with the reader."""
    words = (
        "This is a share link of a Valet session.\n\nJoin with the command line:  valet join '<this address>'\n"
        'or with the API:  POST /api/join {"token": "<what stands behind the #>"}\n'
    )
    return Response(words, media_type="text/plain; charset=utf-8")


_of_session = Router(
    "/api/sessions/{session_id:str}",
    guards=[signed_in],
    route_handlers=[list_participants, add_participant, remove_participant, create_link, revoke_link],
    tags=["sharing"],
)
router = Router("/", route_handlers=[_of_session, join_session, join_page])
