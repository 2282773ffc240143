"""Claims about listing the models of a provider that only an environment variable names. The agent is the
real one.
"""

from pathlib import Path

import msgspec
import pytest
from valet_local import env_models
from valet_local.journal import Journal
from valet_local.layout import layout, prepare
from valet_local.provision import ensure_tools
from valet_service.config_file import ModelList, ValetConfig, model_list_path, with_environment


@pytest.fixture(scope="module")
def opencode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    places = layout(tmp_path_factory.mktemp("models") / "d")
    prepare(places)
    return ensure_tools(places, progress=lambda *_: None).opencode


async def test_the_agent_is_asked_once_and_never_sees_the_key(opencode: Path, tmp_path: Path) -> None:
    places = layout(tmp_path / "d")
    prepare(places)
    environment = {"ANTHROPIC_API_KEY": "sk-secret", "PATH": "/usr/bin:/bin"}
    config = with_environment(ValetConfig(), environment)
    journal = Journal(places.logs / "supervisor.log", quiet=True)
    await env_models.refresh(places.data, config, opencode, environment, journal)
    path = model_list_path(places.data, "anthropic")
    listed = msgspec.json.decode(path.read_bytes(), type=ModelList)
    assert any(model.startswith("claude-") for model in listed.models)
    assert not any("/" in model for model in listed.models)
    gone = tmp_path / "no-agent"
    await env_models.refresh(places.data, config, gone, environment, journal)
    assert msgspec.json.decode(path.read_bytes(), type=ModelList) == listed
    assert "failed" not in (places.logs / "supervisor.log").read_text()


async def test_an_agent_that_does_not_run_is_logged_and_holds_nothing_up(tmp_path: Path) -> None:
    places = layout(tmp_path / "d")
    prepare(places)
    config = with_environment(ValetConfig(), {"OPENAI_API_KEY": "k"})
    journal = Journal(places.logs / "supervisor.log", quiet=True)
    await env_models.refresh(places.data, config, tmp_path / "no-agent", {}, journal)
    assert not model_list_path(places.data, "openai").exists()
    assert "no-agent" in (places.logs / "supervisor.log").read_text()
