"""Reading a TOML file into structs, with the line and the reason of what is wrong.

ConfigError   the file cannot be used; says where (file, line) and why
"""

import re
import tomllib
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec

from valet_service.toml_lines import line_of

T = TypeVar("T")

_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")
_PATH = re.compile(r"\s*- at `\$([^`]*)`")


class ConfigError(Exception):
    """A `valet.toml` that cannot be used."""

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        where = f"{path}:{line}" if line else path
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.line = line
        """Counted from 1; None when the whole file is meant."""
        self.reason = reason


class Reader:
    """Turns msgspec's complaints into a line of the file."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    def document(self) -> dict[str, Any]:
        """The file's text as it is, for `convert`. Raises `ConfigError` when it is not TOML."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise _syntax_error(self.path, self.text, str(error)) from None

    def error(self, keys: tuple[str, ...], reason: str) -> ConfigError:
        return ConfigError(self.path, line_of(self.text, keys), reason)

    def table(self, value: object, keys: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(keys, f"{'.'.join(keys)} must be a table")
        return cast("dict[str, Any]", value)

    def convert(self, value: object, kind: type[T], keys: tuple[str, ...]) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise self._explain(str(error), kind, keys) from None

    def _explain(self, message: str, kind: type[Any], keys: tuple[str, ...]) -> ConfigError:
        unknown = _UNKNOWN_FIELD.search(message)
        inner = _PATH.search(message)
        inside = tuple(re.findall(r"\.(\w+)", inner.group(1))) if inner else ()
        if unknown:
            where = (*keys, *inside, unknown.group(1))
            known = ", ".join(sorted(_fields(kind, inside)))
            return self.error(where, f"unknown key {unknown.group(1)!r}; known here: {known}")
        where = (*keys, *inside)
        reason = _PATH.sub("", message).strip().rstrip("-").strip().replace("`", "")
        return self.error(where, f"{'.'.join(where)}: {reason[:1].lower()}{reason[1:]}")


def _fields(kind: type[Any], inside: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of the table that lies inside another one's."""
    for name in inside:
        hint = get_type_hints(kind).get(name)
        inner = next((one for one in (hint, *get_args(hint)) if hasattr(one, "__struct_fields__")), None)
        if inner is None:
            break
        kind = inner
    return tuple(kind.__struct_fields__)


def _syntax_error(path: str, text: str, message: str) -> ConfigError:
    found = re.search(r"\(at line (\d+), column \d+\)", message)
    # tomllib says "(at end of document)" when something was never closed.
    line = int(found.group(1)) if found else text.count("\n") + 1
    reason = re.sub(r"\s*\(at .*\)$", "", message)
    return ConfigError(path, line, f"not TOML: {reason[:1].lower()}{reason[1:]}")
