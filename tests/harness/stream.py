"""An SSE client written from the documentation alone: nothing of Valet's own client is used."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from harness import limits


class Received:
    """One server-sent event."""

    def __init__(self, seq: int, type: str, event: dict[str, Any]) -> None:
        self.seq = seq
        self.type = type
        self.event = event

    @property
    def data(self) -> dict[str, Any]:
        return self.event["data"]

    def __repr__(self) -> str:
        return f"<{self.seq} {self.type}>"


def frames(lines: Iterator[str]) -> Iterator[tuple[str | None, str, str]]:
    """(id, event, data) of each complete frame."""
    ident: str | None = None
    event, data = "message", []
    for line in lines:
        if line == "":
            if data:
                yield ident, event, "\n".join(data)
            ident, event, data = None, "message", []
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "id":
                ident = value
            elif name == "event":
                event = value
            elif name == "data":
                data.append(value)


class Follower:
    """Follows a session in a thread and resumes by `Last-Event-ID` whenever it is cut, as a browser does."""

    def __init__(self, base_url: str, token: str, session: str, after: int = 0) -> None:
        self._url = f"{base_url}/api/sessions/{session}/events"
        self._token = token
        self.cursor = after
        self.events: list[Received] = []
        self.synced = 0
        self.cuts = 0
        self.refused: httpx.Response | None = None
        self._stop = threading.Event()
        self._response: httpx.Response | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stop.set()
        self.cut()
        self._thread.join(5)

    def cut(self) -> None:
        """Cut the connection from this side."""
        response = self._response
        if response is not None:
            stream = response.extensions.get("network_stream")
            sock = stream.get_extra_info("socket") if stream else None
            if sock is not None:
                with contextlib.suppress(OSError):  # already cut
                    sock.shutdown(2)

    def wait(
        self, predicate: Callable[[Received], bool], timeout: float = limits.TURN, what: str = "an event"
    ) -> Received:
        """The first event, received or yet to come, for which the predicate holds."""
        deadline = time.monotonic() + timeout
        looked = 0
        while True:
            while looked < len(self.events):
                if predicate(self.events[looked]):
                    return self.events[looked]
                looked += 1
            if time.monotonic() > deadline:
                kinds = [event.type for event in self.events if not event.type.startswith("delta.")]
                raise AssertionError(f"waited {timeout:.0f} s for {what}; refused={self.refused}; saw {kinds}")
            time.sleep(0.02)

    def wait_type(self, type: str, timeout: float = limits.TURN, *, after: int = 0) -> Received:
        return self.wait(lambda event: event.type == type and event.seq > after, timeout, type)

    def count(self, type: str) -> int:
        return sum(event.type == type for event in self.events)

    def _run(self) -> None:
        while not self._stop.is_set():
            headers = {"Authorization": f"Bearer {self._token}", "Last-Event-ID": str(self.cursor)}
            try:
                with (
                    httpx.Client(timeout=httpx.Timeout(10, read=40)) as client,
                    client.stream("GET", self._url, headers=headers) as response,
                ):
                    if response.status_code != 200:
                        response.read()
                        self.refused = response
                    else:
                        self._response = response
                        self._consume(response)
            except httpx.HTTPError:
                pass
            self._response = None
            self.cuts += 1
            self._stop.wait(0.1)

    def _consume(self, response: httpx.Response) -> None:
        for ident, kind, data in frames(response.iter_lines()):
            if kind == "synced":
                assert ident is None, "the control frame must not carry a sequence"
                self.synced += 1
                continue
            assert ident is not None
            self.cursor = int(ident)
            self.events.append(Received(int(ident), kind, json.loads(data)))
