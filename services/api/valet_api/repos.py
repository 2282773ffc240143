"""Which repositories and branches a session may start from. Pure: what the machine has at a path others look at."""

import re
from typing import Literal, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from valet_protocol.errors import Forbidden, Unprocessable

from valet_api import limits

_SCHEMES = ("http", "https", "ssh", "git", "file")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?![/-]*//)[^-].*")
_HOST = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:\]-]*")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")

WHAT_TO_GIVE = (
    "Give an http, https, ssh or git URL (https://host/owner/repo.git), git@host:path, or the absolute path of a "
    "git repository on the platform's machine."
)


class Machine(Protocol):
    """The platform's own directories, as far as somebody may have them."""

    def open_to_them(self, path: str) -> bool:
        """Whether they may start a session from this path, whatever is there."""
        ...

    def at(self, path: str) -> Literal["repository", "directory", "nothing"]:
        """What is there."""
        ...


def checked_repo(repo: str, machine: Machine) -> str:
    """The repository, if it can be one. Raises `Unprocessable` saying what to give instead, and `Forbidden` for a
    directory of the machine that is not open to them, without a look at it.

    What reaches git's command line is never an option, nor a transport that runs a command (`ext::`).
    """
    if len(repo) > limits.REPO_CHARACTERS:
        raise _bad(f"The repository's address is longer than {limits.REPO_CHARACTERS} characters.")
    if repo.startswith("/"):
        return _checked_path(repo, repo, machine)
    if _CONTROL.search(repo):
        raise _bad(f"{repo!r} has blanks or control characters in it.")
    if _URL.match(repo):
        return _checked_url(repo, machine)
    if _SCP.fullmatch(repo):
        return repo
    if not repo:
        raise _bad("The repository is empty; leave it out for an empty workspace.")
    if repo.startswith((".", "~")) or ":" not in repo:
        raise _bad(f"{repo!r} is a relative path, and the platform does not know relative to what.")
    raise _bad(f"{repo!r} is not the address of a repository.")


def _checked_url(repo: str, machine: Machine) -> str:
    try:
        parts = urlsplit(repo)
        _ = parts.port
    except ValueError as error:
        raise _bad(f"{repo!r} is not a URL: {error}.") from error
    if parts.scheme not in _SCHEMES:
        raise _bad(f"{parts.scheme}:// is not a way to fetch a repository here.")
    if parts.scheme == "file":
        return _checked_path(repo, unquote(parts.path), machine)
    if not parts.hostname or not _HOST.fullmatch(parts.netloc.rpartition("@")[2]) or parts.path in ("", "/"):
        raise _bad(f"{repo!r} lacks a host or a path.")
    _check_user(repo, parts)
    return repo


def _check_user(repo: str, parts: SplitResult) -> None:
    if parts.password is not None or (parts.username and parts.scheme in ("http", "https")):
        raise Unprocessable(
            "credentials_in_repo",
            "The repository's address has credentials in it. It would be kept in the session's log for everybody who "
            "may read it; give the address without them.",
        )
    if parts.username and parts.username.startswith("-"):
        raise _bad(f"{repo!r} has a user name that would be taken for an option.")


def _checked_path(repo: str, path: str, machine: Machine) -> str:
    if "\0" in path or not path.startswith("/"):
        raise _bad(f"{repo!r} is not an absolute path.")
    check_access(path, machine)
    found = machine.at(path)
    if found == "nothing":
        raise Unprocessable(
            "repo_not_found",
            f"There is no directory {path} on the platform's machine. Check the path; what is elsewhere needs a URL.",
        )
    if found == "directory":
        raise Unprocessable(
            "not_a_repository",
            f"{path} is not the top directory of a git repository. Give that, or run `git init` there and commit.",
        )
    return repo


def check_access(repo: str, machine: Machine) -> None:
    """Raises `Forbidden` when the repository is a directory of the machine that is not open to them."""
    path = unquote(urlsplit(repo).path) if repo.startswith("file:") else repo
    if path.startswith("/") and not machine.open_to_them(path):
        raise Forbidden(
            "local_repo_not_allowed",
            "Directories of the platform's machine are not open to you here; give a URL, or ask an administrator "
            "(`local_repos` in the platform's valet.toml).",
        )


_REFUSED_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")


def checked_branch(branch: str) -> str:
    """The branch, if git would take the name (git-check-ref-format). Raises `Unprocessable`."""
    parts = branch.split("/")
    if (
        not branch
        or len(branch) > limits.BRANCH_CHARACTERS
        or branch == "@"
        or branch.startswith(("-", "/"))
        or branch.endswith(("/", "."))
        or _REFUSED_IN_REF.search(branch)
        or any(part.startswith(".") or part.endswith(".lock") for part in parts)
    ):
        raise Unprocessable(
            "bad_branch", f"git does not allow {branch[:80]!r} as the name of a branch; give an existing branch or tag."
        )
    return branch


def _bad(reason: str) -> Unprocessable:
    return Unprocessable("bad_repo", f"{reason} {WHAT_TO_GIVE}")
