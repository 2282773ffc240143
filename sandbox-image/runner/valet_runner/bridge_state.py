"""What the bridge knows of the running turn: the messages OpenCode made and what has been said about them.

Replaced, never changed: a frame makes a new state that shares everything the frame did not touch.
"""

from typing import Literal

import msgspec
from valet_protocol.events.agent import AgentError, TextKind, Tokens, ToolUpdated
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Data


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A delta to publish; the event's type says which kind it is."""

    kind: TextKind
    delta: Delta


Item = Data | Chunk
"""Something to publish."""


class TextPart(msgspec.Struct, frozen=True, kw_only=True):
    """A text or reasoning part."""

    kind: TextKind
    text: str = ""
    """What was streamed so far, or all of it once `done`."""
    done: bool = False
    gap: bool = False
    """Whether some of it was missed: later chunks cannot be placed, the whole text will come at its end."""


class ToolPart(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call: what was last said about it."""

    said: ToolUpdated

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.said.status in ("completed", "error")


PartState = TextPart | ToolPart


class MessageState(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the agent."""

    session: str
    """OpenCode session: the root, or a sub-agent's."""
    model: str | None = None
    parts: dict[str, PartState] = {}
    """By part id, in the order they appeared."""
    cost: float = 0.0
    tokens: Tokens = Tokens()
    finish: str | None = None
    error: AgentError | None = None
    reported: bool = False
    """Whether `message_completed` was said."""


class BridgeState(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it."""

    root: str
    """The conversation's OpenCode session."""
    children: frozenset[str] = frozenset()
    """Sessions of its sub-agents."""
    floor: str | None = None
    """The running turn's user message: messages with a smaller id are of earlier turns. None between turns."""
    messages: dict[str, MessageState] = {}
    """Of the running turn, by id."""
    questions: dict[str, Literal["question", "permission"]] = {}
    """Asked and not yet resolved."""
    retrying: frozenset[str] = frozenset()
    """Sessions that wait to try their provider again."""
    error: AgentError | None = None
    """The last error of the root in this turn; not always the turn's end."""
    idle: bool = False
    """Whether the root said it is idle since it was last busy."""
    title: str = ""

    def knows(self, session: str | None) -> bool:
        """Whether a session is the conversation's own or one of its sub-agents'."""
        return session == self.root or session in self.children

    @property
    def cost(self) -> float:
        """US dollars of the turn."""
        return sum(message.cost for message in self.messages.values())

    @property
    def tokens(self) -> Tokens:
        """Tokens of the turn."""
        counts = [message.tokens for message in self.messages.values()]
        return Tokens(
            input=sum(count.input for count in counts),
            output=sum(count.output for count in counts),
            reasoning=sum(count.reasoning for count in counts),
            cache_read=sum(count.cache_read for count in counts),
            cache_write=sum(count.cache_write for count in counts),
        )

    @property
    def last(self) -> MessageState | None:
        """The root's newest message of the turn."""
        own = [key for key, message in self.messages.items() if message.session == self.root]
        return self.messages[max(own)] if own else None
