"""Message ids for OpenCode: sorted after all older ones, and recognisable by the turn they belong to.

OpenCode orders messages by id and takes a prompt as answered when an assistant message with a greater id exists; its
own ids are `msg_`, 12 hexadecimal digits of (milliseconds × 4096 + counter) cut to 48 bits, and 14 characters of
base 62 (read in its source, `packages/opencode/src/id/id.ts`; tested against 1.18.33).
"""

import contextlib
import hashlib

from valet_runner import limits

_PREFIX = "msg_"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SUFFIX_LENGTH = 14


def suffix(key: str, attempt: int = 0) -> str:
    """The last 14 characters of a user message: always the same for the same key (the id of a turn, or of the prompt
    that steers one) and attempt (0, and one more for each model of a failover chain)."""
    name = f"{key}.{attempt}" if attempt else key
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "big")
    text = ""
    for _ in range(_SUFFIX_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        text += _ALPHABET[digit]
    return text


def user_message_id(key: str, now_ms: int, newest: str | None = None, *, attempt: int = 0) -> str:
    """The id for a turn's prompt, or for one that steers it. `newest` is the greatest message id so far: a clock that
    was set back must not put the prompt before it."""
    stamp = (now_ms << 12) & ((1 << 48) - 1)
    if newest is not None and newest.startswith(_PREFIX):
        with contextlib.suppress(ValueError):  # an id of somebody else's making says nothing about time
            stamp = max(stamp, int(newest[len(_PREFIX) : len(_PREFIX) + 12], 16) + 1)
    return f"{_PREFIX}{stamp:012x}{suffix(key, attempt)}"


def belongs_to(message_id: str, key: str) -> bool:
    """Whether a user message is the prompt of this turn, in whichever attempt, or this steering prompt."""
    return message_id[-_SUFFIX_LENGTH:] in {suffix(key, attempt) for attempt in range(limits.ATTEMPTS_MAX)}
