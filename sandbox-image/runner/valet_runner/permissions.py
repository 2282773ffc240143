"""A session's policy as OpenCode's permission rules. Pure."""

from valet_protocol.events.facts import SessionPolicy

from valet_runner.frames import Rule


def rules(policy: SessionPolicy) -> list[Rule]:
    """The rules of a conversation, in an order in which the last one that matches counts. Asking questions stays
    allowed: it is how the agent reaches people at all."""
    base = Rule(permission="*", pattern="*", action="allow" if policy.permissions == "auto-approve" else "ask")
    own = [Rule(permission=r.permission, pattern=r.pattern, action=r.action) for r in policy.permission_rules]
    return [base, *own, Rule(permission="question", pattern="*", action="allow")]


def in_force(has: list[Rule] | None, wanted: list[Rule]) -> bool:
    """Whether a conversation's rules come to the wanted ones. OpenCode adds new rules behind the old ones (measured),
    so what counts is the end."""
    return (has or [])[-len(wanted) :] == wanted
