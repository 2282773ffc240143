"""The session's work, remembered at a turn's begin, saved at its end, put back into a new sandbox."""

import asyncio
import time
from collections.abc import Mapping

from valet_protocol.events.agent import GitChanged, TurnChanged, WorkRef
from valet_protocol.events.envelope import Data
from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import logs

from valet_runner import git_state, limits, work_limits
from valet_runner.errors import GitFailed
from valet_runner.objects import Objects
from valet_runner.opencode_client import OpencodeClient
from valet_runner.snapshots import Snapshot, Snapshots
from valet_runner.work_errors import ObjectError, WorkError
from valet_runner.work_restoring import Restored, Restorer
from valet_runner.work_saving import Saver

__all__ = ["Restored", "Work"]

_log = logs.get(__name__)


class Work:
    """The work of one session. `begin` and `end` never raise and are bounded in time; what they cannot do is a line in
    the log."""

    def __init__(self, spec: RunnerSpec, env: Mapping[str, str], objects: Objects, base_commit: str | None) -> None:
        self._spec = spec
        self._env = env
        self._base = base_commit
        self._snapshots = Snapshots(spec, env)
        self._saver = Saver(spec, env, objects, base_commit, self._snapshots)
        self._restorer = Restorer(spec, env, objects)
        self._began: tuple[str, Snapshot] | None = None
        self._latest: tuple[float, Snapshot] | None = None

    # -- a turn

    async def begin(self, turn_id: str) -> None:
        """Remember the workspace as it is. Nothing where it has no repository."""
        self._began = self._latest = None
        if not self._has_files:
            return
        try:
            async with asyncio.timeout(work_limits.SNAPSHOT_TIMEOUT):
                await self._snapshots.prune()
                self._began = (turn_id, await self._snapshots.take())
        except Exception as error:  # noqa: BLE001 - a turn must begin whatever the workspace looks like
            _warn("turn_not_compared", error, turn=turn_id)

    async def changes(self) -> GitChanged | None:
        """Everything that differs from the base commit, for `git_changed`; none when nothing does. An `end` that
        follows at once uses the same snapshot. Raises `GitFailed`."""
        if not self._has_files or self._base is None:
            return None
        try:
            async with asyncio.timeout(limits.GIT_TIMEOUT):
                now = await self._snapshots.take()
                self._latest = (time.monotonic(), now)
                return await git_state.since(self._spec, self._env, self._base, self._snapshots, now)
        except TimeoutError as error:
            raise GitFailed(f"git took longer than {limits.GIT_TIMEOUT:.0f} s and was stopped") from error

    async def end(self, turn_id: str, conversations: Mapping[str, str], client: OpencodeClient | None) -> list[Data]:
        """What the turn changed (`TurnChanged`, if anything) and where the work is (`WorkSaved`, if it could be saved).

        `conversations` is OpenCode's session by channel; without a client what was saved of them before counts.
        """
        said: list[Data] = []
        now: Snapshot | None = None
        try:
            async with asyncio.timeout(work_limits.END_TIMEOUT):
                if self._has_files:
                    try:
                        async with asyncio.timeout(work_limits.CHANGED_TIMEOUT):
                            now = await self._now()
                            said += await self._turn_changed(turn_id, now)
                    except (GitFailed, OSError, TimeoutError) as error:
                        _warn("turn_not_compared", error, turn=turn_id)
                    if now is None:
                        return said  # the work saved last has the files, this would not
                saved = await self._saver.save(turn_id, conversations, client, now)
                said += [saved] if saved else []
        except Exception as error:  # noqa: BLE001 - a turn must end
            _warn("work_not_saved", error, turn=turn_id)
        finally:
            self._began = self._latest = None
        return said

    # -- a new sandbox

    async def restore(self, work: WorkRef) -> Restored | None:
        """Put saved work back, if the workspace is new (`workspace.prepare(…, restores=True)` has just made it); none
        if it is not. OpenCode must be healthy. Everything may happen twice.

        Raises `ObjectsUnavailable` and `ObjectRefused`: the work is somewhere, so the session must not go on without.
        What is not there or not whole is lost; that is said in the log and to the agent.
        """
        return await self._restorer.restore(work)

    @property
    def _has_files(self) -> bool:
        return self._base is not None and self._snapshots.possible

    async def _now(self) -> Snapshot:
        if self._latest and time.monotonic() - self._latest[0] < work_limits.SNAPSHOT_TIMEOUT:
            return self._latest[1]
        return await self._snapshots.take()

    async def _turn_changed(self, turn_id: str, now: Snapshot) -> list[Data]:
        if self._began is None or self._began[0] != turn_id:
            return []
        found = await git_state.difference(self._snapshots, self._began[1].tree, now.tree)
        if found is None:
            return []
        return [TurnChanged(turn_id=turn_id, files=found.files, patch=found.patch, truncated=found.truncated)]


def _warn(event: str, error: Exception, *, turn: str) -> None:
    if isinstance(error, (GitFailed, ObjectError, WorkError, OSError, TimeoutError)):
        _log.warning(event, turn=turn, error=str(error) or type(error).__name__)
    else:
        _log.exception(event, turn=turn)
