"""The read models of one session in memory: folded from its events, and read by the names of the SQL statements.

Fold, projection and views are those of the live ledger, so a past state looks exactly as it did when it was the present
one. Only what a view reads is answered here; a statement it does not know is a `KeyError`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import asdict

from valet_session_ledger.fold import fold
from valet_session_ledger.intake import from_archive
from valet_session_ledger.projection import session_row
from valet_session_ledger.rows import Batch, EventRow, MessageRow, Row, TurnRow
from valet_session_ledger.sessions import Live

Record = Mapping[str, Any]


class Tables:
    """What the tables of the read models would hold for one session after some of its events."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.last_seq = 0
        """Sequence of the last event in it; 0 for none."""
        self._live = Live(session_id)
        self._batch = Batch()

    def fold(self, events: Iterable[EventRow]) -> None:
        """The next events, in order."""
        for row in events:
            fold(self._live, from_archive(row.seq, row.session_id, row.type, row.payload), self._batch)
            self.last_seq = row.seq
        self._batch.events.clear()  # they are in the archive, and need not be in memory twice

    @property
    def owner(self) -> str | None:
        """The session's owner; none before it was requested."""
        return None if self._live.state is None else self._live.state.owner

    async def fetch(self, statement: str, *parameters: Any) -> list[Record]:
        """The rows a statement of `queries.sql` gives, by its name."""
        return _STATEMENTS[statement](self, *parameters)

    # -- statements --------------------------------------------------------------------------------------------

    def _session(self, _: str) -> list[Record]:
        touched = self._batch.touched.get(self.session_id)
        if touched is None:
            return []
        return [asdict(session_row(touched)) | _used(self._batch.usage.values())]

    def _turns_by_id(self, _: list[str], turn_ids: list[str]) -> list[Record]:
        return [self._turn(turn) for turn in self._batch.turns.values() if turn.turn_id in turn_ids]

    def _turn(self, turn: TurnRow) -> Record:
        used = _used(row for row in self._batch.usage.values() if row.turn_id == turn.turn_id)
        return used | asdict(turn) | {"used_cost": used["cost"]}

    def _turn_prompts(self, _: list[str], turn_ids: list[str]) -> list[Record]:
        return _ordered(row for row in self._batch.prompts.values() if row.turn_id in turn_ids)

    def _turn_switches(self, _: list[str], turn_ids: list[str]) -> list[Record]:
        return _ordered(row for row in self._batch.switches.values() if row.turn_id in turn_ids)

    def _turn_channels(self, _: str, turn_ids: list[str]) -> list[Record]:
        wanted = frozenset(turn_ids)
        return [asdict(row) for row in self._batch.turns.values() if row.turn_id in wanted]

    def _turns_begun(self, _: str, after: int) -> list[Record]:
        return _ordered(row for row in self._batch.turns.values() if row.first_seq > after)

    def _queued_prompts(self, _: list[str]) -> list[Record]:
        return _ordered(row for row in self._batch.prompts.values() if row.status == "queued")

    def _prompts_by_id(self, _: str, prompt_ids: list[str]) -> list[Record]:
        wanted = frozenset(prompt_ids)
        return [asdict(row) for row in self._batch.prompts.values() if row.prompt_id in wanted]

    def _open_questions(self, _: list[str]) -> list[Record]:
        return _ordered(row for row in self._batch.questions.values() if row.status == "open")

    def _pending_commands(self, _: list[str]) -> list[Record]:
        return _ordered(row for row in self._batch.commands.values() if row.status == "requested")

    def _todos(self, _: list[str]) -> list[Record]:
        return [asdict(row) for row in self._batch.todos.values()]

    def _messages_after(self, _: str, after: int, limit: int) -> list[Record]:
        rows = [row for row in self._batch.messages.values() if row.first_seq > after]
        rows.sort(key=lambda row: (row.first_seq, row.place or 0))
        return [asdict(row) for row in rows[:limit]]

    def _parts_of(self, _: str, message_ids: list[str]) -> list[Record]:
        wanted = frozenset(message_ids)
        rows = (row for row in self._batch.parts.values() if row.message_id in wanted)
        return [asdict(row) for row in sorted(rows, key=lambda row: row.part_id.encode())]

    def _reverts(self, _: str) -> list[Record]:
        messages = {row.message_id: row for row in self._batch.messages.values()}
        rows = sorted(self._batch.reverts.values(), key=lambda row: row.first_seq)
        return [
            asdict(row) | {"message_seq": self._taken_back_from(messages.get(row.message_id or ""))} for row in rows
        ]

    def _taken_back_from(self, message: MessageRow | None) -> int | None:
        """The agent's messages go with the prompt they answer."""
        if message is None:
            return None
        prompts = (
            row.first_seq
            for row in self._batch.messages.values()
            if row.role == "user" and row.turn_id == message.turn_id and row.first_seq <= message.first_seq
        )
        return max(prompts, default=message.first_seq)

    def _diff(self, _: str) -> list[Record]:
        return [asdict(row) for row in self._batch.diffs.values()]


class Names:
    """Statements that are their own names, for a reader of `Tables`."""

    def __getitem__(self, name: str) -> str:
        return name


_STATEMENTS: dict[str, Callable[..., list[Record]]] = {
    "session": Tables._session,
    "session_owner": Tables._session,
    "turns_by_id": Tables._turns_by_id,
    "turn_prompts": Tables._turn_prompts,
    "turn_switches": Tables._turn_switches,
    "turn_channels": Tables._turn_channels,
    "turns_begun": Tables._turns_begun,
    "queued_prompts": Tables._queued_prompts,
    "prompts_by_id": Tables._prompts_by_id,
    "open_questions": Tables._open_questions,
    "pending_commands": Tables._pending_commands,
    "todos": Tables._todos,
    "messages_after": Tables._messages_after,
    "parts_of": Tables._parts_of,
    "reverts": Tables._reverts,
    "diff": Tables._diff,
}
"""By the names they have in `queries.sql`."""


def _ordered(rows: Iterable[Row]) -> list[Record]:
    return [asdict(row) for row in sorted(rows, key=lambda row: row.first_seq)]


def _used(rows: Iterable[Any]) -> dict[str, Any]:
    """Sums of usage."""
    names = ("cost", "input", "output", "reasoning", "cache_read", "cache_write")
    used: dict[str, Any] = dict.fromkeys(names, 0) | {"cost": 0.0}
    for row in rows:
        for name in names:
            used[name] += getattr(row, name)
    return used
