"""The working copy: cloned once, kept for as long as the session."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import logs

from valet_runner import checkout, limits, processes
from valet_runner.errors import CloneFailed
from valet_runner.workspace_git import git_words

_log = logs.get(__name__)

_UNFINISHED = Path(".valet") / "workspace-unfinished"
_NOBODY = {"NAME": "Valet", "EMAIL": "valet@valet.invalid", "DATE": "2000-01-01T00:00:00Z"}


class WorkingCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Where the working copy stands."""

    head: str | None
    """Commit checked out; none in a repository without one."""
    branch: str | None
    """None when no branch is checked out."""


class Prepared(WorkingCopy, frozen=True, kw_only=True):
    """A working copy that can be used."""

    base: str | None
    """The commit its changes are counted from: the given one where the repository has it, else HEAD."""
    detail: str = ""
    """What came of submodules and of files in Git LFS, for people."""


async def prepare(
    spec: RunnerSpec, env: Mapping[str, str], *, base_commit: str | None = None, restores: bool = False
) -> Prepared:
    """Clone the repository if the workspace is empty; without a repository, start an empty one.

    A new clone is put on `base_commit`, on the session's branch, if the repository still has it. A workspace that
    holds a repository is left as it is: it is an earlier epoch's. With `restores`, saved work is put back next, and the
    workspace is new until `finished` says that it is done: what a crash before that left is thrown away.
    Raises `CloneFailed`.
    """
    folder = Path(spec.workspace)
    new = not _has_repository(folder)
    if is_unfinished(spec):
        _clear(folder)
        new = True
    if new:
        _mark_unfinished(spec)
        if spec.repo is not None:
            branch = ["--branch", spec.branch] if spec.branch else []
            await _git(
                "clone", *branch, "--", spec.repo, ".", cwd=spec.workspace, env=env, timeout=limits.CLONE_TIMEOUT
            )
        else:
            await _start_empty(spec, env)
    if base_commit and not await _has_commit(spec, env, base_commit):
        _log.warning("base_commit_gone", commit=base_commit, reason="the repository no longer has it; HEAD is the base")
        base_commit = None
    if new and base_commit:
        await _git("reset", "--quiet", "--hard", base_commit, cwd=spec.workspace, env=env)
    detail = await checkout.complete(spec, env) if new and spec.repo is not None else ""
    if new and not restores:
        finished(spec)
    now = await where(spec, env)
    return Prepared(head=now.head, branch=now.branch, base=base_commit or now.head, detail=detail)


def is_unfinished(spec: RunnerSpec) -> bool:
    """Whether the workspace is being made: cloned, or its saved work put back."""
    return (Path(spec.home) / _UNFINISHED).exists()


def finished(spec: RunnerSpec) -> None:
    """The workspace is whole: from now on it is kept."""
    (Path(spec.home) / _UNFINISHED).unlink(missing_ok=True)


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


async def _start_empty(spec: RunnerSpec, env: Mapping[str, str]) -> None:
    """A repository with one empty commit: OpenCode's snapshots and every diff need one to start from. It is the same
    commit everywhere, so that saved work finds its base in another sandbox."""
    await _git("init", cwd=spec.workspace, env=env)
    own = {f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in _NOBODY.items()}
    await _git("commit", "--allow-empty", "--message", "Empty workspace", cwd=spec.workspace, env={**env, **own})


async def _has_commit(spec: RunnerSpec, env: Mapping[str, str], commit: str) -> bool:
    """Whether it is there, or can be fetched: a branch that was rewritten no longer leads to it."""

    async def found() -> bool:
        name = f"{commit}^{{commit}}"
        done = await processes.run(
            "git", "cat-file", "-e", name, env=env, cwd=spec.workspace, timeout=limits.GIT_TIMEOUT
        )
        return done.code == 0

    try:
        if not await found() and spec.repo is not None:
            await _git("fetch", "--quiet", "--no-tags", "origin", commit, cwd=spec.workspace, env=env)
        return await found()
    except (CloneFailed, OSError, TimeoutError):
        return False


def _mark_unfinished(spec: RunnerSpec) -> None:
    path = Path(spec.home) / _UNFINISHED
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _clear(folder: Path) -> None:
    """The folder itself stays: it may be a mount."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


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
