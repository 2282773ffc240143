"""What a person sees of a sandbox in a browser: the terminal, and the desktop where the machine has one."""

import shutil
from pathlib import Path

import pytest
from harness.browser import CHROMIUM, Page, address
from harness.platform import Platform

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: chromium)")

DESKTOP = ("Xvfb", "fluxbox", "x11vnc", "websockify")


@pytest.fixture(scope="module")
def session(platform: Platform) -> str:
    return platform.create(title="seen in a browser")["id"]


def test_a_person_works_in_the_terminal(platform: Platform, session: str, page: Page, tmp_path: Path) -> None:
    page.open(address(platform, session, "ttyd"))
    rows = "document.querySelector('.xterm-rows')?.innerText ?? ''"
    page.until(f"({rows}).includes('$')", "the shell's prompt")
    assert page.value("location.search") == ""  # the token is not in the address any more
    page.type("echo seen-$((40 + 2))")
    page.until(f"({rows}).includes('seen-42')", "what the shell answers")
    assert len(page.screenshot(tmp_path / "terminal.png")) > 2_000


def test_the_terminal_draws_every_colour_and_answers_no_question_twice(
    platform: Platform, session: str, page: Page
) -> None:
    page.open(address(platform, session, "ttyd"))
    rows = "(document.querySelector('.xterm-rows')?.innerText ?? '')"
    page.until(f"{rows}.includes('$')", "the shell's prompt")
    page.type("clear; printf '\\e[38;2;255;100;0morange\\e[0m'; echo; echo drawn-$((40 + 2))")
    page.until(f"{rows}.includes('drawn-42')", "what the shell answers")
    orange = "[...document.querySelectorAll('.xterm-rows span')].find(each => each.innerText === 'orange')"
    assert page.value(f"getComputedStyle({orange}).color") == "rgb(255, 100, 0)"
    # a program asks the terminal what it is; a page that comes later sees the question, and the answer is long given
    page.type("printf '\\e[c'; read -rst 5 -d c answer; echo asked-$((40 + 3)) ${#answer}")
    page.until(f"/asked-43 [1-9]/.test({rows})", "the terminal's answer")
    page.reload()
    page.until(f"/asked-43 [1-9]/.test({rows})", "the output so far")
    page.type("echo again-$((40 + 4))")
    page.until(f"{rows}.includes('again-44')", "what the shell answers now")
    assert page.value(f"/[$#] echo again-/.test({rows})"), page.value(rows)


def test_emoji_and_wide_characters_take_two_columns(platform: Platform, session: str, page: Page) -> None:
    page.open(address(platform, session, "ttyd"))
    rows = "(document.querySelector('.xterm-rows')?.innerText ?? '')"
    page.until(f"{rows}.includes('$')", "the shell's prompt")
    # the terminal is asked where its cursor is after one of each
    ask = "IFS=';' read -rs -t 80 -d R -p $'\\e[6n' row column"
    page.type(f"clear; printf '\\n🚀漢'; {ask}; echo; echo wide-$((40 + 5)) $column")
    page.until(f"/wide-45 [0-9]/.test({rows})", "the terminal's answer")
    assert page.value(f"{rows}.match(/wide-45 ([0-9]+)/)[1]") == "5", page.value(rows)


@pytest.mark.skipif(
    any(shutil.which(program) is None for program in DESKTOP) or not Path("/usr/share/novnc").is_dir(),
    reason=f"no desktop on this machine (Debian: {' '.join(DESKTOP).lower()} novnc)",
)
def test_a_person_sees_the_desktop(platform: Platform, session: str, page: Page, tmp_path: Path) -> None:
    with platform.follow(session) as follower:  # what may be missing is offered when the boot is over
        follower.wait(
            lambda event: event.type == "agent.boot_step_completed" and event.data["step"] == "desktop",
            what="the desktop to be offered",
        )
    page.open(address(platform, session, "vnc"))
    page.until("document.documentElement.classList.contains('noVNC_connected')", "noVNC to be connected")
    size = "[...document.querySelectorAll('canvas')].map(each => [each.width, each.height]).find(([w]) => w > 300)"
    assert page.until(size, "the desktop's size") == [1920, 1080]
    # one frame with more than one colour: a window manager draws its bar
    colours = """(() => {
        const canvas = [...document.querySelectorAll('canvas')].find(each => each.width > 300)
        const shown = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
        return new Set(new Uint32Array(shown.data.buffer)).size > 1
    })()"""
    page.until(colours, "a frame of the desktop")
    assert len(page.screenshot(tmp_path / "desktop.png")) > 2_000
