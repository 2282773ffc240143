"""Python's compiled modules of what runs in sandboxes.

A sandbox sees the folders of these packages read-only. What nobody outside has imported before, every sandbox would
compile anew at its start and could not keep: 1.4 s for the runner alone (measured).
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from valet_local import limits

PACKAGES = ("mcp", "mcp_types", "starlette", "pydantic", "aiohttp", "valet_runner", "valet_gateway", "valet_processes")
"""Which packages tell whether all of it has been compiled."""

MODULES = ("valet_runner.app", "valet_runner.tools.serving", "valet_gateway.app", "valet_processes.app")
"""What is imported to have it compiled, with all that these import."""


def compiling(packages: Sequence[str] = PACKAGES, modules: Sequence[str] = MODULES) -> "subprocess.Popen[bytes] | None":
    """A process that compiles what is not compiled yet; none where there is nothing to do, or it could not be kept.
    To be waited for by `finish`."""
    if sys.dont_write_bytecode or all(map(_compiled, packages)):
        return None
    return subprocess.Popen(
        [sys.executable, "-c", f"import {', '.join(modules)}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def finish(process: "subprocess.Popen[bytes] | None") -> None:
    """Wait for it, not for ever: whatever is not compiled, a sandbox compiles."""
    if process is None:
        return
    try:
        process.wait(limits.COMPILE_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _compiled(package: str) -> bool:
    """Whether it has its compiled form, or cannot have one here."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        return True
    source = Path(spec.origin)
    kept = Path(importlib.util.cache_from_source(spec.origin))
    if kept.exists():
        return kept.stat().st_mtime >= source.stat().st_mtime
    return not os.access(source.parent, os.W_OK)
