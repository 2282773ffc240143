"""The skills that every sandbox's agent has: how to use what the platform gives it."""

import shutil
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "skills"


def folder() -> Path:
    """Where they are."""
    return _FOLDER


def install(config_dir: Path) -> list[str]:
    """Put them where OpenCode looks, below its configuration's folder; gives their names. Doing it again is fine."""
    names = sorted(path.parent.name for path in folder().glob("*/SKILL.md"))
    for name in names:
        shutil.copytree(folder() / name, config_dir / "skills" / name, dirs_exist_ok=True)
    return names
