"""Which messages no longer count because their conversation was taken back to before them. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from valet_session_ledger.state import DEFAULT_CHANNEL
from valet_session_ledger.views import Record


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """What one revert took back."""

    channel: str
    first: int
    """Where the message that was gone back to began."""
    end: int
    """Where it was taken back: what came after it is new."""


class Reverted:
    """The spans of a session that are taken back."""

    def __init__(self, spans: Sequence[Span] = ()) -> None:
        self._spans = spans

    def has(self, channel: str | None, seq: int) -> bool:
        """Whether a message of a conversation that began at a sequence is taken back."""
        return any(
            span.channel == (channel or DEFAULT_CHANNEL) and span.first <= seq < span.end for span in self._spans
        )


def reverted(reverts: Sequence[Record], turns: Sequence[Record]) -> Reverted:
    """From rows of `reverts` and of `turns_begun`, each in the order of the log.

    What was taken back can count again until the conversation's next turn.
    """
    undoable: dict[str, list[Span]] = {}
    final: list[Span] = []
    marks: list[tuple[int, Any, bool]] = [(row["first_seq"], row, True) for row in reverts]
    marks += [(row["first_seq"], row, False) for row in turns]
    for seq, row, is_revert in sorted(marks, key=lambda mark: mark[0]):
        channel = row["channel"] or DEFAULT_CHANNEL
        if not is_revert:
            final += undoable.pop(channel, [])
        elif row["message_id"] is None:
            undoable.pop(channel, None)
        elif row["message_seq"] is not None:
            undoable.setdefault(channel, []).append(Span(channel=channel, first=row["message_seq"], end=seq))
    return Reverted([*final, *(span for spans in undoable.values() for span in spans)])
