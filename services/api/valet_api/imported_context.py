"""What was said in an imported session, for its agent, which was not there. Pure.

A session that comes with its saved work brings the agent's own memory; of any other this text is all that the agent
will know.
"""

import gzip
import io
import tarfile
from collections import deque

import msgspec
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data

from valet_api import limits


class _Said(msgspec.Struct):
    key: str
    """Id of the prompt or the message."""
    text: str


class Conversations:
    """Listens to a session's events in order. Only the latest part of each channel's conversation is kept."""

    def __init__(self) -> None:
        self._said: dict[str, deque[_Said]] = {}
        self._channel = ""
        """Of the present turn."""
        self._tools: dict[str, list[str]] = {}
        """Tools that a message of it has used."""
        self._steering: facts.PromptSteered | None = None
        """The last prompt that was to go into it."""
        self._taken_back: dict[str, str] = {}
        """By channel the message to which it was taken back since its last turn."""

    def hear(self, data: Data) -> None:
        """The next event."""
        match data:
            case facts.TurnDispatched():
                self._channel, self._tools = data.channel, {}
                self._drop(data.channel)
                for number, prompt in enumerate(data.prompt_ids or [data.prompt_id]):
                    self._say(prompt, f"Person: {_cut(data.content)}" if number == 0 else "")
            case facts.PromptSteered():
                self._steering = data
            case agent.PromptTaken(outcome="delivered") if (
                self._steering and self._steering.prompt_id == data.prompt_id
            ):
                self._say(data.prompt_id, f"Person: {_cut(self._steering.content)}")
            case agent.ToolUpdated(status="completed" | "error"):
                self._tools.setdefault(data.message_id, []).append(data.tool)
            case agent.MessageCompleted(parent_session=None):
                used = ", ".join(self._tools.pop(data.message_id, []))
                told = "\n".join(filter(None, [_cut(data.text), f"(used {used})" if used else ""]))
                self._say(data.message_id, f"You: {told}" if told else "")
            case agent.ConversationReverted():
                self._taken_back[data.channel] = data.message_id
            case agent.ConversationUnreverted():
                self._taken_back.pop(data.channel, None)
            case _:
                pass

    def texts(self) -> dict[str, str]:
        """By channel what was said, the newest last."""
        for channel in list(self._taken_back):
            self._drop(channel)
        texts = {channel: "\n\n".join(one.text for one in said if one.text) for channel, said in self._said.items()}
        return {channel: text for channel, text in texts.items() if text}

    def _say(self, key: str, text: str) -> None:
        if self._channel not in self._said and len(self._said) >= limits.CONTEXT_CHANNELS:
            return
        said = self._said.setdefault(self._channel, deque())
        said.append(_Said(key, text))
        while len(said) > limits.CONTEXT_MESSAGES or sum(len(one.text) for one in said) > limits.CONTEXT_CHARS:
            said.popleft()

    def _drop(self, channel: str) -> None:
        """Leave out what was taken back."""
        key, said = self._taken_back.pop(channel, None), self._said.get(channel, deque())
        if key is not None and any(one.key == key for one in said):
            while said.pop().key != key:
                pass


def _cut(text: str) -> str:
    return text if len(text) <= limits.CONTEXT_MESSAGE_CHARS else text[: limits.CONTEXT_MESSAGE_CHARS] + " …"


class _Manifest(msgspec.Struct, kw_only=True):
    version: int = 1
    session: str
    turn: str = ""
    said: dict[str, str]


def as_work(source_session: str, texts: dict[str, str]) -> bytes:
    """Saved work that has nothing but these texts, in the runner's form (`valet_runner.work_bundle`). The same texts
    give the same bytes."""
    content = msgspec.json.encode(_Manifest(session=source_session, said=texts))
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        info = tarfile.TarInfo("manifest.json")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()
