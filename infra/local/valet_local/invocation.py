"""How this program was started, so that what it advises can be typed just so."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def typed(command: str) -> str:
    """A command of ours as the person at this terminal would type it, e.g. `uv run valet up`."""
    return f"{program(sys.argv, os.environ)} {command}"


def program(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """What to type for `valet`. Pure.

    `uv run` puts the program's folder on the PATH of the program alone; a program that was started by its path is
    found by that path again.
    """
    if environment.get("UV_RUN_RECURSION_DEPTH"):
        return "uv run valet"
    script = Path(argv[0] if argv else "")
    on_path = str(script.parent) in environment.get("PATH", "").split(os.pathsep)
    return "valet" if script.name != "valet" or on_path else shlex.quote(str(script))
