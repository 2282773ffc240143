"""A real Chromium without a window, driven over its own protocol; the addresses of a sandbox's services."""

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from harness import limits
from harness.platform import Platform
from harness.waiting import until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
"""Without these it asks its maker's servers for this and that, and waits where there is no way to them."""

_KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "End": ("End", 35, ""),
    "F1": ("F1", 112, ""),
}
"""By key: its place on the keyboard, its number, the text it makes."""

_REPLACED = -32000
"""The error of a call whose page was left meanwhile."""


class Page:
    """One page of a browser of its own, in a profile of its own."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM
        self._process = subprocess.Popen(
            [
                CHROMIUM,
                *_QUIET,
                "--remote-debugging-port=0",
                "--window-size=1280,800",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        told = folder / "DevToolsActivePort"

        def port() -> list[str] | None:
            assert self._process.poll() is None, "the browser ended"
            lines = told.read_text().split() if told.exists() else []
            return lines if len(lines) == 2 else None

        number, path = until(port, limits.READY, "the browser")
        self._ids = itertools.count(1)
        self._closing = contextlib.ExitStack()
        way = connect(f"ws://127.0.0.1:{number}{path}", max_size=None, proxy=None)
        self._socket = self._closing.enter_context(way)
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is; none where it fails, or the page is just replaced by another."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if answer.get("error", {}).get("code") == _REPLACED:
            return None
        result = _result("Runtime.evaluate", answer)
        return None if "exceptionDetails" in result else result["result"].get("value")

    def until(self, expression: str, what: str) -> Any:
        return until(lambda: self.value(expression), limits.TURN, what)

    def type(self, text: str) -> None:
        """Type some text and the Enter key."""
        self.insert(text)
        self.press("Enter")

    def insert(self, text: str) -> None:
        """Type some text."""
        self._call("Input.insertText", text=text)

    def press(self, key: str, *, control: bool = False) -> None:
        """Press one key: a letter, or one of `_KEYS`."""
        code, number, text = _KEYS.get(key) or (f"Key{key.upper()}", ord(key.upper()), key)
        held = {"modifiers": 2} if control else {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number, **held)

    def click(self, selector: str) -> None:
        """Click into the middle of an element."""
        box = f"(() => {{ const b = document.querySelector({json.dumps(selector)})?.getBoundingClientRect();"
        x, y = self.until(f"{box} return b && [b.x + b.width / 2, b.y + b.height / 2] }})()", selector)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def resize(self, width: int, height: int) -> None:
        """Of the window, in pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def reload(self) -> None:
        self._call("Page.reload")

    def screenshot(self, path: Path) -> bytes:
        """A PNG of what is to be seen, also kept as a file."""
        picture = base64.b64decode(self._call("Page.captureScreenshot")["data"])
        path.write_bytes(picture)
        return picture

    def close(self) -> None:
        self._closing.close()
        self._process.terminate()
        self._process.wait(limits.STOP)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return _result(method, self._ask(method, **params))

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            answer = json.loads(self._socket.recv(limits.REQUEST))
            if answer.get("method") == "Page.javascriptDialogOpening":  # "Leave site?"
                leave = {"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                self._socket.send(json.dumps(leave | {"sessionId": answer["sessionId"]}))
            if answer.get("id") == number:
                return answer


def _result(method: str, answer: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in answer, f"{method}: {answer['error']}"
    return answer["result"]


def address(platform: Platform, session: str, service: str) -> str:
    """Where a service of a session's sandbox is, with a token for it."""

    def asked() -> str | None:
        path = f"/api/sessions/{session}/sandbox-token"
        response = platform.request("GET", path, params={"service": service})
        if response.status_code != 200:
            return None
        way = response.json()
        return f"{way['urls'][service]}?token={way['token']}"

    return until(asked, limits.TURN, "the sandbox's gateway")
