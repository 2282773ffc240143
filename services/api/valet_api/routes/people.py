"""Who one is, how one's commits are signed, and who else may sign in."""

from typing import Annotated

import msgspec
from litestar import Router, delete, get, patch, post
from litestar.openapi.spec import Example
from litestar.params import Body, Parameter
from msgspec import UNSET
from valet_protocol.errors import Conflict, NotFound, Unavailable
from valet_protocol.ids import derived_id, new_id
from valet_service import database

from valet_api import tokens
from valet_api.auth import Authenticator, administrator, signed_in
from valet_api.problems import responses
from valet_api.routes.bodies import IdempotencyKey, NewUser, UserChange, json_only, text
from valet_api.routes.sessions import Asking
from valet_api.store import OWNER, Named, Person, Store


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user."""

    id: str
    name: str
    admin: bool
    email: str | None
    """For commits of the turns of their prompts."""
    display_name: str | None
    """Likewise; none: `name`."""


class UserList(msgspec.Struct, frozen=True, kw_only=True):
    """Everybody who may sign in."""

    items: list[UserView]
    """By name."""


UserKey = Annotated[str, Parameter(description="The user's name or id.")]


class CreatedUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user with a new token to sign in. The token is shown this once; only its hash is kept."""

    id: str
    name: str
    token: str


def _view(person: Person) -> UserView:
    return UserView(
        id=person.user,
        name=person.name,
        admin=person.admin,
        email=person.email,
        display_name=person.display_name,
    )


def _unavailable() -> Unavailable:
    return Unavailable("database_unavailable", "Users cannot be stored at the moment; try again.")


@get("/me", operation_id="getMe", summary="Who you are", responses=responses())
async def me(request: Asking) -> UserView:
    """The user of the token."""
    return _view(request.user)


@patch(
    "/me",
    guards=[json_only],
    operation_id="changeMe",
    summary="How your commits are signed",
    responses=responses(400, 413, 415),
)
async def change_me(
    request: Asking,
    store: Store,
    authenticator: Authenticator,
    data: Annotated[
        UserChange,
        Body(examples=[Example(summary="Both", value={"email": "ada@example.org", "display_name": "Ada Lovelace"})]),
    ],
) -> UserView:
    """Commits made during the turns of your prompts carry this name and address from now on."""
    before = request.user
    given = {name: value for name, value in msgspec.structs.asdict(data).items() if value is not UNSET}
    after = msgspec.structs.replace(before, **given)
    try:
        await store.change_user(after.user, email=after.email, display_name=after.display_name)
    except database.UNAVAILABLE as error:
        raise _unavailable() from error
    authenticator.forget(after.user)
    return _view(after)


@post(
    "/users",
    guards=[administrator, json_only],
    operation_id="createUser",
    summary="Make a user",
    opt={"secret_answer": True},
    responses=responses(400, 403, 409, 413, 415, 422),
    status_code=201,
)
async def create_user(
    request: Asking,
    store: Store,
    secret: bytes,
    data: Annotated[NewUser, Body(examples=[Example(summary="A user", value={"name": "ada"})])],
    idempotency_key: IdempotencyKey = None,
) -> CreatedUser:
    """For administrators. Each user sees the sessions they own or take part in only."""
    admin = request.user.user
    user = CreatedUser(
        id=derived_id("user", admin, idempotency_key) if idempotency_key else new_id(),
        name=data.name,
        token=f"valet_{tokens.token(secret, 'user', admin, data.name, idempotency_key)}",
    )
    try:
        added = await store.add_user(user.id, user.name, user.token, email=data.email, display_name=data.display_name)
        # the same request again finds the user it has made
        known = None if added else await store.person(user.token)
    except database.UNAVAILABLE as error:
        raise _unavailable() from error
    if not added and (known is None or known.user != user.id):
        raise Conflict("name_taken", f"There is a user {user.name!r} already; choose another name.")
    return user


@get("/users", guards=[administrator], operation_id="listUsers", summary="List the users", responses=responses(403))
async def list_users(store: Store) -> UserList:
    """For administrators: everybody who may sign in."""
    try:
        return UserList(items=[_view(person) for person in await store.people()])
    except database.UNAVAILABLE as error:
        raise _unavailable() from error


@delete(
    "/users/{user:str}",
    guards=[administrator],
    operation_id="removeUser",
    summary="Remove a user",
    responses=responses(403, 404, 409),
    status_code=200,
)
async def remove_user(store: Store, authenticator: Authenticator, user: UserKey) -> Named:
    """For administrators. Their tokens are refused at once; their sessions stay as they are. What they had open by then
    goes on until its connection ends, and a way into a sandbox for an hour at most. Their name may be given to another,
    who sees none of their sessions.
    """
    try:
        found = await _somebody(store, user)
        await store.remove_user(found.id)
    except database.UNAVAILABLE as error:
        raise _unavailable() from error
    authenticator.forget(found.id)
    return found


@post(
    "/users/{user:str}/token",
    guards=[administrator],
    operation_id="replaceToken",
    summary="Give a user a new token",
    opt={"secret_answer": True},
    responses=responses(403, 404, 409),
    status_code=201,
)
async def replace_token(
    request: Asking,
    store: Store,
    authenticator: Authenticator,
    secret: bytes,
    user: UserKey,
    idempotency_key: IdempotencyKey = None,
) -> CreatedUser:
    """For administrators, where a token was lost or became known to others: those from before are refused at once."""
    try:
        found = await _somebody(store, user)
        token = f"valet_{tokens.token(secret, 'user_token', request.user.user, found.id, idempotency_key)}"
        await store.replace_tokens(found.id, token)
    except database.UNAVAILABLE as error:
        raise _unavailable() from error
    authenticator.forget(found.id)
    return CreatedUser(id=found.id, name=found.name, token=token)


async def _somebody(store: Store, user: str) -> Named:
    """A user who may be changed by others. Raises `NotFound`, and `Conflict` for the owner."""
    found = await store.known_as(text(user, "user"))
    if found is None:
        raise NotFound("user_not_found", f"There is no user {user!r}; GET /api/users lists them.")
    if found.name == OWNER:
        raise Conflict(
            "owner_stays",
            "The owner stays, and signs in with the token of the platform's token file: write another one into it and "
            "start the platform again.",
        )
    return found


router = Router(
    "/api",
    guards=[signed_in],
    route_handlers=[me, change_me, list_users, create_user, remove_user, replace_token],
    tags=["people"],
)
