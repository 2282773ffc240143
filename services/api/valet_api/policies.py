"""A session's policy with some of it changed. Pure."""

import msgspec
from valet_protocol.events.facts import PermissionRule, SessionPolicy

from valet_api.routes.bodies import PolicyFields, text


def changed(policy: SessionPolicy, change: PolicyFields | None) -> SessionPolicy:
    """`policy` with the fields that `change` names. Raises `Unprocessable` for text that cannot be stored."""
    if change is None:
        return policy
    given = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not None}
    if change.permission_rules is not None:
        given["permission_rules"] = [
            PermissionRule(
                permission=text(rule.permission, "permission_rules"),
                pattern=text(rule.pattern, "permission_rules"),
                action=rule.action,
            )
            for rule in change.permission_rules
        ]
    return msgspec.structs.replace(policy, **given)
