"""The base of all requests and replies, and the words they share."""

from typing import ClassVar, Literal

import msgspec

SessionStatus = Literal[
    "requested",
    "provisioning",
    "booting",
    "ready",
    "busy",
    "lost",
    "hibernated",
    "restoring",
    "failed",
    "terminated",
]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every request. `method` is the last token of its subject."""

    method: ClassVar[str]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every reply and view."""
