"""What requests with an Idempotency-Key were answered. Pure; the rules are those of the platform's own API."""

import hashlib
import re
from collections import OrderedDict

import msgspec
from valet_protocol.errors import BadRequest, Unprocessable

from valet_processes import limits

_KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_DECIDED = frozenset({403, 404, 409, 422})
"""Refusals that are remembered: the request was understood and refused. Others may be different the next time."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request with a key."""

    key: str
    digest: str
    """SHA-256 of its query, its content type and its body."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a request with a key was answered."""

    digest: str
    status: int
    content_type: str
    content: bytes


class Answers:
    """The latest of them, by path and key. Pure."""

    def __init__(self, count: int = limits.ANSWERS_KEPT, size: int = limits.ANSWERS_BYTES) -> None:
        self._kept: OrderedDict[tuple[str, str], Answer] = OrderedDict()
        self._count = count
        self._size = size
        self._bytes = 0

    def find(self, path: str, asked: Asked) -> Answer | None:
        """What this request was answered before. Raises `Unprocessable` where its key was another one's."""
        answer = self._kept.get((path, asked.key))
        if answer is not None:
            check_same(asked, answer.digest)
        return answer

    def keep(self, path: str, key: str, answer: Answer) -> None:
        """Remember it; the oldest make room."""
        self._kept[path, key] = answer
        self._bytes += len(answer.content)
        while len(self._kept) > self._count or self._bytes > self._size:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.content)


def check_same(asked: Asked, digest: str) -> None:
    """Whether the key's first request was this one. Raises `Unprocessable`."""
    if asked.digest != digest:
        raise Unprocessable(
            "idempotency_key_reused",
            "This Idempotency-Key was used for a different request to this address; use a new one for every request.",
        )


def is_kept(status: int) -> bool:
    """Whether a repetition is to get this answer."""
    return 200 <= status < 300 or status in _DECIDED


def digest(query: str, content_type: str, content: bytes) -> str:
    """What tells one request to an address from another."""
    return hashlib.sha256(b"%b\0%b\0%b" % (query.encode(), content_type.encode(), content)).hexdigest()


def check_key(key: str) -> str:
    """A key as it is. Raises `BadRequest` for one that is none."""
    if len(key) > limits.KEY_CHARS or not _KEY.fullmatch(key):
        raise BadRequest(
            "bad_key",
            f"Idempotency-Key has 1 to {limits.KEY_CHARS} visible ASCII characters, with blanks inside only",
        )
    return key
