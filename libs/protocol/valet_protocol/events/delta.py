"""Deltas: text and reasoning while they stream. Only the runner writes them; gone once the message is whole."""

from valet_protocol.events.envelope import Data


class Delta(Data, frozen=True, kw_only=True):
    """A chunk of one part. The event's type says which kind: `delta.text` or `delta.reasoning`.

    `offset` makes it idempotent: a reader that has it drops it, a reader that sees a gap knows.
    """

    message_id: str
    """OpenCode's id of the message."""
    part_id: str
    """OpenCode's id of the part."""
    offset: int
    """Characters (Unicode code points) of the part before this chunk."""
    text: str
    """The chunk."""
