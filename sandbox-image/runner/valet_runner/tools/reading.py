"""What came in, as a request. Pure."""

import re
from collections.abc import Mapping
from typing import cast

import msgspec
from valet_protocol.errors import BadRequest
from valet_protocol.tools import FILLED_IN, Tool

from valet_runner.tools import limits, schema

_AT = re.compile(r"^(?P<what>.*) - at `\$(?:\.(?P<field>[^`]*))?`$", re.DOTALL)


def read(tool: type[Tool], values: Mapping[str, object], *, lax: bool) -> Tool:
    """A request without what the runner fills in. With `lax`, numbers and truth values may come as text.

    Raises `BadRequest`, which names the field.
    """
    known = [field.encode_name for field in msgspec.structs.fields(tool) if field.encode_name not in FILLED_IN]
    for name in values:
        if name not in known:
            takes = ", ".join(known) or "no fields"
            raise BadRequest("unknown_field", f"{name}: {tool.name} has no such field; it takes {takes}.")
    try:
        return msgspec.convert(values, tool, strict=not lax)
    except msgspec.ValidationError as error:
        raise BadRequest("bad_field", _explain(str(error), tool)) from error


def read_json(body: bytes) -> dict[str, object]:
    """The fields of a body; none of an empty one. Raises `BadRequest`."""
    if not body.strip():
        return {}
    try:
        return msgspec.json.decode(body, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise BadRequest("malformed_body", f"The body must be one JSON object: {error}") from error


def join(body: dict[str, object], path: Mapping[str, str]) -> dict[str, object]:
    """Fields of the body and of the path. Raises `BadRequest` where they contradict each other."""
    for name, value in path.items():
        if body.get(name, value) != value:
            raise BadRequest("bad_field", f"{name}: the path says {value!r}, the body something else.")
    return {**body, **path}


def check_key(key: str) -> str:
    """An `Idempotency-Key` as it is. Raises `BadRequest` for one that is none."""
    if not 0 < len(key) <= limits.KEY_CHARS:
        raise BadRequest("bad_key", f"An Idempotency-Key must have 1 to {limits.KEY_CHARS} characters.")
    return key


def _explain(error: str, tool: type[Tool]) -> str:
    found = _AT.match(error)
    if not found:
        return f"{error}."
    what, field = found["what"], found["field"]
    if what.startswith("Invalid enum value") and (words := _words(tool, field or "")):
        what = f"{what}; it is one of {', '.join(words)}"
    return f"{field}: {what}." if field else f"{what}."


def _words(tool: type[Tool], field: str) -> list[str]:
    """What a field, or each entry of a list, may be; nothing where that is not a choice of words."""
    properties = cast(dict[str, dict[str, object]], schema.schema(tool)["properties"])
    declared = properties.get(field.partition("[")[0], {})
    entry = cast(dict[str, object], declared.get("items", declared))
    return [str(word) for word in cast(list[object], entry.get("enum", []))]
