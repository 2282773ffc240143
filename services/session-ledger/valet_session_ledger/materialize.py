"""The read models of one session in memory: folded from its events, and read by the names of the SQL statements.

Fold, projection and views are those of the live ledger, so a past state looks exactly as it did when it was the present
one. Only what a view reads is answered here; a statement it does not know is a `KeyError`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import asdict

from valet_session_ledger.fold import fold
from valet_session_ledger.intake import from_archive
from valet_session_ledger.projection import session_row
from valet_session_ledger.rows import Batch, EventRow, MessageRow, Row, TurnRow
from valet_session_ledger.sessions import Live

Record = dict[str, Any]


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

    def _turns_of(self, _: str, turn_ids: list[str]) -> list[Record]:
        wanted = frozenset(turn_ids)
        turn = None if self._live.state is None else self._live.state.turn
        active = None if turn is None else turn.turn_id
        rows = (row for row in self._batch.turns.values() if row.turn_id in wanted)
        return [asdict(row) | {"active": row.turn_id == active} for row in rows]

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

    def _messages_by_id(self, _: str, message_ids: list[str]) -> list[Record]:
        wanted = frozenset(message_ids)
        return [asdict(row) for row in self._batch.messages.values() if row.message_id in wanted]

    def _outer_messages_after(self, _: str, after: int, limit: int) -> list[Record]:
        started = {row.conversation for row in self._batch.parts.values() if row.conversation is not None}
        rows = self._messages_after(_, after, len(self._batch.messages))
        return [row for row in rows if row["parent_session"] not in started][:limit]

    def _calls_of(self, _: str, conversations: list[str]) -> list[Record]:
        return _ordered(row for row in self._batch.parts.values() if row.conversation in conversations)

    def _nested_messages(
        self, _: str, conversations: list[str], above: list[int], until: list[int], each: int, limit: int
    ) -> list[Record]:
        by_conversation: dict[str | None, list[MessageRow]] = {}
        for row in sorted(self._batch.messages.values(), key=lambda row: row.first_seq):
            by_conversation.setdefault(row.parent_session, []).append(row)
        found: list[Record] = []
        for call, (name, low, high) in enumerate(zip(conversations, above, until, strict=True), start=1):
            rows = [row for row in by_conversation.get(name, []) if low < row.first_seq <= high]
            found += [asdict(row) | {"call": call} for row in rows[:each]]
        return found[:limit]

    def _turn_parts_of(self, _: str, message_ids: list[str], turn_ids: list[str]) -> list[Record]:
        messages, turns = frozenset(message_ids), frozenset(turn_ids)
        found = _ordered(
            row for row in self._batch.turn_parts.values() if row.message_id in messages or row.turn_id in turns
        )
        return [row | {"stands_in": row["message_id"] or self._stands_in(row)} for row in found]

    def _stands_in(self, part: Record) -> str | None:
        before = [
            row
            for row in self._batch.messages.values()
            if row.turn_id == part["turn_id"] and row.parent_session is None and row.first_seq < part["first_seq"]
        ]
        last = max(before, key=lambda row: (row.role == "assistant", row.first_seq, row.place or 0), default=None)
        return None if last is None else last.message_id

    def _images_by_id(self, _: str, image_ids: list[str]) -> list[Record]:
        rows = self._batch.turn_parts.values()
        return [asdict(row) for row in rows if row.kind == "image" and row.part_id in image_ids]

    def _machine(self, _: str, epoch: int, running: int, ended: int) -> list[Record]:
        rows = sorted(self._batch.machine.values(), key=lambda row: -row.seq)
        here = [row for row in rows if row.epoch == epoch]
        others = [row for row in rows if row.kind in ("tunnels", "boot_step")]
        others += [row for row in here if row.kind == "service"]
        processes = [row for row in here if row.kind == "process"]
        others += [row for row in processes if row.status == "running"][:running]
        others += [row for row in processes if row.status == "exited"][:ended]
        return [asdict(row) for row in others]

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
    "turns_of": Tables._turns_of,
    "turns_begun": Tables._turns_begun,
    "queued_prompts": Tables._queued_prompts,
    "prompts_by_id": Tables._prompts_by_id,
    "open_questions": Tables._open_questions,
    "pending_commands": Tables._pending_commands,
    "todos": Tables._todos,
    "messages_after": Tables._messages_after,
    "messages_by_id": Tables._messages_by_id,
    "outer_messages_after": Tables._outer_messages_after,
    "nested_messages": Tables._nested_messages,
    "calls_of": Tables._calls_of,
    "turn_parts_of": Tables._turn_parts_of,
    "images_by_id": Tables._images_by_id,
    "machine": Tables._machine,
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
