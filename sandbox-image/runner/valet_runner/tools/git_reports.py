"""report_git_state: branch, commit and what has changed, into the log in the middle of a turn."""

from collections.abc import Mapping

from valet_protocol.errors import Unavailable
from valet_protocol.events.agent import GitChanged
from valet_protocol.sandbox_spec import RunnerSpec
from valet_protocol.tools.other import GitState, ReportGitState

from valet_runner import git_state, workspace
from valet_runner.errors import GitFailed
from valet_runner.tools import limits
from valet_runner.tools.running import Answer
from valet_runner.tools.saying import Say, store


class GitReports:
    """Answers the tool."""

    def __init__(self, spec: RunnerSpec, env: Mapping[str, str], base_commit: str | None, say: Say) -> None:
        self._spec = spec
        self._env = env
        self._base = base_commit
        self._say = say

    async def report(self, _: ReportGitState) -> Answer:
        """The same event as at the end of a turn, and what is in it. With a snapshot of its own: that of the running
        turn's end must not be older than the end."""
        try:
            now = await git_state.changes(self._spec, self._env, self._base) or await self._unchanged()
        except (GitFailed, OSError, TimeoutError) as error:
            raise Unavailable("git_failed", f"git: {str(error) or type(error).__name__}") from error
        await store(self._say, now)
        state = GitState(
            branch=now.branch,
            head_commit=now.head_commit,
            base_commit=now.base_commit,
            files=[file.path for file in now.files[: limits.GIT_FILES]],
            files_changed=len(now.files),
        )
        return Answer(reply=state)

    async def _unchanged(self) -> GitChanged:
        """Nothing differs from the base, or there is none; branch and commit may be others all the same."""
        stands = await workspace.where(self._spec, self._env)
        return GitChanged(base_commit=self._base, head_commit=stands.head, branch=stands.branch, files=[], patch="")
