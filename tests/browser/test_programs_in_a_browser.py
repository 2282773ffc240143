"""What a person sees of code-server and of a ttyd of the machine's own, behind a sandbox's gateway in a real Chromium.

Neither is in Debian's stable release, so most machines skip this. Where they are outside of /usr, sandboxes with a file
system of their own do not see them: then it is a platform without isolation.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness import limits
from harness.browser import CHROMIUM, Page, address
from harness.platform import CONFIG, Model, Platform
from harness.waiting import until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: chromium)")
has_editor = pytest.mark.skipif(shutil.which("code-server") is None, reason="no code-server (npm: code-server)")
has_ttyd = pytest.mark.skipif(shutil.which("ttyd") is None, reason="no ttyd on this machine")


class Place:
    """A session on a platform whose sandboxes see the programs."""

    def __init__(self, platform: Platform, *, alone: bool) -> None:
        self.platform = platform
        self._alone = alone  # the only session there
        self.session = platform.create(title="worked on in a browser")["id"]
        self.workspace = platform.data_dir / "sandboxes" / self.session / "workspace"

    def address(self, service: str) -> str:
        return address(self.platform, self.session, service)

    def gateway(self) -> int:
        """The process of this sandbox's gateway."""

        def search() -> int | None:
            for process in self.platform.own():
                with contextlib.suppress(psutil.Error):
                    if "valet_gateway" in process.cmdline() and self._is_ours(process):
                        return process.pid
            return None

        return until(search, limits.READY, "the sandbox's gateway")

    def _is_ours(self, process: psutil.Process) -> bool:
        return any(self.session in " ".join(each.cmdline()) for each in process.parents()) or self._alone


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = [path for path in map(shutil.which, ("code-server", "ttyd")) if path]
    if all(Path(path).resolve().is_relative_to("/usr") for path in found):
        yield Place(request.getfixturevalue("platform"), alone=False)
        return
    folder = tmp_path_factory.mktemp("open")
    platform = Platform(folder, model.url, config=CONFIG + 'isolation = "none"\n').start()
    yield Place(platform, alone=True)
    platform.stop()


@pytest.fixture(scope="module")
def editor(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The workbench, opened before the boot of its sandbox is over."""
    page = Page(tmp_path_factory.mktemp("editor") / "profile")
    page.open(place.address("vscode"))
    with place.platform.follow(place.session) as follower:
        follower.wait(
            lambda event: event.type == "agent.boot_step_completed" and event.data["step"] == "vscode",
            what="the editor to be offered",
        )
    page.until(WORKBENCH, "the workbench")
    yield page
    page.close()


WORKBENCH = "document.querySelector('.monaco-workbench .explorer-folders-view') !== null"
LINES = "(document.querySelector('.editor-instance .view-lines')?.innerText ?? '').replaceAll('\\u00a0', ' ')"
BOX = "document.activeElement?.closest('.quick-input-widget') != null"


def open_file(editor: Page, name: str) -> None:
    editor.press("p", control=True)
    editor.until(BOX, "the box for a file's name")
    editor.insert(name)
    editor.until(f"document.querySelector('.quick-input-list .focused')?.innerText.includes('{name}')", name)
    editor.press("Enter")


def saved(path: Path, text: str) -> None:
    until(lambda: path.exists() and text in path.read_text(), limits.TURN, f"{text} in {path.name}")


@has_editor
def test_a_person_edits_a_file_of_the_workspace(place: Place, editor: Page, tmp_path: Path) -> None:
    notes = place.workspace / "notes.txt"
    notes.write_text("written-by-the-agent\n")
    open_file(editor, "notes.txt")
    editor.until(f"{LINES}.includes('written-by-the-agent')", "the file's text")
    assert editor.value("location.search").startswith("?folder=")  # the token is not in the address any more
    notes.write_text("rewritten-by-the-agent\n")
    editor.until(f"{LINES}.includes('rewritten-by-the-agent')", "what the agent wrote since")
    editor.click(".editor-instance .view-lines")
    editor.press("End", control=True)
    editor.insert("edited-by-a-person")
    editor.press("s", control=True)
    saved(notes, "rewritten-by-the-agent\nedited-by-a-person")
    assert len(editor.screenshot(tmp_path / "editor.png")) > 10_000


@has_editor
def test_a_command_runs_in_the_editors_terminal(place: Place, editor: Page, tmp_path: Path) -> None:
    editor.press("F1")
    editor.until(BOX, "the box for a command")
    editor.insert("Terminal: Create New Terminal")
    editor.until("document.querySelector('.quick-input-list .focused')?.innerText.includes('Terminal')", "the command")
    editor.press("Enter")
    editor.until("document.activeElement?.classList.contains('xterm-helper-textarea')", "a terminal")
    editor.type("echo sum-$((40 + 2)) in ${PWD##*/} > told.txt")
    saved(place.workspace / "told.txt", "sum-42 in workspace")
    assert len(editor.screenshot(tmp_path / "terminal.png")) > 10_000


@has_editor
def test_the_editor_is_loaded_again_with_its_cookie_alone(editor: Page) -> None:
    editor.value("window.old = true")
    editor.reload()
    editor.until(f"window.old === undefined && {WORKBENCH}", "the workbench once more")


@has_editor
def test_the_editor_goes_on_when_the_gateway_was_killed(place: Place, editor: Page, tmp_path: Path) -> None:
    (place.workspace / "earlier.txt").write_text("there\n")
    until(lambda: _shows(editor, "earlier.txt"), limits.TURN, "the editor to be connected")
    old = place.gateway()
    os.kill(old, signal.SIGKILL)
    until(lambda: place.gateway() != old, limits.READY, "another gateway")
    # by itself, without another page: it is the same workbench that saves
    editor.value("window.same = true")

    def shown() -> bool:
        # another one each second: what came while it was not connected it may never be told
        (place.workspace / f"later-{int(time.time())}.txt").write_text("there-since-then\n")
        return _shows(editor, "later-")

    until(shown, limits.TURN, "a file that is new")
    open_file(editor, "later-")
    editor.until(f"{LINES}.includes('there-since-then')", "the file's text")
    assert editor.value("window.same")
    assert len(editor.screenshot(tmp_path / "again.png")) > 10_000


def _shows(editor: Page, name: str) -> bool:
    return name in (editor.value("document.querySelector('.explorer-folders-view')?.innerText") or "")


@has_ttyd
def test_a_person_works_in_a_ttyd_of_the_machine(place: Place, page: Page, tmp_path: Path) -> None:
    page.open(place.address("ttyd"))
    rows = """(() => {
        const shown = window.term?.buffer.active
        const line = (_, number) => shown.getLine(number).translateToString(true)
        return shown && Array.from({length: shown.length}, line).join('\\n')
    })()"""
    page.until(f"/[$#] *$/m.test({rows} ?? '')", "the shell's prompt")
    page.click("#terminal-container")
    page.type("echo seen-$((40 + 2)) in ${PWD##*/}, $(stty size)")
    size = page.value("`${window.term.rows} ${window.term.cols}`")
    page.until(f"{rows}.includes('seen-42 in workspace, {size}')", "what the shell answers")
    assert len(page.screenshot(tmp_path / "ttyd.png")) > 2_000
