"""A first start without a network says so, soon. npm is a script here."""

from pathlib import Path

import pytest
from valet_local import limits, npm
from valet_local.errors import FetchFailed

SAYS_WHY = """#!/bin/sh
echo "npm error FetchError: request failed, reason: connect ECONNREFUSED"; echo "npm error much else"; exit 1
"""


def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A machine with that npm; where to fetch to."""
    programs, target = tmp_path / "bin", tmp_path / "target"
    programs.mkdir()
    target.mkdir()
    for name in ("npm", "node"):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return target


def test_a_download_is_tried_again_and_every_try_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = machine(tmp_path, monkeypatch, SAYS_WHY)
    monkeypatch.setattr(limits, "FETCH_PAUSE", 0)
    told: list[str] = []
    with pytest.raises(FetchFailed, match=r"reason: connect ECONNREFUSED$"):
        npm.fetch("agent", "1", target, lambda stage, *_: told.append(stage))
    assert list(dict.fromkeys(told)) == [
        "Fetching agent 1", "Fetching agent 1 (try 2 of 3)", "Fetching agent 1 (try 3 of 3)"
    ]  # fmt: skip


def test_a_download_of_which_nothing_comes_is_said_to_be_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = machine(tmp_path, monkeypatch, "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(limits, "FETCH_QUIET", 0.1)
    monkeypatch.setattr(limits, "FETCH_STALL", 0.5)
    told: list[str] = []
    with pytest.raises(FetchFailed, match="nothing came"):
        npm.fetch("agent", "1", target, lambda stage, *_: told.append(stage))
    assert list(dict.fromkeys(told)) == ["Fetching agent 1", "Fetching agent 1: nothing comes"]
