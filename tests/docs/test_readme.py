"""Every command of the README, run as a newcomer would.

What differs from the page: placeholders (a key, an id, a path) get a value, and the port is free instead of 8700.
"""

import os
import re
import shutil
import signal
import subprocess
import venv
from pathlib import Path

import pytest
from harness import limits
from harness.platform import CONFIG, Model
from harness.waiting import until

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

ELSEWHERE = {
    "export ANTHROPIC_API_KEY=…": "a placeholder",
    "uv run pytest": "this is it",
    "uv run valet bench": "infra/local/tests/test_bench_*.py runs its quick form",
    "docker compose up": "tests/compose",
    "uv run valet users add ada": "infra/local/tests/test_cli_words.py",
}
"""Commands that other tests run, and which."""

HERE = {
    "pip install uv && uv run valet demo",
    "uv run valet up",
    'uv run valet run --repo ~/src/my-project "Find out why the tests are slow and make them fast."',
    "uv run valet sessions",
    "uv run valet show ID",
    "uv run valet follow ID --after 0",
    'uv run valet send ID "Now write down in the README what you found."',
    "uv run valet share ID --link",
    "uv run valet exec ID -- git status",
    "uv run valet open ID terminal",
    "uv run valet down",
}


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    return [re.split(r"\s{2,}#", line)[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_every_command_of_the_readme_is_run_by_a_test() -> None:
    assert set(commands()) == HERE | set(ELSEWHERE)
    assert "uv run pytest" in (ROOT / ".ci" / "run").read_text()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone as a newcomer has it: tracked files as they are now, nothing else."""
    target = tmp_path_factory.mktemp("newcomer") / "valet"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def newcomer(clone: Path) -> dict[str, str]:
    """The environment of somebody with a Python that has pip, an empty data directory and no uv of their own."""
    home = clone.parent
    venv.create(home / "python", with_pip=True)
    own = {key: value for key, value in os.environ.items() if not key.startswith(("VALET_", "VIRTUAL_ENV", "UV_"))}
    return {
        **own,
        "PATH": f"{home / 'python' / 'bin'}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(home / "data"),
        "VALET_CACHE_DIR": os.environ.get("VALET_CACHE_DIR", ""),
    }


def shell(command: str, clone: Path, environ: dict[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        shell=True,
        cwd=clone,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def test_the_first_command_shows_a_whole_session(clone: Path, newcomer: dict[str, str]) -> None:
    result = shell("pip install -q uv && uv run valet demo", clone, newcomer, limits.NEWCOMER)
    assert result.returncode == 0, result.stdout + result.stderr
    for said in ("calculator.py", "completed", "cannot divide by zero", "first streamed token", "cost", "events"):
        assert said in result.stdout, said
    assert "Traceback" not in result.stderr
    again = shell("uv run valet demo", clone, newcomer, limits.NEWCOMER)
    assert again.returncode == 0, again.stdout + again.stderr


def test_the_commands_of_everyday_use(clone: Path, newcomer: dict[str, str], model: Model, sample_repo: Path) -> None:
    (clone / "valet.toml").write_text(CONFIG.format(model_url=model.url, question_timeout=5))
    up = subprocess.Popen(
        ["uv", "run", "valet", "up", "--port", "0"], cwd=clone, env=newcomer, stdout=subprocess.PIPE, text=True
    )
    try:
        state = Path(newcomer["XDG_DATA_HOME"]) / "valet" / "valet.json"
        until(state.exists, limits.READY, "valet up")
        ran = shell(f'uv run valet run --repo {sample_repo} "write new.txt hello"', clone, newcomer, limits.TURN)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "new.txt" in ran.stdout
        sessions = shell("uv run valet sessions", clone, newcomer, limits.REQUEST)
        assert sessions.returncode == 0
        ident = re.search(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", sessions.stdout)
        assert ident, sessions.stdout
        shown = shell(f"uv run valet show {ident[0]}", clone, newcomer, limits.REQUEST)
        assert shown.returncode == 0, shown.stderr
        assert "write new.txt hello" in shown.stdout
        follow = subprocess.Popen(
            ["uv", "run", "valet", "follow", ident[0], "--after", "0"],
            cwd=clone,
            env=newcomer,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # as at a terminal, also where the tests themselves run in the background with SIGINT ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert follow.stdout
        seen = ""
        while "completed" not in seen:
            line = follow.stdout.readline()
            assert line, f"it ended early: {seen}"
            seen += line
        os.killpg(follow.pid, signal.SIGINT)
        follow.wait(limits.STOP)
        sent = shell(f'uv run valet send {ident[0]} "say thanks"', clone, newcomer, limits.REQUEST)
        assert sent.returncode == 0, sent.stderr
        assert "queued" in sent.stdout or "dispatched" in sent.stdout
        shared = shell(f"uv run valet share {ident[0]} --link", clone, newcomer, limits.REQUEST)
        assert shared.returncode == 0, shared.stderr
        assert "/join#" in shared.stdout
        executed = shell(f"uv run valet exec {ident[0]} -- git status", clone, newcomer, limits.TURN)
        assert executed.returncode == 0, executed.stderr
        assert "new.txt" in executed.stdout
        opened = shell(f"uv run valet open {ident[0]} terminal", clone, newcomer, limits.TURN)
        assert opened.stdout.startswith("http://127.0.0.1:"), opened.stderr
        doctor = shell("uv run valet doctor", clone, newcomer, limits.REQUEST)
        assert "OpenCode" in doctor.stdout
        down = shell("uv run valet down", clone, newcomer, limits.STOP)
        assert down.returncode == 0, down.stderr
        assert up.wait(limits.STOP) == 0
    finally:
        if up.poll() is None:
            up.send_signal(signal.SIGINT)
            up.wait(limits.STOP)


def test_the_readme_s_configuration_is_one_that_is_taken() -> None:
    from valet_service.config_file import parse

    block = re.search(r"```toml\n(.*?)```", README, flags=re.DOTALL)
    assert block
    config = parse(block[1])
    assert config.default_model == "local/qwen3-coder"
    assert [provider.id for provider in config.providers] == ["local", "company"]
