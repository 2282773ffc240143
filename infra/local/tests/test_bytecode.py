"""What sandboxes run is compiled before they do."""

import importlib
from pathlib import Path

import pytest
from valet_local import bytecode


def test_what_is_not_compiled_is_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "never_imported_before"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    importlib.invalidate_caches()
    named = (["never_imported_before"], ["never_imported_before.app"])
    bytecode.finish(bytecode.compiling(*named))
    assert sorted(path.name.partition(".")[0] for path in (package / "__pycache__").iterdir()) == ["__init__", "app"]
    assert bytecode.compiling(*named) is None
