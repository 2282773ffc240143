"""Bodies of requests, and what is checked before they are read."""

from typing import Annotated, Any, Literal

import msgspec
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.params import HeaderParameter, Parameter
from msgspec import UNSET, Meta, UnsetType
from valet_protocol.errors import Unprocessable
from valet_protocol.events.facts import PromptKind, PromptMode

from valet_api import limits
from valet_api.replies import KEY

SessionId = Annotated[str, Parameter(description="The session's id, as it was given when the session was created.")]

IdempotencyKey = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        min_length=1,
        max_length=limits.KEY_CHARACTERS,
        pattern=f"^{KEY.pattern}$",
        description="Any text of yours. The same request with the same key again is done once and answered alike, for "
        "a day; another request with the same key is refused.",
    ),
]

After = Annotated[int, Parameter(ge=0, lt=1 << 53, description="`next` of the page before.")]

_END = r"$(?!\n)"
"""The very end: `$` alone would let a newline follow."""

_CHANNEL = r"^[a-z][a-z0-9_-]*(:[A-Za-z0-9][A-Za-z0-9._:/@#+-]*)?" + _END
_EMAIL = r"^[^\x00-\x20\x7f@<>]+@[^\x00-\x20\x7f@<>]+" + _END
_VARIANT = r"^[A-Za-z0-9][A-Za-z0-9._-]*" + _END
_USER = r"^[a-z0-9][a-z0-9._-]{0,62}" + _END
_NAME = r"^[^\x00-\x20\x7f<>]([^\x00-\x1f\x7f<>]*[^\x00-\x20\x7f<>])?" + _END

PATTERNS_IN_WORDS = {
    f"^{KEY.pattern}$": "visible ASCII characters, with blanks only between them",
    _CHANNEL: "a channel such as `slack:team/general`: a word in small letters, and a name behind a colon",
    _EMAIL: "an e-mail address such as `ada@example.org`",
    _VARIANT: "letters, digits, `.`, `_` and `-`, the first a letter or digit",
    _USER: "at most 63 small letters, digits, `.`, `_` and `-`, the first a letter or digit",
    _NAME: "a name without line breaks, `<` and `>`, and without blanks around it",
}
"""What each pattern asks for, as people are told it."""

Channel = Annotated[str, Meta(max_length=limits.CHANNEL_CHARACTERS, pattern=_CHANNEL)]
Email = Annotated[str, Meta(max_length=limits.EMAIL_CHARACTERS, pattern=_EMAIL)]
DisplayName = Annotated[str, Meta(max_length=limits.DISPLAY_NAME_CHARACTERS, pattern=_NAME)]
ModelName = Annotated[str, Meta(max_length=limits.MODEL_CHARACTERS)]
Seconds = Annotated[float, Meta(ge=limits.TIMEOUT_LEAST, le=limits.TIMEOUT_MOST)]
Pattern = Annotated[str, Meta(min_length=1, max_length=limits.PATTERN_CHARACTERS)]
Id = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARACTERS)]
Title = Annotated[str, Meta(max_length=limits.TITLE_CHARACTERS)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every body: a field that is not known is an error, for it would be ignored without a word."""


class Rule(Body, frozen=True, kw_only=True):
    """What happens when the agent asks for certain permissions. Of several that match, the last one counts."""

    permission: Pattern = "*"
    """Kind of permission with `*` and `?` as wildcards, e.g. `bash`, `edit`, `external_directory`."""
    pattern: Pattern = "*"
    """What it is for, likewise, e.g. `git push *` or a path."""
    action: Literal["allow", "ask", "deny"]


class PolicyFields(Body, frozen=True, kw_only=True):
    """How a session treats what its agent asks. What is left out stays as it is."""

    question_timeout_s: Seconds | None = None
    """Seconds a question waits before its default is given."""
    permissions: Literal["auto-approve", "ask"] | None = None
    """What happens when the agent asks for a permission that no rule is about."""
    permission_rules: Annotated[list[Rule], Meta(max_length=limits.RULES)] | None = None
    """All exceptions from `permissions`, in order."""
    permission_timeout_s: Seconds | None = None
    """Seconds a permission waits before its default is given."""
    permission_default: Literal["reject", "once"] | None = None
    """What a permission gets when nobody answers in time."""


class NewSession(Body, frozen=True, kw_only=True):
    """What a session starts from."""

    repo: str | None = None
    """Git URL, `git@host:path`, or absolute path of a directory on the platform's machine. None: an empty workspace."""
    branch: str | None = None
    """Branch or tag to start from; none: the repository's default."""
    title: Title | None = None
    model: str | None = None
    """`provider/model`; none: the default."""
    policy: PolicyFields | None = None
    """What is to differ from the platform's usual policy."""
    orchestrator: bool = False
    """Whether its agent directs others: it reaches all of your sessions, and does not end its own."""


class SessionChange(Body, frozen=True, kw_only=True):
    """What is to change of a session."""

    title: Title | None = None
    """What the agent proposes no longer counts then."""
    policy: PolicyFields | None = None
    """For owners. It counts for open questions, too."""


class NewMessage(Body, frozen=True, kw_only=True):
    """A prompt."""

    content: str = ""
    """The text; of a `command` its name and arguments (`/init now`), of a `shell` the command line, of a `review`
    instructions, if there are any."""
    kind: PromptKind = "prompt"
    """A prompt for the model, a slash command of the agent's, a command line whose output the agent then knows, or a
    review of what the session changed."""
    mode: PromptMode = "queue"
    """What happens if a turn is running: `queue` waits for its end, `steer` goes into it at the next step, `collect`
    becomes one prompt together with others that come shortly after each other."""
    channel: Channel | None = None
    """Where it comes from, `<surface>:<name>`; each channel is a conversation of its own. None: `web:default`."""
    model: ModelName | None = None
    """For this prompt only."""
    fallbacks: Annotated[list[ModelName], Meta(max_length=limits.FALLBACKS)] = []
    """Models to go on with, in order, when the one before cannot answer."""
    variant: Annotated[str, Meta(max_length=limits.VARIANT_CHARACTERS, pattern=_VARIANT)] | None = None
    """Reasoning variant of the model, e.g. `high`."""
    attachments: Annotated[list[Id], Meta(max_length=limits.ATTACHMENTS)] = []
    """Ids of files that were uploaded to this session before."""


class PromptChange(Body, frozen=True, kw_only=True):
    """Another text for a prompt that waits."""

    content: str


class NewOrder(Body, frozen=True, kw_only=True):
    """The order of the prompts that wait; those not named keep theirs behind the named ones."""

    prompt_ids: Annotated[list[Id], Meta(min_length=1, max_length=limits.QUEUE_IDS)]


class NewAnswer(Body, frozen=True, kw_only=True):
    """An answer to what the agent asked: `answers` for each question of the set, or `answer` where it has just one."""

    question_id: str | None = None
    """None: the only open one."""
    answers: list[list[str]] | None = None
    """For each question the labels chosen, or free text. For a permission `once`, `always` or `reject`."""
    answer: str | None = None


class Revert(Body, frozen=True, kw_only=True):
    """Where to go back to."""

    message_id: Id
    """This message and all after it in its conversation are taken back, files too."""


class NewCommand(Body, frozen=True, kw_only=True):
    """Something to be done in the sandbox between turns."""

    command: Literal["new_conversation", "list_commands"]
    """Start the channel's conversation afresh, or list the agent's slash commands."""
    channel: Channel | None = None
    """The conversation it is about; none: `web:default`."""


class NewRole(Body, frozen=True, kw_only=True):
    """What somebody may do: viewers read, collaborators also prompt, answer and steer."""

    role: Literal["collaborator", "viewer"]


class NewLink(Body, frozen=True, kw_only=True):
    """A link by which people may join."""

    role: Literal["collaborator", "viewer"]
    """What those who come by it may do."""
    expires_in_s: Annotated[int, Meta(ge=limits.LINK_LEAST, le=limits.LINK_MOST)] | None = None
    """Seconds for which it can be used; none: until it is revoked."""


class Join(Body, frozen=True, kw_only=True):
    """A link's token."""

    token: Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARACTERS)]


class NewFork(Body, frozen=True, kw_only=True):
    """Where a fork starts."""

    message_id: Id | None = None
    """A person's message: as it was before; an agent's: as it was after its turn. None: as it is now."""
    title: Title | None = None
    """None: the source's."""


class Seen(Body, frozen=True, kw_only=True):
    """Which notifications were read: `ids`, or `all`."""

    ids: Annotated[list[Id], Meta(min_length=1, max_length=limits.NOTIFICATION_IDS)] | None = None
    all: bool = False


class NewUser(Body, frozen=True, kw_only=True):
    """A further user."""

    name: Annotated[str, Meta(pattern=_USER)]
    email: Email | None = None
    """For commits of the turns of their prompts."""
    display_name: DisplayName | None = None
    """Likewise; none: `name`."""


class UserChange(Body, frozen=True, kw_only=True):
    """How one wants to be named in commits. What is left out stays as it is; null takes it away."""

    email: Email | UnsetType | None = UNSET
    display_name: DisplayName | UnsetType | None = UNSET


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
