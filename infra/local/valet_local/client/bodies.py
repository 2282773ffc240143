"""Bodies of the HTTP API that are not views of the protocol."""

from typing import Literal

import msgspec
from valet_protocol.events.facts import PromptKind, PromptMode, Role
from valet_protocol.requests import ShareLinkView


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every request's body. What is None is left out."""


class NewSession(Body, frozen=True, kw_only=True):
    """`POST /api/sessions`."""

    repo: str | None = None
    branch: str | None = None
    title: str | None = None
    model: str | None = None


class NewMessage(Body, frozen=True, kw_only=True):
    """`POST /api/sessions/{id}/messages`."""

    content: str
    kind: PromptKind | None = None
    mode: PromptMode | None = None
    channel: str | None = None
    model: str | None = None
    fallbacks: list[str] | None = None
    attachments: list[str] | None = None


class NewAnswer(Body, frozen=True, kw_only=True):
    """`POST /api/sessions/{id}/answer`."""

    question_id: str | None = None
    answers: list[list[str]]


class SessionChange(Body, frozen=True, kw_only=True):
    """`PATCH /api/sessions/{id}`."""

    title: str | None = None


class PromptChange(Body, frozen=True, kw_only=True):
    """`PATCH /api/sessions/{id}/prompts/{prompt_id}`."""

    content: str


class NewOrder(Body, frozen=True, kw_only=True):
    """`POST /api/sessions/{id}/queue`."""

    prompt_ids: list[str]


class Revert(Body, frozen=True, kw_only=True):
    """`POST /api/sessions/{id}/revert`."""

    message_id: str


class NewFork(Body, frozen=True, kw_only=True):
    """`POST /api/sessions/{id}/fork`."""

    message_id: str | None = None
    title: str | None = None


class NewRole(Body, frozen=True, kw_only=True):
    """`PUT /api/sessions/{id}/participants/{user}`."""

    role: Literal["collaborator", "viewer"]


class NewLink(Body, frozen=True, kw_only=True):
    """`POST /api/sessions/{id}/links`."""

    role: Literal["collaborator", "viewer"]
    expires_in_s: int | None = None


class Join(Body, frozen=True, kw_only=True):
    """`POST /api/join`."""

    token: str


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who takes part."""

    user: str
    """User id."""
    name: str
    role: Role
    link_id: str | None = None
    """The link they came by."""


class Participants(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/sessions/{id}/participants`."""

    participants: list[Participant]
    links: list[ShareLinkView]


class CreatedLink(msgspec.Struct, frozen=True, kw_only=True):
    """A new share link; the token is told this once."""

    link_id: str
    token: str
    url: str


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model a session can be given."""

    id: str
    """`provider/model`, as a session names it."""
    provider: str
    name: str
    """What people call it."""


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/models`."""

    items: list[ModelView]
    default: str | None = None
    """What a session uses that names none."""


class NewUser(Body, frozen=True, kw_only=True):
    """`POST /api/users`."""

    name: str


class UserName(msgspec.Struct, frozen=True, kw_only=True):
    """A user, as others see them."""

    id: str
    name: str


class User(UserName, frozen=True, kw_only=True):
    """A user, as administrators see them."""

    admin: bool
    email: str | None = None
    display_name: str | None = None


class Users(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/users`."""

    items: list[User]


class UserToken(UserName, frozen=True, kw_only=True):
    """A user with a token that is told this once."""

    token: str
