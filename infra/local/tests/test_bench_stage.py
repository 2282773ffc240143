"""Claims about another OpenCode in the place of the real one."""

from pathlib import Path

import pytest
from valet_local.bench import stage
from valet_local.errors import ToolMissing
from valet_local.layout import layout, prepare
from valet_local.provision import ensure_tools


def test_an_opencode_that_is_named_is_used_and_nothing_is_fetched(tmp_path: Path) -> None:
    places = layout(tmp_path / "d")
    prepare(places)
    standin = stage.write_standin(tmp_path)
    tools = ensure_tools(places, progress=lambda *_: None, environment={"VALET_OPENCODE_BIN": str(standin)})
    assert tools.opencode == standin
    assert [path.name for path in places.tools.iterdir() if path.name.startswith("opencode")] == []


def test_an_opencode_that_is_named_and_not_there_is_refused(tmp_path: Path) -> None:
    places = layout(tmp_path / "d")
    prepare(places)
    with pytest.raises(ToolMissing, match="VALET_OPENCODE_BIN is /nowhere/opencode"):
        ensure_tools(places, progress=lambda *_: None, environment={"VALET_OPENCODE_BIN": "/nowhere/opencode"})
