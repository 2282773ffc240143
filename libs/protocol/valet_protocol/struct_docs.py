"""What the sources say about structs: class docstrings, and the string below each field, which Python itself drops."""

import ast
import inspect
import textwrap
import types
import typing
from functools import cache

import msgspec


class FieldDoc(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a struct, for people."""

    name: str
    type: str
    """In words, with a struct's name in square brackets."""
    default: str | None
    """As JSON; none for a field that must be there."""
    meaning: str


class StructDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A struct, for people."""

    name: str
    meaning: str
    fields: tuple[FieldDoc, ...]
    uses: tuple[type[msgspec.Struct], ...]
    """Structs its fields are made of, in the order of the fields."""


@cache
def describe(struct: type[msgspec.Struct]) -> StructDoc:
    """Read a struct's source. Fields a base class declares are not documented here: events have none."""
    comments = _comments(struct)
    uses: dict[type[msgspec.Struct], None] = {}
    fields = tuple(
        FieldDoc(
            name=field.encode_name,
            type=_words(field.type, uses),
            default=_default(field),
            meaning=comments.get(field.name, ""),
        )
        for field in msgspec.structs.fields(struct)
    )
    return StructDoc(
        name=struct.__name__, meaning=inspect.cleandoc(struct.__doc__ or ""), fields=fields, uses=tuple(uses)
    )


def _comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Field name → the string that stands below it."""
    (declaration,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(declaration, ast.ClassDef)
    found: dict[str, str] = {}
    for line, below in zip(declaration.body, declaration.body[1:], strict=False):
        match line, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found


_SIMPLE: dict[object, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    object: "any value",
    types.NoneType: "none",
    msgspec.Raw: "object",
}


def _words(kind: object, uses: dict[type[msgspec.Struct], None]) -> str:
    """A type in words. Adds the structs in it to `uses`. Raises `KeyError` for a kind no event uses yet."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is typing.Annotated:  # a limit: the schema says it
        return _words(inner[0], uses)
    if origin is list:
        return f"list of {_words(inner[0], uses)}"
    if origin is dict:
        return "object"
    if inner:
        return " or ".join(_words(one, uses) for one in inner)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        uses[kind] = None
        return f"[{kind.__name__}]"
    return _SIMPLE[kind]


def _default(field: msgspec.structs.FieldInfo) -> str | None:
    if field.required:
        return None
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if isinstance(value, msgspec.Struct):
        return "its own defaults"
    return "none" if value is None else f"`{msgspec.json.encode(value).decode()}`"
