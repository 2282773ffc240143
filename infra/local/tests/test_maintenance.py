"""Claims about `valet ledger rebuild` from the command line, on a platform with the real ledger, up and down."""

import subprocess
import sys
from pathlib import Path

from valet_local import launch, lock, tools
from valet_local.assembly import Options
from valet_local.layout import layout

VALET = Path(sys.executable).parent / "valet"


def rebuild(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [VALET, "ledger", "rebuild", "--data-dir", data, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_ledger_is_rebuilt_whether_the_platform_is_up_or_not(tmp_path: Path) -> None:
    places = layout(tmp_path / "d")
    agent = tools.cached_opencode(places.tools, tools.opencode_package())
    agent.parent.mkdir(parents=True)
    agent.write_text("#!/bin/sh\n")
    with launch.start(Options(data_dir=places.data, port=0, services=("session-ledger",))):
        up = rebuild(places.data, "--verify")
    assert up.returncode == 0, up.stderr
    down = rebuild(places.data)
    assert down.returncode == 0, down.stderr
    assert "the read models are folded again" in down.stdout
    assert lock.holder(places.lock) is None
    assert not places.processes.exists()
