"""How fast things are said: at once while the broker keeps up, merged while it does not.

No clock ticks here. A chunk that finds nothing unacknowledged goes out at once; while something is, adjacent chunks of
the same part become one. A tool's growing output goes out as often as its size allows, for every update repeats
all before it.
"""

import msgspec
from valet_protocol.events.agent import MessageCompleted, ToolUpdated, TurnEnded
from valet_protocol.events.delta import Delta

from valet_runner import limits
from valet_runner.bridge_state import Chunk, Item


class Pacer:
    """Decides what goes out when. Told the time (seconds, monotonic) and the backlog; does nothing by itself."""

    def __init__(self) -> None:
        self._chunk: Chunk | None = None
        self._tools: dict[str, ToolUpdated] = {}
        self._next: dict[str, float] = {}

    @property
    def holds_chunk(self) -> bool:
        """Whether a chunk waits for the backlog to go."""
        return self._chunk is not None

    @property
    def due(self) -> float | None:
        """When the next tool update that is held may go out."""
        return min((self._next[key] for key in self._tools), default=None)

    def offer(self, item: Item, *, now: float, backlog: int) -> list[Item]:
        """What goes out now that this has happened, in order."""
        if isinstance(item, Chunk):
            return self._offer_chunk(item, backlog)
        out = self._flush_chunk()
        if isinstance(item, ToolUpdated):
            if item.status == "running" and now < self._next.get(item.part_id, now):
                self._tools[item.part_id] = item
                return out
            self._tools.pop(item.part_id, None)
            self._next[item.part_id] = now + len(item.output or "") / limits.TOOL_OUTPUT_RATE
        elif isinstance(item, MessageCompleted):
            out += self._flush_tools(item.message_id)
        elif isinstance(item, TurnEnded):
            out += self._flush_tools(None)
            self._next.clear()
        return [*out, item]

    def release(self, *, now: float, backlog: int) -> list[Item]:
        """What may go out although nothing has happened."""
        out = self._flush_chunk() if backlog == 0 else []
        for key in [key for key in self._tools if self._next[key] <= now]:
            update = self._tools.pop(key)
            self._next[key] = now + len(update.output or "") / limits.TOOL_OUTPUT_RATE
            out.append(update)
        return out

    def _offer_chunk(self, chunk: Chunk, backlog: int) -> list[Item]:
        held = self._chunk
        if held is None:
            out: list[Item] = []
            self._chunk = chunk
        elif held.delta.part_id == chunk.delta.part_id:
            out = []
            text = held.delta.text + chunk.delta.text
            self._chunk = msgspec.structs.replace(held, delta=_with_text(held.delta, text))
        else:
            out = [held]
            self._chunk = chunk
        return out + self._flush_chunk() if backlog == 0 else out

    def _flush_chunk(self) -> list[Item]:
        chunk, self._chunk = self._chunk, None
        return [chunk] if chunk else []

    def _flush_tools(self, message_id: str | None) -> list[Item]:
        keys = [key for key, tool in self._tools.items() if message_id in (None, tool.message_id)]
        return [self._tools.pop(key) for key in keys]


def _with_text(delta: Delta, text: str) -> Delta:
    return msgspec.structs.replace(delta, text=text)
