"""Which repository of the host a session may be given, judged before a sandbox is made."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from valet_sandbox_controller.errors import RepositoryUnusable
from valet_sandbox_controller.provider import HostRepository


def host_path(repo: str | None) -> Path | None:
    """The path, when the repository is one on the host's disk (`/path`, `file:///path`) and not a URL."""
    if repo is None:
        return None
    if repo.startswith("/"):
        return Path(repo)
    if repo.startswith("file:"):
        return Path(unquote(urlsplit(repo).path))
    return None


def inspect(path: Path) -> HostRepository:
    """Look at a repository on the host. Raises `RepositoryUnusable` with what is wrong, in plain words."""
    try:
        if not path.exists():
            raise RepositoryUnusable(f"There is no directory {path} on the machine Valet runs on.")
        if not path.is_dir():
            raise RepositoryUnusable(f"{path} is a file; give the directory of a git repository.")
        if not os.access(path, os.R_OK | os.X_OK):
            raise RepositoryUnusable(f"{path} may not be read by the user Valet runs as.")
        git = path / ".git"
        if git.is_dir() or _is_git_dir(path):
            return HostRepository(path=path.resolve())
        if git.is_file():
            return _linked(path, git)
    except PermissionError as error:
        raise RepositoryUnusable(f"{error.filename} may not be read by the user Valet runs as.") from None
    except OSError as error:
        raise RepositoryUnusable(f"{path} cannot be read: {error.strerror or error}.") from None
    above = next((parent for parent in path.resolve().parents if (parent / ".git").exists()), None)
    hint = f" It lies inside the repository {above}; give that." if above else " Run `git init` there and commit first."
    raise RepositoryUnusable(f"{path} is not the top directory of a git repository.{hint}")


def _linked(path: Path, pointer: Path) -> HostRepository:
    # a linked worktree or a submodule: `.git` is a file that names the real directory
    text = pointer.read_text().strip()
    target = Path(text.removeprefix("gitdir:").strip())
    directory = (path / target).resolve()
    common = directory / "commondir"
    if common.is_file():
        directory = (directory / common.read_text().strip()).resolve()
    if not text.startswith("gitdir:") or not _is_git_dir(directory):
        raise RepositoryUnusable(f"{pointer} names {target}, which is not a git directory that can be read.")
    if not target.is_absolute():
        raise RepositoryUnusable(f"{path} is a part of the repository above it (a submodule); give that repository.")
    return HostRepository(path=path.resolve(), also=(directory,))


def _is_git_dir(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
