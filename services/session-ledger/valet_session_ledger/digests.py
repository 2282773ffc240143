"""Digests of requests: they tell a repetition from another request under the same id. Pure."""

import hashlib

import msgspec
from valet_protocol.events.facts import ChildRequested, CommandName, PromptAccepted, SessionPolicy


def prompt_digest(prompt: PromptAccepted) -> str:
    """Equal for equal prompts: tells a repetition from another prompt under the same key."""
    parts = [prompt.mode, prompt.model, prompt.channel, prompt.content]
    further = (prompt.kind, prompt.fallbacks, prompt.variant, [item.attachment_id for item in prompt.attachments])
    if further != ("prompt", [], None, []):  # digests of before there was any of these stay what they were
        parts.append(msgspec.json.encode(further).decode())
    return _digest(parts)


def command_digest(command: CommandName, message_id: str | None, channel: str) -> str:
    """Equal for equal commands. The channel of a revert is that of its message, whatever was asked."""
    return _digest([command, message_id or "", "" if command == "revert" else channel])


def session_digest(repo: str | None, branch: str | None, model: str, title: str, policy: SessionPolicy) -> str:
    """Equal for equal requests of a session."""
    return _digest([repo or "", branch or "", model, title, msgspec.json.encode(policy).decode()])


def child_digest(child: ChildRequested) -> str:
    """Equal for equal requests of a child."""
    flags = msgspec.json.encode((child.policy, child.orchestrator, child.notify)).decode()
    return _digest([child.prompt, child.title, child.repo or "", child.branch or "", child.model, flags])


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]
