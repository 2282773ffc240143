"""Templates in the texts of a scenario: `{{prompt}}`, `{{prompts}}`, `{{result}}`, `{{workdir}}`, `{{model}}`,
`{{group:1}}` and `{{group:name}}`.

What a template stands for is not searched for templates again, so a prompt cannot smuggle one in.
"""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from valet_local.model.request import ChatRequest

_TEMPLATE = re.compile(r"\{\{(\w+)(?::(\w+))?\}\}")
_NAMES = ("prompt", "prompts", "result", "workdir", "model")


class Values:
    """What the templates stand for in the answer to one request; `match` is where the turn's `when` was found."""

    def __init__(self, request: ChatRequest, match: re.Match[str] | None = None) -> None:
        self._request = request
        self._match = match

    def fill(self, text: str) -> str:
        """The text with its templates replaced; a group that took no part in the match is empty."""
        return _TEMPLATE.sub(self._value, text)

    def fill_all(self, value: object) -> object:
        """The same for every string in a value of TOML, keys left as they are."""
        match value:
            case str():
                return self.fill(value)
            case dict():
                table = cast(Mapping[str, object], value)
                return {key: self.fill_all(inner) for key, inner in table.items()}
            case list():
                return [self.fill_all(inner) for inner in cast(list[object], value)]
            case _:
                return value

    def _value(self, found: re.Match[str]) -> str:
        name, argument = found.groups()
        if name == "group":
            group = int(argument) if argument.isdigit() else argument
            return (self._match[group] if self._match else None) or ""
        request = self._request
        values = {
            "prompt": request.prompt,
            "prompts": str(request.prompts),
            "result": request.result,
            "workdir": request.workdir,
            "model": request.model,
        }
        return values[name]


def check_regex(pattern: str | None) -> None:
    """Raises ValueError with the reason if this is not a regular expression."""
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


def check_templates(value: object, when: re.Pattern[str] | None) -> None:
    """Raises ValueError if a string in the value has a template that does not exist, or a group that `when` lacks."""
    groups = {str(n) for n in range(when.groups + 1)} | set(when.groupindex) if when else set[str]()
    for text in _strings(value):
        for found in _TEMPLATE.finditer(text):
            name, argument = found.groups()
            if name == "group" and argument not in groups:
                raise ValueError(f"{found[0]}: `when` has no such group")
            if name != "group" and (name not in _NAMES or argument is not None):
                raise ValueError(f"{found[0]}: no such template; there are {', '.join(_NAMES)} and group:N")


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in cast(Mapping[str, object], value).values():
                yield from _strings(inner)
        case list() | tuple():
            for inner in cast(list[object], value):
                yield from _strings(inner)
        case _:
            return
