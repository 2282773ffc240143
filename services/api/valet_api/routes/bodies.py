"""Bodies of requests, and what is checked before they are read."""

from typing import Annotated, Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.params import HeaderParameter, Parameter
from valet_protocol.errors import Unprocessable
from valet_protocol.events.facts import PromptMode

from valet_api import limits

SessionId = Annotated[str, Parameter(description="The session's id, as it was given when the session was created.")]

IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=limits.KEY_CHARACTERS,
        pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
        description="Any text of yours. The same request with the same key again is done once and answered alike.",
    ),
]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every body: a field that is not known is an error, for it would be ignored without a word."""


class NewSession(Body, frozen=True, kw_only=True):
    """What a session starts from."""

    repo: str | None = None
    """Git URL, `git@host:path`, or absolute path of a directory on the platform's machine. None: an empty workspace."""
    branch: str | None = None
    """Branch or tag to start from; none: the repository's default."""
    title: Annotated[str, msgspec.Meta(max_length=limits.TITLE_CHARACTERS)] | None = None
    model: str | None = None
    """`provider/model`; none: the default."""


class NewMessage(Body, frozen=True, kw_only=True):
    """A prompt."""

    content: str
    mode: PromptMode = "queue"
    """What happens if a turn is running: `queue` waits for its end."""
    model: str | None = None
    """For this prompt only."""


class NewAnswer(Body, frozen=True, kw_only=True):
    """An answer to what the agent asked: `answers` for each question of the set, or `answer` where it has just one."""

    question_id: str | None = None
    """None: the only open one."""
    answers: list[list[str]] | None = None
    """For each question the labels chosen, or free text. For a permission `once`, `always` or `reject`."""
    answer: str | None = None


class NewUser(Body, frozen=True, kw_only=True):
    """A further user."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


def text(value: str, field: str) -> str:
    """A text that can be stored. Raises `Unprocessable`: PostgreSQL takes no NUL characters."""
    if "\0" in value:
        raise Unprocessable("nul_character", f"`{field}` has a NUL character in it; leave it out.")
    return value


def json_only(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard: the body is announced as JSON. Anything else is a mistake better told than guessed at."""
    kind = connection.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        given = f"not {kind!r}" if kind else "and the request names no type"
        raise HTTPException(
            detail=f"Send JSON with the header 'Content-Type: application/json', {given}", status_code=415
        )
