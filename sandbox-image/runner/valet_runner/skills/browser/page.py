"""Drive a page in Chromium and look at it, with nothing but Python and Chromium.

    python3 page.py http://127.0.0.1:3000/ click Save wait Saved shot saved.png

Steps, done in order: `click WHAT`, `type WHAT TEXT`, `press KEY`, `wait TEXT`, `shot FILE`, `text`. WHAT is the text of
a button, link, label or field, or a CSS selector after `css=`. What the page says on its console is printed.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = {"click": 1, "type": 2, "press": 1, "wait": 1, "shot": 1, "text": 0}
PATIENCE = 15.0
"""Seconds for a page to load, and for what a step looks for to appear."""

FIND = """(what) => {
    const shown = (one) => one.getClientRects().length > 0
    if (what.startsWith('css=')) return [...document.querySelectorAll(what.slice(4))].find(shown)
    const kinds = 'button, a, input, textarea, select, label, summary, [role]'
    const all = [...document.querySelectorAll(kinds)].filter(shown)
    const texts = (one) => [one.innerText, one.value, one.placeholder, one.ariaLabel, one.title]
        .filter((text) => typeof text === 'string').map((text) => text.trim())
    const about = (one) => texts(one).some((text) => text.includes(what))
    return all.find((one) => texts(one).includes(what)) ?? all.find(about)
}"""


class Failed(Exception):
    """A step cannot be done; says why."""


class Page:
    """One page, by Chromium's own protocol on two pipes."""

    def __init__(self, folder: str, width: int, height: int) -> None:
        browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
        if browser is None:
            raise Failed(f"there is no browser here ({', '.join(BROWSERS)})")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--remote-debugging-pipe"]
        command = [browser, *flags, f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}', *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = bytearray()
        self._count = 0
        self._session: str | None = None
        self._loaded = False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.ask(f"{part}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One command's result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self._happened(answer)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def go(self, url: str) -> None:
        """Open an address and wait until it is loaded."""
        self._loaded = False
        if error := self.ask("Page.navigate", url=url).get("errorText"):
            raise Failed(f"{url} cannot be opened: {error}")
        self._until(lambda: self._loaded, f"{url} to be loaded")

    def value(self, script: str, *arguments: str) -> Any:
        """What a function of JavaScript gives."""
        call = f"({script})({', '.join(map(json.dumps, arguments))})"
        result = self.ask("Runtime.evaluate", expression=call, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failed(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def text(self) -> str:
        """The page's text, as it is seen."""
        return self.value("() => document.body?.innerText ?? ''")

    def wait(self, text: str) -> None:
        """Until the page has this text."""
        self._until(lambda: text in self.text(), f"{text!r} to appear")

    def click(self, what: str) -> None:
        """In the middle of it."""
        place = f"""(what) => {{
            const found = ({FIND})(what)
            if (!found) return null
            found.scrollIntoView({{ block: 'center', behavior: 'instant' }})
            const box = found.getBoundingClientRect()
            return [box.x + box.width / 2, box.y + box.height / 2]
        }}"""
        x, y = self._until(lambda: self.value(place, what), f"{what!r} to appear")
        for type_ in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=type_, x=x, y=y, button="left", clickCount=1)

    def type(self, what: str, text: str) -> None:
        """Into a field."""
        self.click(what)
        self.ask("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """A key by its name, e.g. `Enter`."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40}.get(key, 0)
        text = {"text": "\r"} if key == "Enter" else {}
        for type_ in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=type_, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def shot(self, file: str) -> None:
        """The whole page as a PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path = Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
        print(f"{file}: {size['width']} x {size['height']}")

    def _until(self, look: Any, what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            if time.monotonic() > deadline:
                raise Failed(f"waited {PATIENCE:.0f} s for {what}; the page says: {self.text()[:500]!r}")
            time.sleep(0.1)
            self.value("() => 0")  # takes in what has happened
        return found

    def _next(self) -> dict[str, Any]:
        while (end := self._buffer.find(b"\0")) < 0:
            data = os.read(self._in, 1 << 16)
            if not data:
                raise Failed("the browser has ended")
            self._buffer += data
        message = json.loads(self._buffer[:end])
        del self._buffer[: end + 1]
        return message

    def _happened(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.consoleAPICalled":
                words = [str(each.get("value", each.get("description", ""))) for each in params["args"]]
                print(f"console {params['type']}:", *words)
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                print("error:", details.get("exception", {}).get("description", details["text"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                print("error:", params["entry"]["text"], params["entry"].get("url", ""))
            case "Page.javascriptDialogOpening":  # it would wait for ever
                print("dialog:", params["message"])
                message = {"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                os.write(self._out, json.dumps({**message, "sessionId": self._session}).encode() + b"\0")
            case _:
                pass


def main() -> int:
    """Exit status 1 where a step cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1280x800", help="of the window, e.g. 390x844 for a telephone")
    parser.add_argument("url")
    parser.add_argument("steps", nargs="*")
    given = parser.parse_args()
    steps: list[list[str]] = []
    rest: list[str] = given.steps
    while rest:
        count = ARGUMENTS.get(rest[0])
        if count is None or len(rest) <= count:
            parser.error(f"{rest[0]!r} is no step, or lacks its words; steps are {', '.join(ARGUMENTS)}")
        steps.append(rest[: count + 1])
        rest = rest[count + 1 :]
    width, _, height = given.size.partition("x")
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as folder:
        page = None
        try:
            page = Page(folder, int(width), int(height))
            page.go(given.url)
            for name, *words in steps:
                done = getattr(page, name)(*words)
                if name == "text":
                    print(done)
        except Failed as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        finally:
            if page:
                page.process.kill()
                page.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
