"""A real Chromium without a window, driven over its own protocol."""

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

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is; none where it fails."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    def until(self, expression: str, what: str) -> Any:
        return until(lambda: self.value(expression), limits.TURN, what)

    def type(self, text: str) -> None:
        """Type some text and the Enter key."""
        self._call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            self._call("Input.dispatchKeyEvent", type=kind, **key)

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
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        self._socket.send(json.dumps(message | ({"sessionId": self._session} if self._session else {})))
        while True:
            answer = json.loads(self._socket.recv(limits.REQUEST))
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
