"""What is said about the workspace when a turn ends: what differs from the session's base, what the turn changed, and
where its work is saved. Nothing here may keep a turn from ending."""

from collections.abc import Mapping
from typing import Protocol

from valet_protocol.events.agent import GitChanged
from valet_protocol.events.envelope import Data
from valet_service import logs

from valet_runner.errors import GitFailed
from valet_runner.opencode_client import OpencodeClient

_log = logs.get(__name__)


class Work(Protocol):
    """Remembers the workspace at a turn's begin and saves it at its end; bounded in time."""

    async def begin(self, turn_id: str) -> None: ...

    async def changes(self) -> GitChanged | None:
        """What differs from the session's base commit; none when nothing does. Raises `GitFailed`."""
        ...

    async def end(
        self, turn_id: str, conversations: Mapping[str, str], client: OpencodeClient | None
    ) -> list[Data]: ...


async def said_of_workspace(
    turn_id: str, *, work: Work, conversations: Mapping[str, str], client: OpencodeClient | None
) -> list[Data]:
    """The events, in order. `client` is none when OpenCode is not there. Never raises."""
    items: list[Data] = []
    try:
        changed = await work.changes()
        items += [changed] if changed else []
    except GitFailed as error:
        _log.warning("changes_unknown", error=str(error))
    except Exception:  # noqa: BLE001 - whatever git shows us, the turn must end
        _log.exception("changes_not_read")
    try:
        items += await work.end(turn_id, conversations, client)
    except Exception:  # noqa: BLE001 - likewise
        _log.exception("work_not_saved")
    return items
