"""Commands between turns: back to a message and forward again, a new conversation, the list of slash commands.

A command that comes again (its acknowledgement was lost, or the runner died) gets the result it had: results are kept
in the home directory.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data
from valet_service import logs

from valet_runner import limits, message_ids, patches
from valet_runner.conversation import Conversations
from valet_runner.errors import CommandRefused, OpencodeFailed, OpencodeRefused, OpencodeUnavailable
from valet_runner.opencode_client import OpencodeClient
from valet_runner.preambles import PreambleFile

_FILE = Path(".valet") / "commands.json"
_log = logs.get(__name__)


class Process(Protocol):
    """Gives the OpenCode that runs."""

    async def client(self, timeout: float) -> OpencodeClient: ...


class _Done(msgspec.Struct, frozen=True, kw_only=True):
    completed: agent.CommandCompleted
    reverted: agent.ConversationReverted | None = None
    unreverted: agent.ConversationUnreverted | None = None

    @property
    def events(self) -> list[Data]:
        return [event for event in (self.reverted, self.unreverted, self.completed) if event is not None]


class Commands:
    """Carries commands out, one at a time. `now_ms` is milliseconds since 1970."""

    def __init__(
        self, process: Process, conversations: Conversations, *, home: Path, now_ms: Callable[[], int]
    ) -> None:
        self._process = process
        self._conversations = conversations
        self._preambles = PreambleFile(home)
        self._path = home / _FILE
        self._now_ms = now_ms

    async def carry_out(self, fact: facts.CommandRequested, *, busy: bool) -> list[Data]:
        """What is to be said about a command: what it did, and its result. `busy`: a turn runs.

        A command whose time is over changes nothing: whoever asked has been told so. Never raises.
        """
        known = self._known()
        for done in known:
            if done.completed.request_id == fact.request_id:
                return done.events
        try:
            if self._now_ms() >= fact.due_ms:
                raise CommandRefused("the command reached the sandbox too late; ask again")
            if busy:
                raise CommandRefused("a turn runs; ask again when it has ended")
            done = await self._do(fact)
        except (CommandRefused, OpencodeUnavailable, OpencodeFailed, OpencodeRefused) as error:
            done = _failed(fact, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked gets an answer
            _log.exception("command_failed", command=fact.command)
            done = _failed(fact, f"the runner failed: {str(error) or type(error).__name__}")
        self._keep([*known, done])
        return done.events

    async def _do(self, fact: facts.CommandRequested) -> _Done:
        left = (fact.due_ms - self._now_ms()) / 1000
        client = await self._process.client(min(limits.READY_TIMEOUT, left))
        match fact.command:
            case "list_commands":
                commands = [
                    {"name": command.name, "description": command.description[: limits.COMMAND_DESCRIPTION_CHARS]}
                    for command in await client.commands()
                ]
                return _Done(completed=_completed(fact, {"commands": commands}))
            case "new_conversation":
                self._conversations.forget(fact.channel)
                self._preambles.forget(fact.channel)
                return _Done(completed=_completed(fact, {}))
            case "unrevert":
                session = await self._session(client, fact.channel)
                await client.unrevert(session)
                return _Done(
                    completed=_completed(fact, {}), unreverted=agent.ConversationUnreverted(channel=fact.channel)
                )
            case "revert":
                return await self._revert(client, fact)

    async def _revert(self, client: OpencodeClient, fact: facts.CommandRequested) -> _Done:
        session = await self._session(client, fact.channel)
        target = await self._target(client, session, fact)
        reverted = await client.revert(session, target)
        if reverted.revert is None or reverted.revert.message_id != target:
            raise CommandRefused("OpenCode did not go back to the message; it may have been taken back before")
        files = patches.files_of(reverted.revert.diff)
        return _Done(
            completed=_completed(fact, {"files": msgspec.to_builtins(files)}),
            reverted=agent.ConversationReverted(message_id=fact.message_id or "", channel=fact.channel, files=files),
        )

    async def _target(self, client: OpencodeClient, session: str, fact: facts.CommandRequested) -> str:
        """OpenCode's id of the user message to go back to. An agent's message is taken back with the prompt it answers:
        OpenCode knows nothing in between (measured: the conversation would go back, and its files would not)."""
        messages = await client.messages(session)
        wanted = fact.message_id or ""
        for message in sorted(messages, key=lambda message: message.info.id):
            info = message.info
            if info.id == wanted:
                return info.id if info.role == "user" else info.parent_id or info.id
            if info.role != "user":
                continue
            keys = (wanted, fact.turn_id)
            if any(message_ids.belongs_to(info.id, key) for key in keys if key):
                return info.id
        raise CommandRefused(
            "the agent's conversation does not hold this message: it was taken back before, or is of a conversation"
            " that has been replaced"
        )

    async def _session(self, client: OpencodeClient, channel: str) -> str:
        session = await self._conversations.find(client, channel)
        if session is None:
            raise CommandRefused(f"there is no conversation on the channel {channel} yet")
        return session.id

    def _known(self) -> list[_Done]:
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(self._path.read_bytes(), type=list[_Done])
        return []

    def _keep(self, done: list[_Done]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(done[-limits.COMMAND_RESULTS :]))
        os.replace(new, self._path)


def _completed(fact: facts.CommandRequested, result: dict[str, object]) -> agent.CommandCompleted:
    return agent.CommandCompleted(request_id=fact.request_id, result=result)


def _failed(fact: facts.CommandRequested, why: str) -> _Done:
    return _Done(completed=agent.CommandCompleted(request_id=fact.request_id, error=why))
