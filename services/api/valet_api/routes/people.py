"""Who one is, and making further users."""

import secrets

import msgspec
from litestar import Router, get, post
from valet_protocol.errors import Conflict, Unavailable
from valet_protocol.ids import new_id
from valet_protocol.requests import Identity
from valet_service import database

from valet_api.auth import administrator, signed_in
from valet_api.problems import responses
from valet_api.routes.bodies import NewUser, json_only
from valet_api.routes.sessions import Asking
from valet_api.store import Store


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user."""

    id: str
    name: str
    admin: bool


class CreatedUser(msgspec.Struct, frozen=True, kw_only=True):
    """A new user with the token to sign in. The token is shown this once; only its hash is kept."""

    id: str
    name: str
    token: str


@get("/me", operation_id="getMe", summary="Who you are", responses=responses())
async def me(request: Asking) -> UserView:
    """The user of the token."""
    identity: Identity = request.user
    return UserView(id=identity.user, name=identity.name, admin=identity.admin)


@post(
    "/users",
    guards=[administrator, json_only],
    operation_id="createUser",
    summary="Make a user",
    responses=responses(400, 403, 409, 415),
    status_code=201,
)
async def create_user(data: NewUser, store: Store) -> CreatedUser:
    """For administrators. Each user sees their own sessions only."""
    user = CreatedUser(id=new_id(), name=data.name, token=f"valet_{secrets.token_urlsafe(32)}")
    try:
        added = await store.add_user(user.id, user.name, user.token)
    except database.UNAVAILABLE as error:
        raise Unavailable("database_unavailable", "Users cannot be stored at the moment; try again.") from error
    if not added:
        raise Conflict("name_taken", f"There is a user {user.name!r} already; choose another name.")
    return user


router = Router("/api", guards=[signed_in], route_handlers=[me, create_user], tags=["people"])
