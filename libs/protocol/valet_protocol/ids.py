"""Identifiers: ULIDs, made where the thing they name is made.

A ULID is 48 bits of milliseconds and 80 bits of randomness in Crockford's base 32: 26 characters that sort
by time and are safe in a subject token, a file name and a URL. Clock and randomness are passed in, so that
everything that needs an id stays a pure function.
"""

import hashlib
import os
import re
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def ulid(now_ms: int, randomness: bytes) -> str:
    """The ULID of a moment (milliseconds since 1970) and ten random bytes."""
    return _encode((now_ms & (1 << 48) - 1) << 80 | int.from_bytes(randomness[:10], "big"))


def new_id() -> str:
    """A fresh ULID from this machine's clock and randomness. For edges; a pure function takes its ids."""
    return ulid(time.time_ns() // 1_000_000, os.urandom(10))


def derived_id(*parts: str | int) -> str:
    """The same id for the same parts, always: what makes acting twice detectable.

    A decision that two replicas may reach at once (dispatch this prompt, give this question its default) names
    its fact by what caused it; the broker then drops the second copy.
    """
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    return _encode(int.from_bytes(digest[:16], "big") & (1 << 128) - 1)


def is_ulid(text: str) -> bool:
    """Whether `text` has the shape of a ULID."""
    return _ULID.fullmatch(text) is not None


def _encode(number: int) -> str:
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -5, -5))
