"""Giving a running turn on: the agent is asked again, another model gets it, or another OpenCode. What is to follow is
`sequel`'s to decide; carried out here, on a turn that is not over."""

import asyncio
from typing import Protocol

import msgspec
from valet_protocol.events import agent
from valet_service import logs

from valet_runner import failover, limits, sequel, turn_state, turns
from valet_runner.bridge_state import BridgeState, Item
from valet_runner.errors import OpencodeFailed, OpencodeRefused, OpencodeUnavailable
from valet_runner.failover import Switch
from valet_runner.opencode_client import OpencodeClient
from valet_runner.opencode_process import OpencodeProcess
from valet_runner.prompt_parts import TextInput
from valet_runner.sequel import AskAgain, Renewal, Sequel
from valet_runner.turns import Tried, Turn

AWAY = (OpencodeUnavailable, OpencodeRefused, OpencodeFailed)
"""Errors of a call of OpenCode's."""

_log = logs.get(__name__)


class Running(Protocol):
    """The course of the turn that is given on."""

    state: BridgeState
    turn: Turn | None

    @property
    def current(self) -> Turn | None: ...
    def say(self, items: list[Item]) -> object: ...
    def new_message_id(self, key: str, *, attempt: int = 0) -> str: ...
    async def client(self) -> OpencodeClient: ...
    async def give(self, client: OpencodeClient, turn: Turn, *, as_prompt: bool) -> None: ...
    async def not_taken(self, turn_id: str, error: Exception) -> None: ...
    async def finish(self, turn: Turn, reason: str) -> None: ...


class Tries:
    """The tries of one turn after the first."""

    def __init__(self, running: Running, process: OpencodeProcess) -> None:
        self._running = running
        self._process = process

    async def go_on(self, turn: Turn, follows: Sequel) -> None:
        """Do what follows. It ends the turn if that cannot be done, or if its end is asked for meanwhile."""
        try:
            match follows:
                case AskAgain(text=text):
                    await self._ask_again(turn, text)
                case Switch():
                    await self._switch(turn, follows)
                case Renewal():
                    await self._renew(turn, follows)
        except AWAY as error:
            await self._running.not_taken(turn.turn_id, error)

    async def _ask_again(self, turn: Turn, text: str) -> None:
        _log.warning("review_not_read", turn=turn.turn_id)
        parts = [TextInput(text=text, synthetic=True)]
        turn = msgspec.structs.replace(turns.misread(self._running.state, turn), parts=list(parts))
        await self._try(await self._running.client(), turn, as_prompt=True)

    async def _switch(self, before: Turn, switch: Switch) -> None:
        await asyncio.sleep(limits.SWITCH_PAUSE)
        if (turn := await self._still(before)) is None:
            return
        self._running.say(
            [
                agent.ModelSwitched(
                    turn_id=turn.turn_id, from_model=switch.from_model, to_model=switch.to_model, error=switch.error
                )
            ]
        )
        tried = (*turn.tried, Tried(model=switch.from_model, error=switch.error))
        client = await self._running.client()
        if switch.start_over:
            await client.revert(self._running.state.root, self._running.state.since)
        if (turn := await self._still(before)) is None:
            return
        turn = msgspec.structs.replace(turn, tried=tried, giving_up=None, refused=None)
        if not switch.start_over:
            turn = _continuing(turn, failover.continuation(switch))
        await self._try(client, turn, as_prompt=turn.continuing)

    async def _renew(self, before: Turn, renewal: Renewal) -> None:
        _log.warning("opencode_is_replaced", turn=before.turn_id, reason=renewal.error.message)
        # without a user message it is nobody's of the OpenCode that is ended now
        turn = msgspec.structs.replace(before, renewed=True, refused=None, user_message="")
        self._running.turn = turn
        why = f"OpenCode broke off by itself ({renewal.error.message}); another one gets the prompt"
        self._running.say([agent.StatusChanged(status="retrying", attempt=2, message=why)])
        client = await self._another()
        if renewal.start_over:
            await client.revert(self._running.state.root, self._running.state.since)
        if (turn := await self._still(turn)) is None:
            return
        if not renewal.start_over:
            turn = _continuing(turn, sequel.CONTINUATION)
        await self._try(client, turn, as_prompt=turn.continuing)

    async def _another(self) -> OpencodeClient:
        """Replace OpenCode. Raises `OpencodeUnavailable` when the next one takes too long."""
        try:
            broken = await self._process.client(limits.PROBE_TIMEOUT)
        except OpencodeUnavailable:
            return await self._process.client(limits.RENEW_TIMEOUT)  # it is being replaced already
        self._process.kill()
        try:
            async with asyncio.timeout(limits.RENEW_TIMEOUT):
                while True:
                    client = await self._process.client(limits.RENEW_TIMEOUT)
                    if client is not broken:
                        return client
                    await asyncio.sleep(limits.PROBE_WAIT)
        except TimeoutError as error:
            raise OpencodeUnavailable(f"OpenCode was not replaced within {limits.RENEW_TIMEOUT:.0f} s") from error

    async def _try(self, client: OpencodeClient, turn: Turn, *, as_prompt: bool) -> None:
        message_id = self._running.new_message_id(turn.turn_id, attempt=turn.attempt)
        turn = msgspec.structs.replace(turn, user_message=message_id)
        self._running.turn = turn
        self._running.state = turn_state.next_try(self._running.state, message_id)
        await self._running.give(client, turn, as_prompt=as_prompt)

    async def _still(self, before: Turn) -> Turn | None:
        """The turn as it is now, if it goes on; one whose end was asked for is ended."""
        now = self._running.current
        if now is None or now.turn_id != before.turn_id:
            return None
        if now.interrupted:
            await self._running.finish(now, "the turn ended")
            return None
        return now


def _continuing(turn: Turn, text: str) -> Turn:
    """The turn with a prompt that has the agent go on where the try before stopped."""
    return msgspec.structs.replace(turn, continuing=True, parts=[TextInput(text=text, synthetic=True)])
