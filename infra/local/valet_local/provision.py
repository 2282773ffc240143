"""Everything a platform needs besides its own code, in place before it starts."""

import os
from collections.abc import Mapping
from pathlib import Path

from valet_local import bytecode, npm, tools
from valet_local.errors import ToolError, ToolMissing
from valet_local.layout import Layout, cache_dir
from valet_local.tools import Progress, Tools


def ensure_tools(places: Layout, *, progress: Progress, environment: Mapping[str, str] = os.environ) -> Tools:
    """Find or fetch the programs of a sandbox. Raises `ToolError`s; without network a filled cache is enough.

    `$VALET_OPENCODE_BIN` names another OpenCode, which is then neither fetched nor checked.
    """
    git = tools.find_git()
    rg = tools.find_rg()
    compiling = bytecode.compiling()
    opencode = _named_opencode(environment) or tools.ensure_opencode(
        places.tools, shared_tools(), fetch=npm.fetch, progress=progress
    )
    found = Tools(opencode=opencode, git=git, rg=rg, bwrap=tools.find_bwrap(), xterm=_terminal_page(places, progress))
    if compiling is not None:
        progress("Compiling what sandboxes run", 0, 0)
        bytecode.finish(compiling)
    return found


def _terminal_page(places: Layout, progress: Progress) -> Path | None:
    try:
        return tools.ensure_terminal_page(places.tools, shared_tools(), fetch=npm.fetch_small, progress=progress)
    except (ToolError, OSError) as error:
        # everything else works without; the page itself says that it is missing, the next start tries again
        progress(f"The terminal's page could not be fetched: {error}", 0, 0)
        return None


def _named_opencode(environment: Mapping[str, str]) -> Path | None:
    named = environment.get("VALET_OPENCODE_BIN")
    if not named:
        return None
    path = Path(named).absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise ToolMissing(f"VALET_OPENCODE_BIN is {named}, but there is no program. Correct it or unset it")
    return path


def shared_tools() -> Path:
    """The tools directory of the user's cache."""
    return cache_dir() / "tools"
