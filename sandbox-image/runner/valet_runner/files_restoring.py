"""Putting a workspace back as it was: branches, commits, and the files on top of them.

The files come from the patch, applied to the base commit in an index of its own; git then compares the tree it gives
with the one that was saved, and only a tree that is right is written to the workspace.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import logs

from valet_runner import checkout, processes, work_limits, workspace_git
from valet_runner.errors import GitFailed
from valet_runner.work_bundle import COMMITS, PATCH, Manifest

_STASH = "refs/stash"
_HEADS = "refs/heads/"

_log = logs.get(__name__)


async def put_back(spec: RunnerSpec, env: Mapping[str, str], manifest: Manifest, folder: Path) -> str:
    """Put everything back into a new clone on the base commit; `folder` holds the unpacked work.

    Gives what could not be put back, in words for the agent; empty when all is there. Raises `GitFailed`, `OSError`.
    """
    if manifest.base_commit is None:
        return ""
    problems: list[str] = []
    git = _Git(spec, env)
    if (folder / COMMITS).exists():
        try:
            await git.run("bundle", "unbundle", str(folder / COMMITS))
        except GitFailed as error:
            _log.warning("commits_not_put_back", error=str(error))
            problems.append("commits made earlier in this session")
    await _branches(git, manifest)
    try:
        tree = await _tree(git, manifest, folder / PATCH)
    except GitFailed as error:
        kept = Path(spec.home) / ".valet" / PATCH
        os.replace(folder / PATCH, kept)
        _log.error("work_does_not_apply", error=str(error), kept=str(kept))
        problems.append(f"changes to files, which are kept as a patch against {manifest.base_commit} in {kept}")
        tree = "HEAD"
    await git.run("read-tree", "--reset", "-u", tree)
    # what was not committed is not staged either
    await git.run("reset", "--quiet", fine=(0, 1))
    if checkout.has_submodules(spec.workspace):
        await checkout.complete(spec, env)
        problems.append("what was changed inside submodules and not pushed, if anything was: they are as their commits")
    return " and ".join(problems)


async def _branches(git: "_Git", manifest: Manifest) -> None:
    """Local branches, HEAD and the newest stash; those whose commits are not there stay where the clone has them."""
    for name, commit in manifest.refs.items():
        if not await git.has(commit):
            _log.warning("branch_not_put_back", ref=name, commit=commit)
        elif name == _STASH:
            await git.run("stash", "store", "--message", "From before the sandbox was replaced", commit)
        elif name.startswith(_HEADS):
            await git.run("update-ref", "--", name, commit)
    head = manifest.head_commit
    if head is None or not await git.has(head):
        return
    if manifest.branch is None:
        await git.run("update-ref", "--no-deref", "HEAD", head)
    else:
        branch = f"{_HEADS}{manifest.branch}"
        await git.run("check-ref-format", branch)
        await git.run("update-ref", "--", branch, head)
        await git.run("symbolic-ref", "HEAD", branch)


async def _tree(git: "_Git", manifest: Manifest, patch: Path) -> str:
    """The saved tree, made of base and patch; on another commit if the base is gone, as far as that goes."""
    base = manifest.base_commit
    assert base
    with tempfile.TemporaryDirectory(prefix="valet-index-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        there = await git.has(base)
        await git.run("read-tree", base if there else "HEAD", extra=index)
        if os.stat(patch).st_size:
            await git.run("apply", "--cached", "--binary", "--whitespace=nowarn", str(patch), extra=index)
        tree = (await git.run("write-tree", "--missing-ok", extra=index)).strip()
    if there and manifest.tree and tree != manifest.tree:
        raise GitFailed(f"the patch gives the tree {tree}, saved was {manifest.tree}")
    return tree


class _Git:
    """Git in the workspace's own repository, a fresh clone: its configuration is nobody's yet."""

    def __init__(self, spec: RunnerSpec, env: Mapping[str, str]) -> None:
        self._spec = spec
        self._env = env

    async def has(self, commit: str) -> bool:
        """Whether the repository has a commit."""
        done = await self._finish("cat-file", "-e", f"{commit}^{{commit}}")
        return done.code == 0

    async def run(self, *arguments: str, fine: tuple[int, ...] = (0,), extra: Mapping[str, str] | None = None) -> str:
        done = await self._finish(*arguments, extra=extra or {})
        if done.code not in fine:
            words = workspace_git.git_words(done.stderr.decode(errors="replace"))
            raise GitFailed(words or f"git {arguments[0]} ended with status {done.code}")
        return done.stdout.decode(errors="replace")

    async def _finish(self, *arguments: str, extra: Mapping[str, str] | None = None) -> processes.Finished:
        try:
            return await processes.run(
                "git",
                *workspace_git.SAFE,
                *arguments,
                env={**self._env, **(extra or {})},
                cwd=self._spec.workspace,
                timeout=work_limits.RESTORE_GIT_TIMEOUT,
            )
        except (OSError, TimeoutError) as error:
            raise GitFailed(f"git: {str(error) or type(error).__name__}") from error
