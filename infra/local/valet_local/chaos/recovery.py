"""How long a part needs until it is useful again: asked from outside, by what it is there for."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import nats
import nats.errors
from nats.aio.client import RawCredentials
from valet_protocol import subjects
from valet_protocol.ids import new_id
from valet_service import broker, credentials

from valet_local.chaos import limits, plan, targets
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

    def of(self, target: str, session_id: str = "") -> Probe | None:
        """The probe of a control-plane part, of the service at the end of a link, or of a part of a session's sandbox;
        None where there is none."""
        probes: dict[str, Probe] = {
            "api": self._ready,
            "event-bus": self._synced,
            "session-ledger": self._command,
            "nats": self._command,
            "postgres": self._command,
            "sandbox-controller": self._takes_requests,
            "portal": self._door_opens,
            plan.SMALL: self._tools_answer,
            "gateway": lambda: self._gateway_lets_in(session_id, "/health"),
            "processes": lambda: self._gateway_lets_in(session_id, "/v1/processes"),
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

    async def _tools_answer(self) -> bool:
        """An agent could read what is remembered and the task board."""
        return all(
            [await ask_as_sandbox(self._stage, self._session_id, tool) for tool in ("list_memories", "list_tasks")]
        )

    async def _gateway_lets_in(self, session_id: str, path: str) -> bool:
        """Asked as a person would: for the way in, then there."""
        way = await self._http.get(f"/api/sessions/{session_id}/sandbox-token", params={"service": "processes"})
        if way.status_code != 200:
            return False
        given: dict[str, Any] = way.json()
        url, headers = f"{given['urls']['gateway']}{path}", {"Authorization": f"Bearer {given['token']}"}
        return (await self._http.get(url, headers=headers)).status_code == 200


async def ask_as_sandbox(stage: Stage, session_id: str, tool: str, **fields: object) -> dict[str, Any]:
    """A tool of a session's agent, with credentials like its runner's. Raises nats-py's errors."""
    account = credentials.key_from_seed((stage.places.keys / "account.seed").read_text())
    text = credentials.creds(
        account,
        "chaos",
        credentials.runner_permissions(session_id),
        entropy=os.urandom(32),
        now=int(time.time()),
    )
    nc = await nats.connect(
        stage.state.nats_url,
        user_credentials=RawCredentials(text),  # type: ignore[arg-type]
        inbox_prefix=subjects.runner_inbox(session_id),
        allow_reconnect=False,
        connect_timeout=1,
        error_cb=_quiet,
    )
    try:
        body = msgspec.json.encode({"session_id": session_id, "request_id": new_id(), **fields})
        answer = await nc.request(subjects.sandbox_request(session_id, tool), body, timeout=limits.TOOL_TIMEOUT)
        if answer.headers:
            raise nats.errors.Error(f"{tool} was refused: {answer.data[:200]!r}")
        return msgspec.json.decode(answer.data)
    finally:
        await broker.close(nc)


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


def replaced(stage: Stage, target: str, before: Identity, session_id: str = "") -> bool:
    """Whether another process has taken the place of one that was killed."""
    now = targets.processes(stage.places, target, session_id)
    return bool(now) and now[0] != before
