"""The skills that every sandbox's agent has: how to use what the platform gives it."""

import shutil
from pathlib import Path

_PLACES = (Path(__file__).parents[1] / "skills", Path(__file__).parents[3] / "opencode" / "skills")
"""In an installed package, and in the repository."""


def folder() -> Path:
    """Where they are."""
    return next((place for place in _PLACES if place.is_dir()), _PLACES[0])


def install(config_dir: Path) -> list[str]:
    """Put them where OpenCode looks, below its configuration's folder; gives their names. Doing it again is fine."""
    names = sorted(path.parent.name for path in folder().glob("*/SKILL.md"))
    for name in names:
        shutil.copytree(folder() / name, config_dir / "skills" / name, dirs_exist_ok=True)
    return names
