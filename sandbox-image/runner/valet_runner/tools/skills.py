"""The skills that every sandbox's agent has: how to use what the platform gives it."""

import shlex
import shutil
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "skills"
_OWN_FOLDER = "THE_FOLDER_OF_THIS_FILE"


def folder() -> Path:
    """Where they are."""
    return _FOLDER


def install(config_dir: Path) -> list[str]:
    """Put them where OpenCode looks, below its configuration's folder; gives their names. Doing it again is fine. What
    they say of their own folder is the real one's path: commands are to work as they are written."""
    names = sorted(path.parent.name for path in folder().glob("*/SKILL.md"))
    for name in names:
        target = config_dir / "skills" / name
        shutil.copytree(folder() / name, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        text = (target / "SKILL.md").read_text()
        (target / "SKILL.md").write_text(text.replace(_OWN_FOLDER, shlex.quote(str(target))))
    return names
