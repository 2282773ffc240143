"""Everything a platform needs besides its own code, in place before it starts."""

from pathlib import Path

from valet_local import npm, tools
from valet_local.layout import Layout, cache_dir
from valet_local.tools import Progress, Tools


def ensure_tools(places: Layout, *, progress: Progress) -> Tools:
    """Find or fetch the programs of a sandbox. Raises `ToolError`s; without network a filled cache is enough."""
    git = tools.find_git()
    rg = tools.find_rg()
    opencode = tools.ensure_opencode(places.tools, shared_tools(), fetch=npm.fetch, progress=progress)
    return Tools(opencode=opencode, git=git, rg=rg, bwrap=tools.find_bwrap())


def shared_tools() -> Path:
    """The tools directory of the user's cache."""
    return cache_dir() / "tools"
