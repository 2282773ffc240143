"""What came in, as a request. Pure."""

import re
from collections.abc import Mapping

import msgspec
from valet_protocol.errors import BadRequest
from valet_protocol.tools import FILLED_IN, Tool

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
        raise BadRequest("bad_field", _explain(str(error))) from error


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


def _explain(error: str) -> str:
    found = _AT.match(error)
    if found and found["field"]:
        return f"{found['field']}: {found['what']}."
    return f"{found['what'] if found else error}."
