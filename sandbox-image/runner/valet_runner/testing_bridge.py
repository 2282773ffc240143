"""For tests of a bridge on its own: OpenCode, the log, the workspace and the clock are stand-ins."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from valet_protocol.events import facts
from valet_protocol.events.envelope import Data

from valet_runner import frames
from valet_runner.bridge import Bridge
from valet_runner.bridge_state import Item
from valet_runner.conversation import Conversations
from valet_runner.shown_processes import ShownProcesses


class Opencode:
    """An OpenCode that takes every prompt and works on it for ever, unless told otherwise."""

    def __init__(self) -> None:
        self.status: frames.Status | None = frames.Status(type="busy")
        self.prompts: list[str] = []
        self.listed: list[frames.Message] = []
        self.refuses: Exception | None = None

    async def client(self, timeout: float) -> "Opencode":
        return self

    def kill(self) -> None:
        """It has no process."""

    async def apply(self, policy: facts.SessionPolicy) -> None: ...

    async def session(self, session: str) -> frames.Session | None:
        return frames.Session(id=session)

    async def create_session(self) -> frames.Session:
        return frames.Session(id="ses")

    async def add_rules(self, session: str, rules: list[frames.Rule]) -> None: ...

    async def messages(self, session: str) -> list[frames.Message]:
        return self.listed

    async def statuses(self) -> dict[str, frames.Status]:
        return {"ses": self.status} if self.status else {}

    async def questions(self) -> list[frames.QuestionAsked]:
        return []

    async def permissions(self) -> list[frames.PermissionAsked]:
        return []

    async def abort(self, session: str) -> None: ...

    async def revert(self, session: str, message_id: str) -> None: ...

    async def prompt(self, session: str, *, message_id: str, parts: Sequence[Any], **_: object) -> None:
        if self.refuses and self.prompts:
            raise self.refuses
        self.prompts.append(message_id)


class Publisher:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.turn: str | None = None
        self.items: list[Item] = []

    def say(self, items: list[Item]) -> None:
        self.items += items

    async def room(self) -> None: ...

    def of(self, kind: type[Data]) -> list[Item]:
        return [item for item in self.items if isinstance(item, kind)]


class Nothing:
    """No workspace, no attachments."""

    async def begin(self, turn_id: str) -> None: ...

    async def changes(self) -> None: ...

    async def end(self, turn_id: str, conversations: Mapping[str, str], client: object) -> list[Data]:
        return []

    async def parts(self, attachments: list[facts.Attachment], *, model: str | None = None) -> list[Any]:
        return []


def bridge(
    opencode: object, publisher: Publisher, *, home: Path, clock: Callable[[], float], work: object | None = None
) -> Bridge:
    """A bridge between the two; `work` stands for the workspace."""
    nothing = Nothing()
    return Bridge(
        process=cast(Any, opencode),
        publisher=cast(Any, publisher),
        conversations=Conversations(home),
        policy=facts.SessionPolicy(),
        work=cast(Any, work or nothing),
        attachments=nothing,
        shown=ShownProcesses(home),
        home=home,
        now_ms=lambda: 1_795_000_000_000,
        clock=clock,
    )
