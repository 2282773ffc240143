"""Which OpenCode session is the conversation of which channel: remembered in the home directory, so that a new sandbox
continues them.

`web:default` has a file of its own, `.valet/opencode-session`; the others are in `.valet/conversations.json`.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from valet_runner import frames, reconcile
from valet_runner.opencode_client import OpencodeClient

DEFAULT = "web:default"
"""The channel of a session that names none."""

_FILE = Path(".valet") / "opencode-session"
_OTHERS = Path(".valet") / "conversations.json"


class Conversations:
    """The conversations of a home. Everything raises what the client raises."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._newest: dict[str, str] = {}

    def known(self) -> dict[str, str]:
        """OpenCode's session by channel, of those that were begun."""
        known: dict[str, str] = {}
        with contextlib.suppress(FileNotFoundError):
            if first := (self._home / _FILE).read_text().strip():
                known[DEFAULT] = first
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            known |= msgspec.json.decode((self._home / _OTHERS).read_bytes(), type=dict[str, str])
        return known

    async def find(self, client: OpencodeClient, channel: str) -> frames.Session | None:
        """A channel's conversation, if it has one."""
        session = self.known().get(channel)
        return await client.session(session) if session else None

    async def resume(self, client: OpencodeClient, channel: str) -> frames.Session:
        """A channel's conversation; a new one if it has none."""
        session = await self.find(client, channel)
        if session is None:
            session = await client.create_session()
            self.remember({channel: session.id})
        return session

    def names_session(self, channel: str) -> bool:
        """Whether the title OpenCode gives this conversation is the whole session's: only that of the first is."""
        return set(self.known()) <= {channel}

    def remember(self, sessions: Mapping[str, str]) -> None:
        """These are the conversations of these channels from now on."""
        known = self.known() | dict(sessions)
        if DEFAULT in known:
            _replace(self._home / _FILE, known[DEFAULT].encode())
        self._write_others(known)

    def forget(self, channel: str) -> None:
        """The channel's next turn begins a new conversation."""
        known = self.known()
        known.pop(channel, None)
        if channel == DEFAULT:
            (self._home / _FILE).unlink(missing_ok=True)
        self._write_others(known)

    async def newest(self, client: OpencodeClient, session: str) -> str | None:
        """A conversation's greatest message id so far."""
        if session not in self._newest:
            found = reconcile.newest_message(await client.messages(session))
            if found is None:
                return None
            self.saw(session, found)
        return self._newest[session]

    def seen(self, session: str) -> str | None:
        """The same, as far as it is known without asking."""
        return self._newest.get(session)

    def saw(self, session: str, message_id: str) -> None:
        """A conversation has a message with this id."""
        self._newest[session] = max(self._newest.get(session, ""), message_id)

    def _write_others(self, known: Mapping[str, str]) -> None:
        others = {channel: session for channel, session in known.items() if channel != DEFAULT}
        if others or (self._home / _OTHERS).exists():
            _replace(self._home / _OTHERS, msgspec.json.encode(others))


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)
