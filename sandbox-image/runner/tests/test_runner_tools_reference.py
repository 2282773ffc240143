"""Claims about the page of the tools, and about the skills that speak of them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from valet_protocol.tools import BY_NAME, TOOLS
from valet_runner.tools import images, reference, skills

DOCS = Path(__file__).parents[3] / "docs"


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr("sys.argv", ["reference", *options])
    reference.main()


def test_the_committed_page_is_the_one_the_declarations_give(monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "--check", "--docs", str(DOCS))


def test_a_stale_page_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "--docs", str(tmp_path))
    run(monkeypatch, "--check", "--docs", str(tmp_path))
    (tmp_path / "tools.md").write_text("old")
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, "--check", "--docs", str(tmp_path))
    assert caught.value.code == 1
    assert "tools.md is stale" in capsys.readouterr().err


def test_every_tool_has_its_route_on_the_page_and_every_link_leads_somewhere() -> None:
    page = reference.markdown()
    assert all(f"`{tool.route}`" in page for tool in TOOLS)
    headings = {line.lstrip("# ").lower() for line in page.splitlines() if line.startswith("#")}
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= headings


def test_the_skills_are_those_of_the_specification_and_are_put_where_the_agent_looks(tmp_path: Path) -> None:
    assert skills.install(tmp_path) == ["browser", "sandbox-tunnels", "workflows"]
    assert skills.install(tmp_path) == ["browser", "sandbox-tunnels", "workflows"]
    browser = tmp_path / "skills" / "browser"
    assert f"python3 {browser}/page.py http" in (browser / "SKILL.md").read_text(), "a command works as it is written"


PAGE = """<h1>Hello</h1><input placeholder=Name id=n><button onclick="setTimeout(save, 100)">Save</button>
<script>function save() { document.body.append('Saved ' + n.value); console.log('said', 7) }</script>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium on this machine (Debian: chromium)")
def test_the_browsers_page_is_driven_and_looked_at_with_python_and_chromium_alone(tmp_path: Path) -> None:
    skills.install(tmp_path)
    (tmp_path / "page.html").write_text(PAGE)
    url, picture = (tmp_path / "page.html").as_uri(), tmp_path / "pictures" / "saved.png"

    def drive(*steps: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(tmp_path / "skills" / "browser" / "page.py"), url, *steps]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)

    done = drive("type", "Name", "Ada", "click", "Save", "wait", "Saved Ada", "shot", str(picture), "text")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("console log: said 7\n")
    assert done.stdout.rstrip().endswith("Saved Ada")
    assert images.image_type(picture.read_bytes()) == "image/png"
    failed = drive("click", "css=h2[")
    assert failed.returncode == 1
    assert "not a valid selector" in failed.stderr


@pytest.mark.parametrize("name", ["browser", "sandbox-tunnels", "workflows"])
def test_a_skill_says_what_it_is_for_and_names_only_tools_that_there_are(name: str) -> None:
    text = (skills.folder() / name / "SKILL.md").read_text()
    _, front, body = text.split("---\n", 2)
    said = yaml.safe_load(front)
    assert said["name"] == name
    assert 1 <= len(said["description"]) <= 1024
    named = set(re.findall(r"\bvalet_(\w+)", body))
    assert named
    assert named <= set(BY_NAME)
