"""The working copy: cloned once, kept for as long as the session."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import limits, processes
from valet_runner.errors import CloneFailed

_PROGRESS = re.compile(
    r"^(remote: )?(Enumerating|Counting|Compressing|Receiving|Resolving|Updating|Filtering|Cloning)\b"
    r"|^remote: Total|^warning: redirecting|^Checking connectivity"
)
_CREDENTIALS = re.compile(r"([a-z][a-z0-9+.-]*://)[^/@\s]+@")


class WorkingCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Where the working copy stands."""

    head: str | None
    """Commit checked out; none in a repository without one."""
    branch: str | None
    """None when no branch is checked out."""


def git_words(stderr: str) -> str:
    """What git said, without progress and without user names and passwords in URLs."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", stderr)]
    said = "\n".join(line for line in lines if line and not _PROGRESS.search(line))
    return _CREDENTIALS.sub(r"\1", said)


async def prepare(spec: RunnerSpec, env: Mapping[str, str]) -> WorkingCopy:
    """Clone the repository if the workspace is empty; without a repository, start an empty one.

    A workspace that holds a repository is left as it is: it is an earlier epoch's. Raises `CloneFailed`.
    """
    if not _has_repository(Path(spec.workspace)):
        if spec.repo is not None:
            branch = ["--branch", spec.branch] if spec.branch else []
            await _git(
                "clone", *branch, "--", spec.repo, ".", cwd=spec.workspace, env=env, timeout=limits.CLONE_TIMEOUT
            )
        else:
            await _git("init", cwd=spec.workspace, env=env)
            # OpenCode's snapshots and every diff need a commit to start from
            await _git("commit", "--allow-empty", "--message", "Empty workspace", cwd=spec.workspace, env=env)
    return await where(spec, env)


async def where(spec: RunnerSpec, env: Mapping[str, str]) -> WorkingCopy:
    """Where it stands now. Raises `TimeoutError` or `OSError` when git cannot be run."""
    head = await processes.run(
        "git", "rev-parse", "--verify", "--quiet", "HEAD", env=env, cwd=spec.workspace, timeout=limits.GIT_TIMEOUT
    )
    branch = await processes.run(
        "git", "symbolic-ref", "--short", "--quiet", "HEAD", env=env, cwd=spec.workspace, timeout=limits.GIT_TIMEOUT
    )
    return WorkingCopy(
        head=head.stdout.decode().strip() or None if head.code == 0 else None,
        branch=branch.stdout.decode().strip() or None if branch.code == 0 else None,
    )


def _has_repository(folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / ".git").exists()


async def _git(*arguments: str, cwd: str, env: Mapping[str, str], timeout: float = limits.GIT_TIMEOUT) -> None:
    try:
        done = await processes.run("git", *arguments, env=env, cwd=cwd, timeout=timeout)
    except TimeoutError as error:
        raise CloneFailed(f"git {arguments[0]} took longer than {timeout:.0f} s and was stopped") from error
    except OSError as error:
        raise CloneFailed(f"git cannot be run: {error.strerror or error}") from error
    if done.code != 0:
        words = git_words(done.stderr.decode(errors="replace"))
        raise CloneFailed(words or f"git {arguments[0]} ended with status {done.code}")
