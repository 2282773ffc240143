"""What an agent is told of a tool: its JSON Schema and its description. Pure."""

import inspect
from typing import cast

import msgspec
from valet_protocol.struct_docs import describe
from valet_protocol.tools import FILLED_IN, Tool

Json = dict[str, object]


def schema(tool: type[Tool]) -> Json:
    """The JSON Schema of a tool's fields, each with its meaning, without what the runner fills in."""
    _, shapes = msgspec.json.schema_components([tool], ref_template="#/$defs/{name}", schema_hook=_any_value)
    shape = shapes.pop(tool.__name__)
    meanings = {field.name: field.meaning for field in describe(tool).fields}
    properties = {
        name: {"description": meanings[name], **_typed(_without_null(declared))}
        for name, declared in cast(dict[str, Json], shape["properties"]).items()
        if name not in FILLED_IN
    }
    found: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if shape.get("required"):
        found["required"] = shape["required"]
    if shapes:
        found["$defs"] = shapes
    return found


def description(tool: type[Tool]) -> str:
    """A tool's docstring, each paragraph on one line: what the model reads."""
    paragraphs = inspect.cleandoc(tool.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _without_null(declared: Json) -> Json:
    """A field that may be left out is said to be left out, not to be null: models understand the former better."""
    if declared.get("default", ...) is not None:
        return declared
    rest = {key: value for key, value in declared.items() if key not in ("default", "anyOf")}
    (kind,) = [kind for kind in cast(list[Json], declared["anyOf"]) if kind != {"type": "null"}]
    return {**rest, **kind}


def _typed(declared: Json) -> Json:
    """msgspec gives a choice of words no type; some providers refuse a schema without one."""
    return {"type": "string", **declared} if "enum" in declared else declared


def _any_value(kind: type) -> Json:
    """msgspec has no schema for `object`, which stands for any JSON value here."""
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError
