"""The runner's ears: its session's facts, each acted on and then acknowledged.

What is not acknowledged comes again, to this runner or the next, so acting on a fact twice must change nothing; the
bridge sees to that. Facts that do not concern a runner are acknowledged at once.
"""

import asyncio
from collections.abc import Callable

from valet_protocol import codec
from valet_protocol.events import facts
from valet_service import logs
from valet_service.durable_reader import Delivery

from valet_runner.bridge import Bridge
from valet_runner.errors import OpencodeFailed, OpencodeUnavailable

_BUSY_WAIT = 0.5
"""Seconds until a turn comes again that was dispatched while another one runs (the ledger gave that one up)."""

_log = logs.get(__name__)


class FactHandler:
    """Acts on one delivery after the other. `replaced` is set when the session belongs to a newer epoch.

    `attached_seq` is the sequence from which on this runner holds the session, `writers_changed` is called when
    somebody else may write to it.
    """

    def __init__(
        self, bridge: Bridge, *, epoch: int, attached_seq: int, writers_changed: Callable[[], None] = lambda: None
    ) -> None:
        self._bridge = bridge
        self._writers_changed = writers_changed
        self._epoch = epoch
        self._attached_seq = attached_seq
        self.replaced = asyncio.Event()

    async def handle(self, delivery: Delivery) -> None:
        """Act on a fact and acknowledge it, or ask for it again."""
        event = codec.decode(delivery.payload, delivery.seq)
        match event.data:
            case facts.TurnDispatched() as dispatched:
                # one from before this runner may have been acted on by the one before it
                again = delivery.attempt > 1 or delivery.seq <= self._attached_seq
                if not await self._bridge.dispatch(dispatched, again=again):
                    await delivery.again(_BUSY_WAIT)
                    return
            case facts.TurnInterruptRequested(turn_id=turn_id):
                await self._bridge.interrupt(turn_id)
            case facts.PromptSteered() as steered:
                await self._bridge.steer(steered)
            case facts.CommandRequested() as command:
                await self._bridge.command(command)
            case facts.PolicyChanged(policy=policy) if delivery.seq > self._attached_seq:
                await self._bridge.change_policy(policy)
            case facts.QuestionAnswered() as answered:
                try:
                    await self._bridge.answer(answered)
                except (OpencodeUnavailable, OpencodeFailed) as error:
                    _log.info("answer_waits", error=str(error))
                    await delivery.again(_BUSY_WAIT)
                    return
            case facts.SessionTerminated() | facts.SessionFailed():
                self._writers_changed()
                await self._bridge.stop_turn()
            case facts.ParticipantAdded() | facts.ParticipantRemoved() | facts.ShareLinkRevoked():
                self._writers_changed()
            case facts.RunnerAttached(epoch=epoch) if epoch > self._epoch:
                # left unacknowledged: nothing here is this runner's business any more
                self.replaced.set()
                return
            case _:
                pass
        await delivery.acknowledge()
