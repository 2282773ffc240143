"""What the agent is to be told ahead of a channel's next prompt because it does not remember it: text of a conversation
that could not be put back, and what is missing in the workspace.

The texts lie in the home until their conversation is given up, and in every piece of saved work. Whether one is due is
seen in the conversation itself and in nothing else, so a death at any moment neither loses one nor doubles it.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from valet_runner import frames

_FILE = Path(".valet") / "preambles.json"

Preambles = dict[str, list[str]]
"""Texts by channel."""


class Messages(Protocol):
    """What is asked of OpenCode."""

    async def messages(self, session: str) -> list[frames.Message]: ...


class PreambleFile:
    """The texts of a home."""

    def __init__(self, home: Path) -> None:
        self._path = home / _FILE

    def known(self) -> Preambles:
        """All of them, whether they were given or not."""
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(self._path.read_bytes(), type=Preambles)
        return {}

    def replace(self, preambles: Mapping[str, list[str]]) -> None:
        """These are all from now on."""
        if not preambles and not self._path.exists():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(preambles))
        os.replace(new, self._path)

    def forget(self, channel: str) -> None:
        """The channel's conversation was given up, and what belonged to it."""
        known = self.known()
        if known.pop(channel, None) is not None:
            self.replace(known)

    async def untold(self, client: Messages, session: frames.Session, channel: str) -> list[str]:
        """A channel's that its conversation does not hold. Raises what the client raises."""
        texts = self.known().get(channel, [])
        return due(texts, session, await client.messages(session.id)) if texts else []


def due(texts: Iterable[str], session: frames.Session, messages: Iterable[frames.Message]) -> list[str]:
    """Those of the texts that a conversation does not hold. Messages that were taken back go with the next prompt, so
    they do not count. Pure."""
    until = None if session.revert is None else session.revert.message_id
    held = {
        part.text
        for message in messages
        if message.info.role == "user" and (until is None or message.info.id < until)
        for part in message.parts
        if part.type == "text"
    }
    return [text for text in dict.fromkeys(texts) if text not in held]
