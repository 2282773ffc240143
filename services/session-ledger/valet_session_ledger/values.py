"""What PostgreSQL can hold: values of events, which come from sandboxes, made fit for its columns. Pure."""

import msgspec

_encode = msgspec.json.Encoder().encode
_MAX = (1 << 63) - 1
_LONGEST_ID = 200


def text(value: str) -> str:
    """PostgreSQL's text holds everything but NUL, which a command's output may well contain."""
    return value.replace("\0", "\ufffd") if "\0" in value else value


def text_or_none(value: str | None) -> str | None:
    """`text` of what may be missing."""
    return None if value is None else text(value)


def identifier(value: str) -> str:
    """One too long for an index is cut: it must not stop the projection."""
    return text(value[:_LONGEST_ID])


def integer_or_none(value: int | None) -> int | None:
    """A number that fits 64 bits."""
    return None if value is None else max(-_MAX, min(value, _MAX))


def count(value: int) -> int:
    """A count such that sums over a session stay inside 64 bits."""
    return max(0, min(value, 1 << 40))


def dollars(value: float) -> float:
    """A cost such that sums over a session stay finite."""
    return max(0.0, min(value, 1e9))


def json(value: object) -> str:
    """JSON text, for columns of that type; NUL is escaped there, which they take."""
    return _encode(value).decode()
