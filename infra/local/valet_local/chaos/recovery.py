"""How long a part needs until it is useful again: asked from outside, by what it is there for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import nats
import nats.errors
from valet_service import broker

from valet_local.chaos import limits, targets
from valet_local.chaos.stage import Stage
from valet_local.identity import Identity

Probe = Callable[[], Awaitable[bool]]
"""One attempt; whether the part did what it is there for."""


class Probes:
    """Ways to find out. `session_id` is any session that lives; it may be renamed."""

    def __init__(self, stage: Stage, session_id: str) -> None:
        self._stage = stage
        self._session_id = session_id
        self._http = httpx.AsyncClient(
            base_url=stage.direct_url,
            headers={"Authorization": f"Bearer {stage.token}"},
            timeout=limits.PROBE_TIMEOUT,
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        )
        self._named = 0

    async def close(self) -> None:
        """End its connections."""
        await self._http.aclose()

    def of(self, target: str) -> Probe | None:
        """The probe of a control-plane part, or of the service at the end of a link; None where there is none."""
        probes: dict[str, Probe] = {
            "api": self._ready,
            "event-bus": self._synced,
            "session-ledger": self._command,
            "nats": self._command,
            "postgres": self._command,
            "sandbox-controller": self._takes_requests,
            "portal": self._door_opens,
        }
        return probes.get(target.rpartition(":")[2])

    async def _ready(self) -> bool:
        return (await self._http.get("/ready")).status_code == 200

    async def _synced(self) -> bool:
        path = f"/api/sessions/{self._session_id}/events"
        async with self._http.stream("GET", path, params={"after": 0}) as response:
            if response.status_code != 200:
                return False
            async for line in response.aiter_lines():
                if line == "event: synced":
                    return True
        return False

    async def _command(self) -> bool:
        """A title is a fact: asked of the ledger, appended to the log, folded, stored, answered."""
        self._named += 1
        body = {"title": f"probed {self._named} times"}
        answer = await self._http.patch(f"/api/sessions/{self._session_id}", json=body)
        return answer.status_code in (200, 202)

    async def _takes_requests(self) -> bool:
        """The controller's consumer has somebody who waits at it for the next request."""
        nc = await nats.connect(
            self._stage.state.nats_url,
            user_credentials=self._stage.state.nats_creds,
            allow_reconnect=False,
            connect_timeout=1,
            error_cb=_quiet,
        )
        try:
            answer = await nc.request("$JS.API.CONSUMER.INFO.SESSIONS.sandbox-controller", b"", timeout=1)
            info: dict[str, Any] = msgspec.json.decode(answer.data)
            return info.get("num_waiting", 0) > 0
        finally:
            await broker.close(nc)

    async def _door_opens(self) -> bool:
        """The portal answers on its socket; that it refuses what is no request of a sandbox is an answer."""
        path: Path = self._stage.places.run / "portal" / "portal.sock"
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: portal\r\n\r\n")
            return (await reader.readline()).startswith(b"HTTP/1.1 ")
        finally:
            writer.close()


async def _quiet(_: Exception) -> None:
    """What fails here fails on purpose."""


async def until_useful(probe: Probe, most: float = limits.RECOVERY_MOST) -> bool:
    """Return when an attempt has succeeded; False when none does in time.

    A new attempt starts every moment, whatever became of those before: one that waits for a lost answer must not
    hide that the part works again.
    """
    began = time.monotonic()
    attempts: set[asyncio.Task[bool]] = set()
    try:
        while time.monotonic() - began < most:
            attempts.add(asyncio.create_task(_attempt(probe)))
            await asyncio.wait(attempts, timeout=limits.PROBE_EVERY, return_when=asyncio.FIRST_COMPLETED)
            if any(attempt.done() and attempt.result() for attempt in attempts):
                return True
            attempts = {attempt for attempt in attempts if not attempt.done()}
            await asyncio.sleep(limits.PROBE_EVERY / 4)
        return False
    finally:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)


async def _attempt(probe: Probe) -> bool:
    try:
        return await asyncio.wait_for(probe(), limits.PROBE_TIMEOUT)
    except (OSError, TimeoutError, httpx.HTTPError, nats.errors.Error, msgspec.MsgspecError):
        return False


def replaced(stage: Stage, target: str, before: Identity) -> bool:
    """Whether another process has taken the place of one that was killed."""
    now = targets.processes(stage.places, target, "")
    return bool(now) and now[0] != before
