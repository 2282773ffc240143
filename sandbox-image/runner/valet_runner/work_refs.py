"""Commits of the workspace that its base does not have: which branches lead to them, and a bundle of them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import limits, processes, workspace, workspace_git
from valet_runner.errors import GitFailed

_STASH = "refs/stash"


class LocalRefs(msgspec.Struct, frozen=True, kw_only=True):
    """Where the workspace's branches stand."""

    head: str | None
    branch: str | None
    """None when no branch is checked out."""
    commits: dict[str, str]
    """Of local branches by full name, and of the newest stash; older stashes are found by no name."""


async def local(spec: RunnerSpec, env: Mapping[str, str]) -> LocalRefs:
    """Read them. Raises `GitFailed`."""
    now = await workspace.where(spec, env)
    listing = await _git(spec, env, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", _STASH)
    commits = {name: commit for name, _, commit in (line.partition(" ") for line in listing.splitlines())}
    return LocalRefs(head=now.head, branch=now.branch, commits=commits)


async def write_bundle(
    spec: RunnerSpec,
    env: Mapping[str, str],
    refs: LocalRefs,
    base: str,
    target: Path,
    *,
    without_remotes: bool,
) -> bool:
    """Write the commits `base` does not have; false when there are none. With `without_remotes` neither those of the
    remote branches, which a new clone has again unless they were removed there. Raises `GitFailed`."""
    wanted = ["--branches", *(["HEAD"] if refs.head else []), *([_STASH] if _STASH in refs.commits else [])]
    known = [f"^{base}", *(["--not", "--remotes"] if without_remotes else [])]
    if not await _git(spec, env, "rev-list", "-1", *wanted, *known, "--"):
        return False
    await _git(spec, env, "bundle", "create", "--quiet", str(target), *wanted, *known)
    return True


async def _git(spec: RunnerSpec, env: Mapping[str, str], *arguments: str) -> str:
    try:
        done = await processes.run(
            "git", *workspace_git.SAFE, *arguments, env=env, cwd=spec.workspace, timeout=limits.GIT_TIMEOUT
        )
    except (OSError, TimeoutError) as error:
        raise GitFailed(f"git: {str(error) or type(error).__name__}") from error
    if done.code != 0:
        words = workspace_git.git_words(done.stderr.decode(errors="replace"))
        raise GitFailed(words or f"git {arguments[0]} ended with status {done.code}")
    return done.stdout.decode(errors="replace").strip()
