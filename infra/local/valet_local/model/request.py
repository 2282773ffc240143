"""What a client asks for: the part of OpenAI's chat-completions request that decides the answer."""

import hashlib
import re

import msgspec

from valet_local.model.errors import RequestRefused

# OpenCode wraps a message that came while it was working, so that the model notices it.
_LATE_MESSAGE = re.compile(
    r"<system-reminder>\nThe user sent the following message:\n(.*?)\n\n"
    r"Please address this message[^<]*</system-reminder>",
    re.DOTALL,
)
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
_WORKDIR = re.compile(r"^\s*Working directory: (\S.*)$", re.MULTILINE)
_OUR_CALL = re.compile(r"^call_[0-9a-f]{8}_(\d+)_\d+$")
_DEFAULT_WORKDIR = "/workspace"


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message's content; other kinds than text have no `text`."""

    type: str
    text: str = ""


class CallRef(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call the model made earlier."""

    id: str


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the conversation."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None
    tool_calls: tuple[CallRef, ...] | None = None

    @property
    def text(self) -> str:
        """The text of all its parts, a line break between two."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or () if part.text)


class ToolFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The function of an offered tool."""

    name: str


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool the model may call."""

    function: ToolFunction


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a streamed answer."""

    include_usage: bool = False


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A chat-completions request; keys that do not decide the answer are ignored."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...] = ()
    stream: bool = False
    stream_options: StreamOptions | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def system(self) -> str:
        """The system prompt."""
        return "\n".join(message.text for message in self.messages if message.role in ("system", "developer"))

    @property
    def wants_title(self) -> bool:
        """Whether this is the agent asking for a session title: no tools, and a system prompt about titles."""
        return not self.tools and "title" in self.system.lower()

    @property
    def workdir(self) -> str:
        """The agent's working directory, from its system prompt; `/workspace` if that does not say."""
        found = _WORKDIR.search(self.system)
        return found[1].strip() if found else _DEFAULT_WORKDIR

    @property
    def prompt(self) -> str:
        """What the person asked last, without what the agent added to it; empty if nobody asked anything."""
        position = self._prompt_position()
        return prompt_text(self.messages[position]) if position is not None else ""

    @property
    def prompts(self) -> int:
        """How many prompts the conversation holds."""
        return sum(message.role == "user" and bool(prompt_text(message)) for message in self.messages)

    @property
    def since_prompt(self) -> tuple[Message, ...]:
        """The messages after the last prompt: what the turn has done until now."""
        position = self._prompt_position()
        return self.messages[position + 1 :] if position is not None else ()

    @property
    def result(self) -> str:
        """The output of the last tool of this turn; empty if none ran."""
        outputs = [message.text for message in self.since_prompt if message.role == "tool"]
        return outputs[-1] if outputs else ""

    @property
    def steps_done(self) -> int:
        """How many steps of the turn have been played.

        The ids of our own tool calls say it. Only without any the assistant messages are counted, because a
        client that retried after a cut stream may send the remains of the failed try as a message of its own.
        """
        answers = [message for message in self.since_prompt if message.role == "assistant"]
        calls = [_OUR_CALL.match(call.id) for message in answers for call in message.tool_calls or ()]
        steps = [int(call[1]) for call in calls if call]
        return max(steps) + 1 if steps else len(answers)

    def digest(self, session: str = "") -> str:
        """Hex digits that are the same for a retry, and differ for any other request of any session."""
        conversation = [message for message in self.messages if message.role not in ("system", "developer")]
        return hashlib.sha256(session.encode() + b"\0" + msgspec.json.encode(conversation)).hexdigest()

    def _prompt_position(self) -> int | None:
        # A user message with no text of the user's own carries an image or a reminder and starts no turn.
        for position in range(len(self.messages) - 1, -1, -1):
            message = self.messages[position]
            if message.role == "user" and prompt_text(message):
                return position
        return None


def prompt_text(message: Message) -> str:
    """The person's own words in a user message: reminders that the agent added are left out."""
    return _REMINDER.sub("", _LATE_MESSAGE.sub(r"\1", message.text)).strip()


def decode(body: bytes) -> ChatRequest:
    """Read a request body. Raises RequestRefused with what is wrong with it."""
    try:
        request = msgspec.json.decode(body, type=ChatRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestRefused(400, f"not a chat-completions request: {error}") from None
    if not request.messages:
        raise RequestRefused(400, "not a chat-completions request: `messages` is empty")
    return request
