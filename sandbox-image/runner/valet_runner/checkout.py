"""What a clone alone does not bring: submodules, and files that are kept in Git LFS.

A session can do without either, so nothing here fails a boot; what came of it is said.
"""

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import logs

from valet_runner import limits, processes
from valet_runner.workspace_git import SAFE, git_words

_SUBMODULE_MODE = b"160000 "
_log = logs.get(__name__)


async def complete(spec: RunnerSpec, env: Mapping[str, str]) -> str:
    """Check out submodules and fetch the files of Git LFS in a new working copy, which nobody has configured yet.

    Gives what came of it, for people; empty where the repository has neither. Never raises.
    """
    said: list[str] = []
    for what, part in (("submodules", _submodules), ("files of Git LFS", _large_files)):
        try:
            said.append(await part(spec, env))
        except TimeoutError:
            said.append(f"{what}: git took too long and was stopped; not all are there")
        except OSError as error:
            said.append(f"{what}: git cannot be run: {error.strerror or error}")
    detail = "; ".join(text for text in said if text)
    if detail:
        _log.info("checkout_completed", detail=detail)
    return detail


def has_submodules(folder: str) -> bool:
    """Whether a working copy has some, checked out or not."""
    return (Path(folder) / ".gitmodules").is_file()


async def _submodules(spec: RunnerSpec, env: Mapping[str, str]) -> str:
    if not has_submodules(spec.workspace):
        return ""
    listed = await _git(spec, env, "ls-files", "--stage", "-z", timeout=limits.GIT_TIMEOUT)
    count = sum(line.startswith(_SUBMODULE_MODE) for line in listed.stdout.split(b"\0"))
    if not count:
        return ""
    options: list[str] = []
    if env.get("GITHUB_TOKEN"):  # there is no key for SSH, and the token is good for the same host
        for address in ("git@github.com:", "ssh://git@github.com/"):
            options += ["-c", f"url.https://github.com/.insteadOf={address}"]
    if spec.repo and (spec.repo.startswith(("/", "file:"))):  # then its submodules may lie beside it
        options += ["-c", "protocol.file.allow=always"]
    update = ("submodule", "--quiet", "update", "--init", "--recursive")
    done = await _git(spec, env, *options, *update, timeout=limits.SUBMODULES_TIMEOUT)
    if done.code == 0:
        return f"{count} submodule{'s' if count > 1 else ''} checked out"
    words = git_words(done.stderr.decode(errors="replace")).replace("\n", " ")[-limits.CHECKOUT_WORDS :]
    return f"submodules could not all be checked out ({words}); `git {' '.join(update)}` tries again"


async def _large_files(spec: RunnerSpec, env: Mapping[str, str]) -> str:
    names = ("ls-files", "-z", "--", ".gitattributes", "*/.gitattributes")
    listed = await _git(spec, env, *names, timeout=limits.GIT_TIMEOUT)
    paths = [os.path.join(os.fsencode(spec.workspace), name) for name in listed.stdout.split(b"\0") if name]
    if not await asyncio.to_thread(lambda: any(_names_lfs(path) for path in paths[: limits.ATTRIBUTE_FILES])):
        return ""
    if shutil.which("git-lfs", path=spec.path) is None:
        return (
            "large files are kept in Git LFS, and git-lfs is not installed here: in their places are pointers of a few"
            " lines; `git lfs pull` fetches them once it is"
        )
    for arguments in (("lfs", "install", "--local", "--skip-repo"), ("lfs", "pull")):
        done = await _git(spec, env, *arguments, timeout=limits.LFS_TIMEOUT)
        if done.code:
            words = git_words(done.stderr.decode(errors="replace")).replace("\n", " ")[-limits.CHECKOUT_WORDS :]
            return f"files of Git LFS could not be fetched ({words}); `git lfs pull` tries again"
    return "files of Git LFS fetched"


def _names_lfs(path: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return b"filter=lfs" in file.read(limits.ATTRIBUTE_BYTES)
    except OSError:
        return False


async def _git(spec: RunnerSpec, env: Mapping[str, str], *arguments: str, timeout: float) -> processes.Finished:
    return await processes.run("git", *SAFE, *arguments, env=env, cwd=spec.workspace, timeout=timeout)
