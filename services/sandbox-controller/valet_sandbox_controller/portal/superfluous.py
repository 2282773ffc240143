"""Which saved work is worth asking about, and which of it is to go. Pure."""

import re
from collections.abc import Iterable, Mapping

from valet_protocol.ids import is_ulid

from valet_sandbox_controller import limits

_SAVED = re.compile(r"sessions/([^/]+)/saved/[^/]+")

Saved = dict[str, frozenset[str]]
"""Session → the names of its saved work."""


def saved_work(names: Iterable[str]) -> Saved:
    """The saved work among the names of objects, by session."""
    found: dict[str, set[str]] = {}
    for name in names:
        match = _SAVED.fullmatch(name)
        if match and is_ulid(match[1]):
            found.setdefault(match[1], set()).add(name)
    return {session: frozenset(its) for session, its in found.items()}


def to_ask(saved: Saved, left: Mapping[str, frozenset[str]]) -> list[str]:
    """The sessions to ask about, those with most saved work first.

    `left` is what there was when all of it was needed: without a new piece nothing can have become superfluous.
    """
    worth = [s for s, its in saved.items() if len(its) > limits.SWEEP_LEAST and not its <= left.get(s, frozenset())]
    return sorted(worth, key=lambda session: -len(saved[session]))


def to_delete(session_id: str, named: Iterable[str], there: frozenset[str]) -> list[str]:
    """Of what the ledger names, what is there. Nothing but this session's saved work, whatever the answer says."""
    return [name for name in named if name in there and name.startswith(f"sessions/{session_id}/saved/")]
