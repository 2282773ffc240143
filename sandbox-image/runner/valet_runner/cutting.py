"""Making what a tool says fit into an event."""

import msgspec

from valet_runner import limits

_CUT = "… cut: {} characters …\n"


def tail(text: str, limit: int) -> str:
    """The end of a text, at most `limit` characters and a line that says how much is missing."""
    if len(text) <= limit:
        return text
    return _CUT.format(len(text) - limit) + text[-limit:]


def head(text: str, limit: int) -> str:
    """The beginning of a text, likewise."""
    if len(text) <= limit:
        return text
    return text[:limit] + "\n" + _CUT.format(len(text) - limit)


def fields(
    values: dict[str, object], *, string: int = limits.TOOL_STRING_CHARS, total: int = limits.TOOL_FIELD_BYTES
) -> dict[str, object]:
    """A tool's input or metadata with long strings cut, and fields left out (largest first) while it is too big.

    Sizes: `string` in characters, `total` in bytes of JSON.
    """
    short = {key: _shorten(value, string) for key, value in values.items()}
    sizes = {key: len(msgspec.json.encode(value)) for key, value in short.items()}
    while sum(sizes.values()) > total:
        largest = max(sizes, key=lambda key: sizes[key])
        short[largest] = f"left out: {sizes.pop(largest)} bytes"
    return short


def _shorten(value: object, limit: int) -> object:
    match value:
        case str():
            return head(value, limit)
        case list():
            return [_shorten(item, limit) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {key: _shorten(item, limit) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
