"""OpenCode's documents without the keys of providers, which it shows in clear to whoever may ask it. Pure."""

import re
from typing import Any

import msgspec
from valet_protocol.errors import Forbidden

_HOLDING = re.compile(r"/(api/)?(global/)?(config|provider|credential|integration|mcp|auth)(/.*)?")
_KEY = re.compile(r"(?i).*(api[-_]?key|secret|password|authorization|credential).*|key|token|access|refresh")


def holds_keys(path: str) -> bool:
    """Whether what OpenCode answers at a path may hold keys: it is then not streamed but looked through."""
    return _HOLDING.fullmatch(path) is not None


def check(path: str) -> None:
    """Raises `Forbidden` for paths by which keys are set."""
    if path == "/auth" or path.startswith("/auth/"):
        raise Forbidden(
            "provider_keys", "Keys of providers are kept outside the sandbox; set them in Valet's settings."
        )


def without_keys(document: bytes) -> bytes:
    """A JSON document with every value that may be a key left empty. Raises `ValueError` if it is no JSON."""
    return msgspec.json.encode(_cleaned(msgspec.json.decode(document)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: "" if isinstance(inner, str) and _KEY.fullmatch(name) else _cleaned(inner)
            for name, inner in value.items()
        }
    return [_cleaned(inner) for inner in value] if isinstance(value, list) else value
