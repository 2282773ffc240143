"""The HTTP API as a careful client uses it: every request is repeated, with the same key, until it has an answer."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from valet_local.chaos import limits
from valet_local.chaos.records import ActKind, ActRecord

_PASSING = frozenset({502, 503, 504})
"""Answers of a platform, or of something before it, that is being restarted."""


class Api:
    """One person's way to one platform. `clock` is seconds since the run began, `new_key` makes idempotency keys."""

    def __init__(
        self, url: str, token: str, *, clock: Callable[[], float], new_key: Callable[[], str], patience: float
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=limits.REQUEST_TIMEOUT,
            trust_env=False,
        )
        self._clock = clock
        self._new_key = new_key
        self._patience = patience
        self.acts: list[ActRecord] = []
        """Everything that was done, in the order of the answers."""

    async def close(self) -> None:
        """End its connections."""
        await self._http.aclose()

    async def act(
        self, kind: ActKind, session_id: str, client: str, method: str, path: str, body: object = None, about: str = ""
    ) -> ActRecord:
        """Do something and write down what came of it. `path` is below `/api/sessions/<session>`."""
        began = self._clock()
        status, answer, attempts = await self.ask(method, f"/api/sessions/{session_id}{path}", body)
        record = ActRecord(
            at=began,
            session_id=session_id,
            client=client,
            kind=kind,
            method=method,
            path=path,
            status=status,
            attempts=attempts,
            about=about,
            answer=answer,
            took=self._clock() - began,
        )
        self.acts.append(record)
        return record

    async def ask(
        self, method: str, path: str, body: object = None, **query: str | int
    ) -> tuple[int | None, dict[str, Any], int]:
        """Status (None when there was no answer at all), JSON, and how many attempts it took."""
        headers = {"Idempotency-Key": self._new_key()} if method == "POST" else {}
        content = None if body is None else msgspec.json.encode(body)
        if content is not None:
            headers["Content-Type"] = "application/json"
        deadline = time.monotonic() + self._patience
        attempts = 0
        status: int | None = None
        while True:
            attempts += 1
            try:
                response = await self._http.request(method, path, content=content, headers=headers, params=query)
                if response.status_code not in _PASSING:
                    return response.status_code, _json(response), attempts
                status = response.status_code
            except httpx.TransportError:
                status = None
            if time.monotonic() > deadline:
                return status, {}, attempts
            await asyncio.sleep(limits.REQUEST_RETRY)

    async def read(self, path: str, **query: str | int) -> dict[str, Any] | None:
        """What a GET gives; None for anything but success."""
        status, answer, _ = await self.ask("GET", path, **query)
        return answer if status == 200 else None

    async def read_all(self, path: str) -> list[dict[str, Any]]:
        """The items of every page."""
        items: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = await self.read(path, after=after) or {}
            items += page.get("items", [])
            after = page.get("next")
        return items


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return {"text": response.text[:300]}
    return answer if isinstance(answer, dict) else {"items": answer}
