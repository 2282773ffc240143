"""What the bridge knows of the running turn: the messages OpenCode made and what has been said about them.

Replaced, never changed: a frame makes a new state that shares everything the frame did not touch.
"""

from typing import Literal

import msgspec
from valet_protocol.events.agent import AgentError, TextKind, Tokens, ToolUpdated
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Data

from valet_runner import frames


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A delta to publish; the event's type says which kind it is."""

    kind: TextKind
    delta: Delta


Item = Data | Chunk
"""Something to publish."""

Result = tuple["BridgeState", list[Item]]
"""What a frame comes to: the new state, and what is to be published, in order."""


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
    parent: str | None = None
    """The user message it answers."""

    def with_part(self, key: str, part: "PartState") -> "MessageState":
        """The same with a part replaced or added."""
        return msgspec.structs.replace(self, parts={**self.parts, key: part})

    @property
    def text(self) -> str:
        """All its text, a blank line between two parts; without reasoning."""
        return "\n\n".join(
            part.text
            for part in self.parts.values()
            if isinstance(part, TextPart) and part.kind == "text" and part.text
        )

    @property
    def spoke(self) -> bool:
        """Whether it has said or done something: text, or a tool call. Mere thinking leaves nothing to continue."""
        return any(isinstance(part, ToolPart) or (part.kind == "text" and part.text) for part in self.parts.values())


class BridgeState(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it."""

    root: str
    """The conversation's OpenCode session."""
    children: frozenset[str] = frozenset()
    """Sessions of its sub-agents."""
    floor: str | None = None
    """The running turn's user message: messages with a smaller id are of earlier turns. None between turns."""
    since: str = ""
    """The user message of the present try. Earlier messages of the turn are of models that failed."""
    asked: str = ""
    """The latest user message handed to OpenCode in this turn: its answer ends the turn."""
    messages: dict[str, MessageState] = {}
    """Of the running turn, by id."""
    questions: dict[str, Literal["question", "permission"]] = {}
    """Asked and not yet resolved."""
    retrying: frozenset[str] = frozenset()
    """Sessions that wait to try their provider again."""
    retry: frames.Status | None = None
    """The last such wait of the present try."""
    retries: int = 0
    """How often a provider was to be tried again in the present try."""
    error: AgentError | None = None
    """The last error of the root in this turn; not always the turn's end."""
    idle: bool = False
    """Whether the root said it is idle since it was last busy."""
    title: str = ""
    names_session: bool = True
    """Whether the conversation's title is the session's: only its first conversation's is."""

    def with_message(self, key: str, message: MessageState) -> "BridgeState":
        """The same with a message replaced or added."""
        return msgspec.structs.replace(self, messages={**self.messages, key: message})

    def of_turn(self, message_id: str) -> bool:
        """Whether a message is of the running turn."""
        return self.floor is not None and message_id > self.floor

    def parent(self, session: str) -> str | None:
        """How events name the session of a message: not at all where it is the root."""
        return None if session == self.root else session

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
    def own(self) -> dict[str, MessageState]:
        """The root's messages of the present try."""
        return {key: m for key, m in self.messages.items() if m.session == self.root and key > self.since}

    @property
    def last(self) -> MessageState | None:
        """The newest of them."""
        own = self.own
        return own[max(own)] if own else None

    @property
    def answered(self) -> bool:
        """Whether the latest user message is answered, be it with something unfinished."""
        return any((message.parent or key) >= self.asked for key, message in self.own.items())
