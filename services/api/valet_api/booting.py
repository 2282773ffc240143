"""What a session whose sandbox is on its way is waiting for, in words. Pure."""

import msgspec
from valet_protocol.requests import SessionView


def told(view: SessionView) -> SessionView:
    """The view; while its sandbox boots `status_detail` says what is going on."""
    if view.status_detail or view.status not in ("provisioning", "booting"):
        return view
    return msgspec.structs.replace(view, status_detail=_words(view))


def _words(view: SessionView) -> str:
    if view.status == "provisioning":
        return "Its sandbox is being made."
    boot = {step.step: step for step in view.sandbox.boot} if view.sandbox is not None else {}
    agent = boot.get("opencode")
    if agent is not None and agent.outcome == "failed":
        return f"Its agent is slow to start: {agent.detail}"
    if agent is not None or "environment" not in boot:  # what is known is of the boot before
        return "Its sandbox is starting."
    if "clone" not in boot:
        return "Its repository is being cloned." if view.repo else "Its workspace is being made ready."
    return "Its agent is starting; the first start on a slow machine takes a minute or more."
