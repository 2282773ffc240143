"""What a session's policy says of a permission: allow, deny, or ask people. Pure.

The agent is given the same rules, so wildcards mean here what they mean to it: `*` is anything, `?` one character, and
a pattern that ends in a space and `*` also stands for what is before them alone (`git push *`: `git push` too).
"""

import re
from typing import Literal

from valet_protocol.events.facts import SessionPolicy

from valet_session_ledger.state import OpenQuestion

Verdict = Literal["allow", "ask", "deny"]
_STRICTEST_FIRST: tuple[Verdict, ...] = ("deny", "ask", "allow")


def verdict_on(policy: SessionPolicy, permission: OpenQuestion) -> Verdict:
    """The strictest verdict on any of its patterns counts: a shell command comes as its parts, and one that is refused
    must not pass because another one is not."""
    verdicts = {_on(policy, permission.permission, pattern) for pattern in permission.patterns or ("",)}
    return next(verdict for verdict in _STRICTEST_FIRST if verdict in verdicts)


def _on(policy: SessionPolicy, permission: str, pattern: str) -> Verdict:
    for rule in reversed(policy.permission_rules):
        if matches(rule.permission, permission) and matches(rule.pattern, pattern):
            return rule.action
    return "allow" if policy.permissions == "auto-approve" else "ask"


def matches(wildcards: str, text: str) -> bool:
    """Whether wildcards stand for a text."""
    if wildcards.endswith(" *") and _glob(wildcards[:-2], text):
        return True
    return _glob(wildcards, text)


def _glob(wildcards: str, text: str) -> bool:
    """Piece by piece, each where it comes first: one expression for all of it could take for ever on a text that an
    agent made up for that."""
    first, *others = wildcards.split("*")
    begin = _piece(first).match(text)
    if begin is None or not others:
        return begin is not None and begin.end() == len(text)
    at = begin.end()
    for piece in others[:-1]:
        found = _piece(piece).search(text, at)
        if found is None:
            return False
        at = found.end()
    last = others[-1]
    start = len(text) - len(last)
    return start >= at and _piece(last).match(text, start) is not None


def _piece(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\?", "."), re.DOTALL)
