"""A whole run: the platform, its people and its troubles, then the rest, then the checks."""

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from valet_protocol.ids import new_id

from valet_local.bench import machine
from valet_local.chaos import checker, limits, plan, raw_log, report
from valet_local.chaos.api import Api
from valet_local.chaos.check_prompts import text
from valet_local.chaos.drivers import People
from valet_local.chaos.errors import ChaosFailed
from valet_local.chaos.faults import Ears, Trouble, marked_alone
from valet_local.chaos.plan import Schedule
from valet_local.chaos.raw_log import Tap
from valet_local.chaos.records import ClientRecord, History, SessionRecord, Stored
from valet_local.chaos.recovery import Probes, ask_as_sandbox
from valet_local.chaos.report import ChaosReport
from valet_local.chaos.stage import Stage
from valet_local.chaos.terminals import Terminal
from valet_local.chaos.watchers import Client, SseClient, WsClient
from valet_local.cli.scripted_model import playing

Tell = Callable[[str], None]
"""Told what is being done."""

_RESTING = frozenset({"ready", "hibernated", "failed", "terminated"})


def run(planned: Schedule, *, tell: Tell, keep: Path | None = None) -> ChaosReport:
    """Carry a schedule out. Raises `LocalError`s when that is not possible.

    `keep` is a directory for the platform's files and the history, which then stay; otherwise they stay, in a temporary
    directory that is named, only if there is a violation.
    """
    folder = Path(tempfile.mkdtemp(prefix="valet-chaos-")) if keep is None else keep
    folder.mkdir(parents=True, exist_ok=True)
    load, began = machine.load(), time.monotonic()
    scenario = str(resources.files("valet_local.chaos") / "scenario.toml")
    spoiled = True
    try:
        with playing(scenario) as model_url:
            history = uvloop.run(_Run(planned, folder, model_url, tell).history())
        violations = checker.check(history)
        made = report.make(planned, history, violations, machine=machine.describe(load), took=time.monotonic() - began)
        spoiled = bool(violations)
        if spoiled or keep is not None:
            (folder / "history.json").write_bytes(msgspec.json.encode(history))
            (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(made)))
        return made
    finally:
        if spoiled:
            tell(f"what the platform left is kept in {folder}")
        elif keep is None:
            shutil.rmtree(folder, ignore_errors=True)


class _Run:
    """One run on one platform."""

    def __init__(self, planned: Schedule, folder: Path, model_url: str, tell: Tell) -> None:
        self._planned = planned
        self._folder = folder
        self._model_url = model_url
        self._tell = tell
        self._began = time.monotonic()
        self._ears = Ears()
        self._clients: list[Client] = []
        self._following: list[asyncio.Task[None]] = []
        self._terminals: list[Terminal] = []
        self._sources: dict[str, str] = {}
        """Session → the one it was forked from; empty for those that were not."""

    def clock(self) -> float:
        """Seconds since the sessions were there."""
        return time.monotonic() - self._began

    async def history(self) -> History:
        self._tell("starting a platform whose connections can be cut")
        async with Stage(self._folder / "d", self._model_url) as stage:
            self._stage = stage
            self._tap = Tap(stage.state, self._ears.hear)
            tapping = asyncio.create_task(self._tap.run())
            self._api = Api(stage.url, stage.token, clock=self.clock, new_key=new_id, patience=limits.REQUEST_PATIENCE)
            try:
                return await self._work()
            finally:
                for task in (tapping, *self._following):
                    task.cancel()
                await asyncio.gather(tapping, *self._following, return_exceptions=True)
                await self._api.close()

    async def _work(self) -> History:
        sessions = await self._sessions()
        people = People(self._api, sessions, self._planned.acts, clock=self.clock, forked=self._follow_fork)
        probes = Probes(self._stage, sessions[0])

        async def wake(session_id: str) -> None:
            await people.send("prompt", session_id, "trouble", "rest")

        trouble = Trouble(
            self._stage,
            probes,
            self._ears,
            sessions=sessions,
            clock=self.clock,
            cut_client=lambda choice: self._clients[choice % len(self._clients)].cut(),
            wake=wake,
        )
        forget = self._ears.listen(people.hear)
        try:
            await self._faults_and_people(people, trouble)
        finally:
            trouble.release()
        self._tell("the faults are over; waiting until every session rests")
        closing = await self._close_sessions(people)
        forget()
        await probes.close()
        return await self._collect(closing, trouble)

    async def _sessions(self) -> list[str]:
        """Sessions that work, each followed by its clients."""
        self._screen = WsClient(self._stage.url, self._stage.token, "screen", self.clock)
        self._clients.append(self._screen)
        self._following.append(asyncio.create_task(self._screen.run()))
        sessions: list[str] = []
        for number in range(self._planned.sessions):
            status, view, _ = await self._api.ask("POST", "/api/sessions", {"title": f"number {number}"})
            if status != 201:
                raise ChaosFailed(f"a session was refused before any fault: {status} {view}")
            await self._follow(str(view["id"]), plan.CLIENTS)
            sessions.append(str(view["id"]))
        self._tell(f"waiting for {len(sessions)} agents to start")
        deadline = time.monotonic() + limits.FIRST_TURN
        for session_id in sessions:
            while (view := await self._view(session_id)).get("status") != "ready":
                if time.monotonic() > deadline or view.get("status") == "failed":
                    raise ChaosFailed(f"session {session_id} was not ready before any fault: {view}")
                await asyncio.sleep(limits.POLL * 5)
        for session_id in sessions:
            terminal = Terminal(self._stage.url, self._stage.token, session_id)
            self._terminals.append(terminal)
            self._following.append(asyncio.create_task(terminal.run()))
        self._began = time.monotonic()
        return sessions

    async def _follow(self, session_id: str, count: int, source: str = "") -> None:
        self._sources[session_id] = source
        for number in range(count):
            client = SseClient(
                self._stage.url, self._stage.token, session_id, f"{len(self._clients)}/{number}", self.clock
            )
            self._clients.append(client)
            self._following.append(asyncio.create_task(client.run()))
        await self._screen.add(session_id)

    async def _follow_fork(self, session_id: str, source: str) -> None:
        await self._follow(session_id, 1, source)

    async def _faults_and_people(self, people: People, trouble: Trouble) -> None:
        self._tell(
            f"{len(self._planned.acts)} actions and {len(self._planned.faults)} faults in {self._planned.seconds:g} s"
        )
        troubles: list[asyncio.Task[None]] = []
        working = asyncio.create_task(people.run())
        for number, fault in enumerate(self._planned.faults):
            await asyncio.sleep(max(0.0, fault.at - self.clock()))
            self._tell(f"{self.clock():7.1f} s  {fault.kind} {fault.target}")
            troubles.append(asyncio.create_task(trouble.make(number, fault)))
        await asyncio.gather(*troubles)
        await working

    async def _close_sessions(self, people: People) -> dict[str, str]:
        """A last prompt for everybody; the prompt of each session. Returns when all rest, or the time is up."""
        closing: dict[str, str] = {}
        deadline = time.monotonic() + limits.REST
        seen: set[str] = set()
        # a prompt that waited may have the agent spawn a child only now
        while fresh := [session_id for session_id in self._sources if session_id not in seen]:
            seen.update(fresh)
            for session_id in fresh:
                if (await self._view(session_id)).get("status") not in ("terminated", "failed"):
                    sent = await people.send("prompt", session_id, "end", "rest")
                    closing[session_id] = str(sent.answer.get("prompt_id", ""))
            for session_id in fresh:
                await self._until_rest(session_id, deadline)
            await people.done()
        return closing

    async def _until_rest(self, session_id: str, deadline: float) -> None:
        """Return when the session rests, stands still, or the time is up. The checker tells these apart."""
        before: tuple[object, ...] = ()
        moved = time.monotonic()
        while _unrest(view := await self._view(session_id)) and time.monotonic() < deadline:
            now = (view.get("active_turn", {}), len(view.get("queued", [])), len(view.get("questions", [])))
            if now != before:
                before, moved = now, time.monotonic()
            if time.monotonic() - moved > limits.STANDSTILL:
                return
            await asyncio.sleep(limits.POLL * 5)

    async def _view(self, session_id: str) -> dict[str, Any]:
        return await self._api.read(f"/api/sessions/{session_id}") or {}

    # -- what is left to look at

    async def _collect(self, closing: dict[str, str], trouble: Trouble) -> History:
        self._tell("reading the log and what every client got")
        stream = await raw_log.read_all(self._stage.state)
        await self._until_clients_have(stream)
        sessions = [await self._session(session_id, closing, stream) for session_id in tuple(self._sources)]
        memories = await self._all("list_memories", "before")
        tasks = await self._all("list_tasks", "after")
        self._tell("comparing the read models with a rebuild")
        rebuild = await asyncio.to_thread(_verify, self._stage.places.data)
        last = stream[-1].seq if stream else 0
        return History(
            stream=stream,
            tapped=self._tap.deltas,
            clients=[_until(record, last) for client in self._clients for record in client.records()],
            acts=self._api.acts,
            faults=marked_alone(trouble.records),
            sessions=sessions,
            terminals=[record for terminal in self._terminals for record in terminal.records()],
            memories=[str(item["content"]) for item in memories],
            tasks=[str(item["title"]) for item in tasks],
            rebuild=rebuild,
        )

    async def _all(self, tool: str, cursor: str) -> list[dict[str, Any]]:
        """Every page of what an agent could read."""
        session_id = next(iter(self._sources))
        items: list[dict[str, Any]] = []
        more: dict[str, object] = {}
        while True:
            page = await ask_as_sandbox(self._stage, session_id, tool, **more)
            items += page["items"]
            if page.get("next") is None:
                return items
            more = {cursor: page["next"]}

    async def _until_clients_have(self, stream: list[Stored]) -> None:
        """Give every client the time to get the end of its session. One that does not is found by the checker."""
        ends = {event.session_id: event.seq for event in stream}
        deadline = time.monotonic() + limits.ARRIVE
        for client in self._clients:
            while any(cursor < ends.get(session_id, 0) for session_id, cursor in client.cursors().items()):
                if time.monotonic() > deadline:
                    return
                await asyncio.sleep(limits.POLL)

    async def _session(self, session_id: str, closing: dict[str, str], stream: list[Stored]) -> SessionRecord:
        view = await self._view(session_id)
        unrest = _unrest(view)
        diff = await self._api.read(f"/api/sessions/{session_id}/diff") or {}
        return SessionRecord(
            session_id=session_id,
            status=str(view.get("status", "unknown")),
            detail=str(view.get("status_detail", "")),
            at_rest=not unrest,
            closing=_became(closing.get(session_id, ""), stream),
            unrest=unrest,
            patch=str(diff.get("patch", "")),
            truncated=bool(diff.get("truncated", False)),
            prompts=await self._prompts(session_id),
            source=self._sources[session_id],
        )

    async def _prompts(self, session_id: str) -> dict[str, str]:
        items = await self._api.read_all(f"/api/sessions/{session_id}/prompts")
        return {str(item["prompt_id"]): str(item["status"]) for item in items}


def _unrest(view: dict[str, Any]) -> str:
    """What a session still waits for; empty when it rests."""
    reasons = [
        f"it is {view.get('status')}" if view.get("status") not in _RESTING else "",
        f"turn {view['active_turn']['turn_id']} runs" if view.get("active_turn") else "",
        f"{len(view['queued'])} prompts wait" if view.get("queued") else "",
        f"{len(view['questions'])} questions are open" if view.get("questions") else "",
        f"{len(view['commands'])} commands are pending" if view.get("commands") else "",
    ]
    if view.get("status") in ("terminated", "failed"):
        return ""
    return "; ".join(reason for reason in reasons if reason)


def _became(prompt_id: str, stream: list[Stored]) -> str:
    """How a prompt's turn ended."""
    turn = next(
        (
            text(event, "turn_id")
            for event in stream
            if event.type == "fact.turn_dispatched" and text(event, "prompt_id") == prompt_id
        ),
        "",
    )
    for event in stream:
        if turn and event.type == "agent.turn_ended" and text(event, "turn_id") == turn:
            return text(event, "status")
    return "never dispatched" if not turn else "without an end"


def _until(record: ClientRecord, last: int) -> ClientRecord:
    return msgspec.structs.replace(record, received=[event for event in record.received if event.seq <= last])


def _verify(data_dir: Path) -> str:
    """What `valet ledger rebuild --verify` has against the read models; empty when they are equal."""
    command = [sys.executable, "-c", "from valet_local.cli import main; main()"]
    command += ["ledger", "rebuild", "--verify", "--data-dir", str(data_dir)]
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limits.VERIFY, check=False
        )
        if done.returncode == 0:
            return ""
        return (done.stdout + done.stderr).strip()[-2000:] or f"it ended with status {done.returncode}"
    return f"it did not end within {limits.VERIFY:g} s"
