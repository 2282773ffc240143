"""What the demo is made of: a repository with one failing test, a model that plays, a configuration that fits both."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from valet_local import sample, tools
from valet_local.cli.demo import CONFIG
from valet_local.cli.scripted_model import playing
from valet_local.errors import StartFailed
from valet_local.model.scenario import Tool, load_builtin
from valet_service.config_file import parse


def run_tests(repo: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unittest", "-q"], cwd=repo, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    sample.make(tmp_path / "calculator", tools.find_git())
    return tmp_path / "calculator"


def test_the_sample_has_exactly_one_failing_test(repo: Path):
    done = run_tests(repo)
    assert done.returncode == 1
    assert "Ran 5 tests" in done.stderr
    assert "FAILED (errors=1)" in done.stderr
    assert "test_divide_by_zero_says_so" in done.stderr


def test_the_scenarios_edit_fits_the_sample_and_repairs_it(repo: Path):
    edits = [
        action.arguments
        for turn in load_builtin("demo").turns
        for step in turn.steps
        for action in step.actions
        if isinstance(action, Tool) and action.name == "edit"
    ]
    code = (repo / "calculator.py").read_text()
    for edit in edits:
        assert code.count(str(edit["oldString"])) == 1
        code = code.replace(str(edit["oldString"]), str(edit["newString"]))
    (repo / "calculator.py").write_text(code)
    assert edits
    assert run_tests(repo).returncode == 0


def test_the_sample_is_a_clean_repository_and_always_the_same_commit(repo: Path, tmp_path: Path):
    sample.make(tmp_path / "other", tools.find_git())
    heads = [
        subprocess.run(
            ["git", "-C", path, "rev-parse", "main"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
        for path in (repo, tmp_path / "other")
    ]
    status = subprocess.run(
        ["git", "-C", repo, "status", "--porcelain"], capture_output=True, text=True, timeout=20, check=True
    )
    assert heads[0] == heads[1]
    assert status.stdout == ""


def test_a_second_run_finds_a_fresh_sample_again(repo: Path):
    (repo / "calculator.py").write_text("changed")
    sample.make(repo, tools.find_git())
    assert run_tests(repo).returncode == 1


def test_the_model_plays_while_the_demo_runs_and_is_gone_after_it():
    with playing("demo") as url:
        assert httpx.get(f"{url}/models", timeout=10).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models", timeout=10)


def test_a_model_that_does_not_start_is_said():
    with pytest.raises(StartFailed, match="ended with status 1"), playing("no-such-scenario"):
        pass


def test_the_demos_configuration_is_valid_and_its_default_model_listed():
    config = parse(CONFIG.format(url="http://127.0.0.1:1/v1", timeout=5))
    assert config.default_model == "scripted/demo"
    assert config.providers[0].model("demo") is not None
    assert config.sandbox.question_timeout_seconds == 5
