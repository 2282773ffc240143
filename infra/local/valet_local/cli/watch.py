"""Showing a session as it goes: events in, transcript or lines of JSON out."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from valet_protocol.codec import with_seq

from valet_local.cli.render import render, synced
from valet_local.cli.terminal import Terminal
from valet_local.cli.transcript import Transcript
from valet_local.client import limits
from valet_local.client.follow import Entry, Synced
from valet_local.client.http import Client


class View(Protocol):
    """How events are shown."""

    def show(self, item: Entry | Synced) -> None: ...


class TranscriptView:
    """For people."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._state = Transcript()

    def show(self, item: Entry | Synced) -> None:
        self._state, pieces = render(self._state, item) if isinstance(item, Entry) else synced(self._state)
        self._terminal.write(pieces)


class JsonView:
    """For programs: `{"seq":N, …envelope}`, one event per line."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def show(self, item: Entry | Synced) -> None:
        if isinstance(item, Entry):
            self._terminal.raw(with_seq(item.raw, item.seq))


def view(terminal: Terminal, *, as_json: bool) -> View:
    """The view that was asked for."""
    return JsonView(terminal) if as_json else TranscriptView(terminal)


class Follower:
    """Shows a session from a cursor on, and says when its connection is lost and found again."""

    def __init__(self, client: Client, terminal: Terminal, shown: View, *, after: int = 0) -> None:
        self._client = client
        self._terminal = terminal
        self._view = shown
        self._lost = False
        self.seq = after
        """Sequence of the last event shown."""

    async def follow(self, session_id: str) -> AsyncGenerator[Entry | Synced, None]:
        """The events, each once it is shown, and the `Synced` marker. Raises what `Client.follow` raises."""
        following = self._client.follow(
            session_id, after=self.seq, patience=limits.FOLLOW_PATIENCE, on_wait=self._waiting
        )
        async with aclosing(following) as items:
            async for item in items:
                if self._lost:
                    self._terminal.tell("Connected again; nothing was lost.")
                    self._lost = False
                self._view.show(item)
                if isinstance(item, Entry):
                    self.seq = item.seq
                yield item

    def _waiting(self, reason: str, seconds: float) -> None:
        if not self._lost:
            self._terminal.tell(f"No connection ({reason}); will resume after event {self.seq} …")
            self._lost = True
