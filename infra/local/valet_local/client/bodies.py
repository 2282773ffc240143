"""Bodies of the HTTP API that are not views of the protocol."""

import msgspec
from valet_protocol.events.facts import PromptMode


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
    mode: PromptMode | None = None
    model: str | None = None


class NewAnswer(Body, frozen=True, kw_only=True):
    """`POST /api/sessions/{id}/answer`."""

    question_id: str | None = None
    answers: list[list[str]]


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
