"""Where a fork begins: up to which event of its source, and with which saved work. Pure.

A fork begins between two turns, because that is where the conversation and the saved files belong together.
"""

import msgspec
from valet_protocol.errors import Conflict, NotFound
from valet_protocol.events import agent, facts, machine
from valet_protocol.events.agent import WorkRef

from valet_session_ledger import limits
from valet_session_ledger.transfer_events import Selection, Told, believed_work, prompts_with_a_turn

READ = (
    "fact.session_imported",
    "fact.event_imported",
    "fact.import_completed",
    "fact.runner_attached",
    "fact.turn_dispatched",
    "fact.turn_interrupted",
    "agent.turn_ended",
    "agent.message_created",
    "agent.prompt_taken",
    "agent.work_saved",
    "agent.conversation_reverted",
    "agent.conversation_unreverted",
    "agent.image_shown",
    "agent.channel_replied",
)
"""The types that matter here."""


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork takes over."""

    at: int
    """Sequence of the source's last event in it."""
    work: WorkRef | None
    """The files and the agent's conversation as they were; none where none were saved by then."""


class _Turn(msgspec.Struct, kw_only=True):
    before: int
    """Sequence right before it was dispatched."""
    end: int = 0
    """Sequence of its end; 0 while it runs."""


class Planner:
    """Goes through the source's events in order and finds the point. Events of other types may be left out."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._selection = Selection()
        self._first = 0
        self._turns: dict[str, _Turn] = {}
        self._people: dict[str, str] = {}
        """The turn of each person's message."""
        self._agents: dict[str, str] = {}
        """The turn of each of the agent's messages."""
        self._beside: dict[str, int] = {}
        """Where pictures and channel replies stand that are messages of their own."""
        self._reverted: dict[str, str] = {}
        """The message each conversation was taken back to since a turn last ended: saved work knows nothing of it."""
        self._works: list[tuple[int, WorkRef]] = []
        self._start_work: WorkRef | None = None
        self._started = 0
        """Where what the session started from was there."""

    def show(self, event: Told) -> None:
        """The next event."""
        self._first = self._first or event.seq
        data = event.data
        counted = self._selection.takes(event)
        match data:
            case facts.SessionImported():
                self._start_work = data.work
            case facts.ImportCompleted() if self._start_work is not None:
                self._works.append((event.seq, self._start_work))
                self._started = event.seq
            case facts.TurnDispatched():
                self._turns[data.turn_id] = _Turn(before=event.seq - 1)
                self._people |= dict.fromkeys(prompts_with_a_turn(event), data.turn_id)
            case facts.TurnInterrupted():
                self._end(data.turn_id, event.seq)
            case _ if counted:
                self._said(event)
            case _:
                pass

    def _said(self, event: Told) -> None:
        """Something a runner said while it held the session."""
        match event.data:
            case agent.TurnEnded(turn_id=turn_id):
                self._end(turn_id, event.seq)
            case agent.PromptTaken(turn_id=turn_id):
                self._people |= dict.fromkeys(prompts_with_a_turn(event), turn_id)
            case agent.MessageCreated(message_id=message_id) if event.turn:
                self._agents.setdefault(message_id, event.turn)
            case machine.ImageShown(turn_id=None, image_id=message_id):
                self._beside.setdefault(message_id, event.seq)
            case machine.ChannelReplied(turn_id=None, reply_id=message_id):
                self._beside.setdefault(message_id, event.seq)
            case agent.WorkSaved():
                work = believed_work(event, self._session_id)
                if work is not None:
                    self._works.append((event.seq, work))
            case agent.ConversationReverted(message_id=message_id, channel=channel):
                self._reverted[channel] = message_id
            case agent.ConversationUnreverted(channel=channel):
                self._reverted.pop(channel, None)
            case _:
                pass

    def _end(self, turn_id: str, seq: int) -> None:
        turn = self._turns.get(turn_id)
        if turn is not None and not turn.end:
            turn.end = seq
            self._reverted.clear()

    def point(self, message_id: str | None, work: WorkRef | None = None) -> ForkPoint:
        """Where a fork at a message begins; at none: after the last ended turn, or before what was taken back since.

        `work` is what an earlier plan said: a turn that has ended since then does not move a fork at no message.
        Raises `NotFound` for a message that is not there, `Conflict` for one of a running turn.
        """
        if message_id is not None:
            return self._at_message(message_id)
        if work is not None:
            saved = next((seq for seq, one in self._works if one.sha256 == work.sha256), None)
            ends = sorted(turn.end for turn in self._turns.values() if turn.end)
            planned = next((end for end in ends if saved is not None and end > saved), None)
            if planned is not None and not self._reverted:
                return self._with_work(planned)
        taken_back = [self._before(message) for message in self._reverted.values()]
        ended = max((turn.end for turn in self._turns.values()), default=0)
        ended = max(ended, self._started)
        return self._with_work(min([before for before in taken_back if before is not None], default=ended))

    def superfluous(self) -> list[str]:
        """Saved work, of this session's own, from which no fork starts any more: all but the latest, and that of the
        turns at whose messages one may still fork with files."""
        ended = sorted((turn for turn in self._turns.values() if turn.end), key=lambda turn: turn.end)
        points = [at for turn in ended[-limits.FORKABLE_TURNS :] for at in (turn.before, turn.end)]
        needed = {work.object for _, work in self._works[-limits.LATEST_WORK :]}
        forks = [*map(self._with_work, points), self.point(None)]
        needed.update(fork.work.object for fork in forks if fork.work is not None)
        if self._start_work is not None:
            needed.add(self._start_work.object)
        own = f"sessions/{self._session_id}/saved/"
        saved = dict.fromkeys(work.object for _, work in self._works if work.object.startswith(own))
        return [name for name in saved if name not in needed]

    def _at_message(self, message_id: str) -> ForkPoint:
        turn_id = self._people.get(message_id) or self._agents.get(message_id)
        turn = None if turn_id is None else self._turns.get(turn_id)
        if turn is None and message_id in self._beside:
            seq = self._beside[message_id]
            turn = next((one for one in self._turns.values() if one.before < seq <= (one.end or seq)), None)
            if turn is None:
                return self._with_work(seq)
        if turn is None:
            raise NotFound("message_not_found", "There is no such message in this session.")
        if not turn.end:
            raise Conflict("turn_running", "The message's turn is still running; fork at it when the turn has ended.")
        return self._with_work(turn.before if message_id in self._people else turn.end)

    def _before(self, message_id: str) -> int | None:
        turn = self._turns.get(self._people.get(message_id) or self._agents.get(message_id) or "")
        return None if turn is None else turn.before

    def _with_work(self, at: int) -> ForkPoint:
        at = max(at, self._first)
        return ForkPoint(at=at, work=next((work for seq, work in reversed(self._works) if seq <= at), None))
