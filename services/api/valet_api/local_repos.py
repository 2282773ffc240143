"""Directories of the platform's machine as repositories: who may have which, and what is there."""

import os
from pathlib import Path
from typing import Literal

from valet_service.config_file import LocalRepos


class LocalMachine:
    """What one person may have of it. `rule` is `[sandbox] local_repos`; administrators may have anything."""

    def __init__(self, rule: LocalRepos, *, administrator: bool) -> None:
        self._rule = rule
        self._administrator = administrator

    def open_to_them(self, path: str) -> bool:
        if self._administrator or self._rule == "everyone":
            return True
        if self._rule == "administrators":
            return False
        if "\0" in path:
            return False
        real = Path(os.path.realpath(path))  # a link out of an allowed directory leads out of what is allowed
        return any(real.is_relative_to(os.path.realpath(allowed)) for allowed in self._rule)

    def at(self, path: str) -> Literal["repository", "directory", "nothing"]:
        """Judged as the sandbox's controller does: it clones only from the top directory."""
        place = Path(path)
        try:
            if not place.is_dir():
                return "nothing"
            git = place / ".git"
            bare = (place / "HEAD").is_file() and (place / "objects").is_dir()
            return "repository" if git.is_file() or git.is_dir() or bare else "directory"
        except (OSError, ValueError):
            return "nothing"
