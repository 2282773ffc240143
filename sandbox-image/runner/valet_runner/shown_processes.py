"""Processes that people ran for the agent to see: their commands and output go ahead of its next prompt.

A message of its own for each would begin another step of the model when a turn runs, so they wait for the next prompt,
in a file of the home, and are kept until OpenCode has that prompt.
"""

import contextlib
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

import msgspec
from valet_protocol.events.machine import ProcessInfo

from valet_runner import frames, limits, preambles, terminal_text

_FILE = Path(".valet") / "shown-processes.json"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An ended process as the agent is told of it."""

    id: str
    text: str


def told(process: ProcessInfo, output: bytes, *, offset: int, head: bytes = b"") -> Shown:
    """What the agent is told of a process that has ended. `output` is the end of what it wrote, from `offset` on
    (bytes), and `head` the beginning of what was before. Pure."""
    ended = f"status {process.exit_code}" if process.signal is None else f"signal {process.signal}"
    return Shown(
        id=process.id,
        text=(
            "The following command was executed by the user in a terminal of this sandbox.\n"
            f"<process>{process.id}</process>\n"
            f"<command>{shlex.join([process.command, *process.args])}</command>\n"
            f"<directory>{process.cwd}</directory>\n<ended>{ended}</ended>\n"
            f"<output>\n{_excerpt(process, head, output, offset)}\n</output>"
        ),
    )


def _excerpt(process: ProcessInfo, head: bytes, tail: bytes, offset: int) -> str:
    if head and offset > len(head):  # whole lines, where there are some
        head = head[: head.rfind(b"\n") + 1] or head
        line = tail.find(b"\n") + 1
        tail, offset = tail[line:], offset + line
    left_out = offset - len(head)
    beginning, end = (terminal_text.readable(part, terminal=process.pty) for part in (head, tail))
    if beginning is None or end is None:
        return f"[{process.output_bytes} bytes that are no text are left out]"
    if not left_out:
        return (beginning + end).strip("\n")
    beginning, end = beginning.strip("\n"), end.strip("\n")
    if not head:
        return f"[the first {left_out} bytes are left out]\n{end}"
    return f"{beginning}\n[... {left_out} bytes are left out here ...]\n{end}"


class ShownProcesses:
    """Those that wait for the next prompt, oldest first."""

    def __init__(self, home: Path) -> None:
        self._path = home / _FILE

    def waiting(self) -> list[Shown]:
        """What the next prompt is to begin with."""
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(self._path.read_bytes(), type=list[Shown])
        return []

    def add(self, shown: Shown) -> None:
        """One more; one that is there already stays as it is."""
        waiting = self.waiting()
        if all(other.id != shown.id for other in waiting):
            self._keep([*waiting, shown][-limits.SHOWN_PROCESSES :])

    async def untold(self, client: preambles.Messages, session: frames.Session) -> list[Shown]:
        """What the conversation's next prompt is to begin with. What it holds already is not kept any longer: a runner
        died before it could say so. Raises what the client raises."""
        waiting = self.waiting()
        if not waiting:
            return []
        due = preambles.due((one.text for one in waiting), session, await client.messages(session.id))
        self.given(one for one in waiting if one.text not in due)
        return [one for one in waiting if one.text in due]

    def given(self, shown: Iterable[Shown]) -> None:
        """OpenCode has them."""
        ids = {one.id for one in shown}
        if ids:
            self._keep([other for other in self.waiting() if other.id not in ids])

    def _keep(self, waiting: list[Shown]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(waiting))
        os.replace(new, self._path)
