"""Claims about which `valet.toml` is in force."""

from pathlib import Path

import pytest
from valet_local import config
from valet_service.config_file import ConfigError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "data", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def write(path: Path, memory_mb: int) -> Path:
    path.write_text(f"[sandbox]\nmemory_mb = {memory_mb}\n")
    return path


def test_without_a_file_the_environment_is_enough(tmp_path: Path) -> None:
    found = config.load(tmp_path / "data", environment={"OPENAI_API_KEY": "k"})
    assert found.path is None
    assert [provider.id for provider in found.config.providers] == ["openai"]


def test_the_nearest_file_wins_and_a_named_one_before_all(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data / "valet.toml", 1001)
    assert config.load(data, environment={}).config.sandbox.memory_mb == 1001
    write(tmp_path / "here" / "valet.toml", 1002)
    assert config.load(data, environment={}).config.sandbox.memory_mb == 1002
    named = write(tmp_path / "mine.toml", 1003)
    assert config.load(data, environment={"VALET_CONFIG": str(named)}).config.sandbox.memory_mb == 1003
    other = write(tmp_path / "other.toml", 1004)
    found = config.load(data, other, {"VALET_CONFIG": str(named)})
    assert (found.path, found.config.sandbox.memory_mb) == (other, 1004)


def test_a_named_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        config.load(tmp_path, tmp_path / "none.toml", {})


def test_a_file_that_is_not_text_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"# one\n# \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"binary\.toml:2: not UTF-8"):
        config.load(tmp_path, path, {})


def test_every_variable_that_may_hold_a_key_is_known(tmp_path: Path) -> None:
    path = tmp_path / "valet.toml"
    path.write_text('[providers.a]\nbase_url = "http://h/v1"\napi_key_env = "MY_KEY"\nmodels = ["m"]\n')
    variables = config.key_variables(config.load(tmp_path, path, {}).config)
    assert {"MY_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"} <= variables
