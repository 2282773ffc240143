"""Claims about what a sandbox has beside OpenCode: gateway, process service, tools, and what of them the agent sees.

Real: the runner, OpenCode, gateway, process service, tools, nats-server. Not real: the model, the ledger, the portal.
"""

import asyncio
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from valet_local.model import ScriptedModel
from valet_protocol.events import agent, facts, machine
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner import optional_services
from valet_runner.testing import WAIT, Broker, Ledger, Runner, condition
from valet_service import sandbox_token

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = sandbox_token.key(b"s" * 32, "here")


class Sandbox:
    """A session whose sandbox has a gateway."""

    def __init__(self, spec: RunnerSpec, log: Ledger, folder: Path) -> None:
        self.spec = spec
        self.log = log
        self.runner = Runner(spec, folder)

    def pid(self, module: str) -> int | None:
        """The process that runs one of our modules."""
        return next((pid for pid, command in self.runner.children() if f"-m {module}" in command), None)

    async def kill(self, module: str) -> None:
        """SIGKILL, then wait until it is said and another one runs."""
        mark, old = len(self.log.events), self.pid(module)
        assert old
        os.kill(old, signal.SIGKILL)
        name = module.removeprefix("valet_")
        for state in ("stopped", "running"):
            await self.log.until(
                machine.ServiceChanged, lambda said, s=state: (said.service, said.state) == (name, s), after=mark
            )

    def person(self, *, sub: str = "u1", service: sandbox_token.Service = "*") -> aiohttp.ClientSession:
        """A client of the gateway with a token."""
        claims = sandbox_token.Claims(sub=sub, sid=self.spec.session_id, svc=service, exp=int(time.time()) + 600)
        token = sandbox_token.mint(self.spec.gateway_key, claims)
        assert self.spec.gateway_socket
        connector = aiohttp.UnixConnector(self.spec.gateway_socket)
        return aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {token}"})

    async def ask(self, verb: str, path: str, body: Any = None) -> Any:
        """Through the gateway, as a person."""
        async with self.person() as http, http.request(verb, f"http://gateway{path}", json=body) as response:
            return await _content(response)

    async def opencode(self, path: str) -> Any:
        """Ask OpenCode through the gateway, as the platform; again while the gateway has not been told yet."""
        async with self.person(sub=sandbox_token.PLATFORM, service="opencode") as http, asyncio.timeout(WAIT):
            while True:
                async with http.get(f"http://gateway/opencode{path}") as response:
                    if response.status < 500:
                        return await _content(response)
                await asyncio.sleep(0.05)

    async def ended(self, turn: str) -> agent.TurnEnded:
        return (await self.log.until(agent.TurnEnded, lambda ended: ended.turn_id == turn)).data


async def _content(response: aiohttp.ClientResponse) -> Any:
    content = await response.read()
    assert response.status < 300, content
    return msgspec.json.decode(content) if "json" in response.content_type else content


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(new_spec: Callable[[], RunnerSpec], nats: Broker, folder: Path) -> AsyncIterator[Sandbox]:
    """Its gateway cannot start at first, because somebody has its port."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    spec = msgspec.structs.replace(
        new_spec(),
        gateway_key=KEY,
        gateway_socket=str(folder / "gw.sock"),
        gateway_port=taken.getsockname()[1],
        persona={"style.md": "PERSONA: be brief."},
    )
    async with Ledger(nats.url, spec.session_id) as log:
        sandbox = Sandbox(spec, log, folder / spec.session_id)
        sandbox.runner.start()
        try:
            await log.until(agent.RunnerReady)
            taken.close()
            await log.until(machine.ServiceChanged, lambda said: said.service == "gateway")
            yield sandbox
        finally:
            sandbox.runner.close()
            print(sandbox.runner.log())


async def test_every_step_of_a_boot_is_said_with_how_long_it_took(sandbox: Sandbox) -> None:
    wanted = {"environment", "git", "clone", "persona", "processes", "opencode"}
    for step in wanted | {"gateway", "desktop", "vscode", "terminal"}:
        await sandbox.log.until(machine.BootStepCompleted, lambda said, s=step: said.step == s)
    steps = {said.step: said for said in sandbox.log.said(machine.BootStepCompleted)}
    assert {name: steps[name].outcome for name in wanted} == dict.fromkeys(wanted, "ok")
    assert steps["opencode"].ms > 0
    assert len(steps) == len(sandbox.log.said(machine.BootStepCompleted))


async def test_a_gateway_that_fails_does_not_fail_the_boot_and_its_tools_are_there_when_it_comes(
    sandbox: Sandbox, model: ScriptedModel
) -> None:
    failed = await sandbox.log.until(machine.BootStepCompleted, lambda said: said.step == "gateway")
    ready = await sandbox.log.until(agent.RunnerReady)
    came = await sandbox.log.until(machine.ServiceChanged, lambda said: said.service == "gateway")
    assert failed.data.outcome == "failed"
    assert failed.seq < ready.seq < came.seq
    assert came.data.state == "running"
    async with asyncio.timeout(WAIT):
        while (await sandbox.opencode("/mcp"))["valet"]["status"] != "connected":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    turn = await sandbox.log.dispatch("say tools")
    assert (await sandbox.ended(turn)).status == "completed"
    assert "valet_register_tunnel" in model.requests[-1].tools


async def test_the_agent_is_offered_the_tools_and_told_who_it_is(sandbox: Sandbox, model: ScriptedModel) -> None:
    turn = await sandbox.log.dispatch("call valet_list_models")
    assert (await sandbox.ended(turn)).status == "completed"
    assert "valet_list_models" in model.requests[-1].tools
    called = await sandbox.log.until(agent.ToolUpdated, lambda tool: tool.status == "completed", turn=turn)
    assert "scripted-1" in (called.data.output or "")
    assert {"browser", "sandbox-tunnels"} <= {skill["name"] for skill in await sandbox.opencode("/skill")}
    config = await sandbox.opencode("/config")
    texts = [await asyncio.to_thread(Path(name).read_text) for name in config["instructions"]]
    assert "# Repository" in texts[0]
    assert texts[1] == "PERSONA: be brief."


async def test_a_process_that_was_run_for_the_agent_is_in_its_next_prompt(
    sandbox: Sandbox, model: ScriptedModel
) -> None:
    turns = len(sandbox.log.said(agent.TurnStarted))
    asked = {"command": "sh", "args": ["-c", "echo first-$((40 + 2)); exit 3"], "session_id": sandbox.spec.session_id}
    process = await sandbox.ask("POST", "/v1/processes", asked)
    other = await sandbox.ask("POST", "/v1/processes", {"command": "echo", "args": ["not-shown"]})
    for id in (process["id"], other["id"]):
        ended = await sandbox.log.until(machine.ProcessExited, lambda said, id=id: said.process.id == id)
    assert ended.data.process.exit_code == 0
    assert len(sandbox.log.said(agent.TurnStarted)) == turns
    turn = await sandbox.log.dispatch("say seen")
    await sandbox.ended(turn)
    shown = [request for request in model.requests if "first-42" in request.prompt]
    assert shown
    assert "<ended>status 3</ended>" in shown[0].prompt
    assert "not-shown" not in shown[0].prompt
    again = await sandbox.log.dispatch("say once only")
    await sandbox.ended(again)
    assert "first-42" not in model.requests[-1].prompt
    for kind in (machine.ProcessCreated, machine.ProcessExited):
        assert len([said for said in sandbox.log.said(kind) if said.process.id == process["id"]]) == 1


async def test_a_gateway_that_is_killed_comes_back_and_processes_outlive_it(sandbox: Sandbox) -> None:
    process = await sandbox.ask("POST", "/v1/processes", {"command": "sleep", "args": ["300"]})
    # the agent's own modules of such names are not what is started again: they would be told what it is told
    for name in ("valet_gateway", "msgspec", "json"):
        (Path(sandbox.runner.spec.home) / f"{name}.py").write_text("raise SystemExit(3)\n")
    await sandbox.kill("valet_gateway")
    assert (await sandbox.ask("GET", f"/v1/processes/{process['id']}"))["status"] == "running"
    turn = await sandbox.log.dispatch("call valet_list_tunnels")
    assert (await sandbox.ended(turn)).status == "completed"
    called = await sandbox.log.until(agent.ToolUpdated, lambda tool: tool.status == "completed", turn=turn)
    assert "tunnels" in (called.data.output or "")
    # the new one was told where OpenCode is, and is told again when OpenCode is replaced
    assert (await sandbox.opencode("/global/health"))["healthy"]
    mark = len(sandbox.log.events)
    os.kill(sandbox.runner.opencode(), signal.SIGKILL)
    await sandbox.log.until(agent.OpencodeRestarted, after=mark)
    assert (await sandbox.opencode("/global/health"))["healthy"]
    await sandbox.ask("DELETE", f"/v1/processes/{process['id']}")


async def test_somebody_who_is_removed_is_out_at_once_and_stays_out_of_a_new_gateway(sandbox: Sandbox) -> None:
    process = await sandbox.ask("POST", "/v1/processes", {"command": "sleep", "args": ["300"]})
    at = f"http://gateway/v1/processes/{process['id']}"
    async with sandbox.person(sub="u2") as http, sandbox.person() as owner, asyncio.timeout(WAIT):
        theirs, mine = [await client.ws_connect(f"{at}/connect?offset=0") for client in (http, owner)]
        for ws in (theirs, mine):
            assert "hello" in await ws.receive_str()
        sandbox.log.writers = {"u1": 0}
        await sandbox.log.append(facts.ParticipantRemoved(user="u2", by="u1"))
        assert (await theirs.receive()).data == 1008
        async with http.get(at) as response:
            assert response.status == 401
        await mine.send_json({"type": "signal", "signal": "SIGCONT"})
        assert not mine.closed
        await sandbox.kill("valet_gateway")
        await _until(owner, at, 200)
        async with http.get(at) as response:
            assert response.status == 401
        # the ledger says it again, in a new sandbox too; here without a fact, as for a session above this one
        sandbox.log.writers = {"u1": 0, "u2": 0}
        await _until(http, at, 200)
    await sandbox.ask("DELETE", f"/v1/processes/{process['id']}")


async def _until(http: aiohttp.ClientSession, url: str, status: int) -> None:
    while True:
        async with http.get(url) as response:
            if response.status == status:
                return
        await asyncio.sleep(0.1)


async def test_a_process_service_that_is_killed_comes_back_and_its_processes_are_said_to_have_ended(
    sandbox: Sandbox,
) -> None:
    process = await sandbox.ask("POST", "/v1/processes", {"command": "sleep", "args": ["300"]})
    await sandbox.log.until(machine.ProcessCreated, lambda said: said.process.id == process["id"])
    await sandbox.kill("valet_processes")
    await sandbox.log.until(machine.ProcessExited, lambda said: said.process.id == process["id"])
    await condition(lambda: not Path(f"/proc/{process['pid']}").exists())
    assert await sandbox.ask("POST", "/v1/processes", {"command": "true"})
    turn = await sandbox.log.dispatch("say still here")
    assert (await sandbox.ended(turn)).status == "completed"


@pytest.mark.skipif(
    bool(optional_services.missing("vnc", shutil.which)),
    reason="the desktop's programs are not installed (apt install xvfb x11vnc novnc websockify fluxbox)",
)
async def test_the_desktop_starts_for_its_first_visitor_and_speaks_rfb_through_the_gateway(sandbox: Sandbox) -> None:
    await sandbox.log.until(machine.BootStepCompleted, lambda said: said.step == "desktop")
    assert not [said for said in sandbox.log.said(machine.ServiceChanged) if said.service == "vnc"]
    async with sandbox.person() as http, http.ws_connect("http://gateway/vnc/websockify", protocols=["binary"]) as ws:
        assert (await ws.receive_bytes(timeout=60)).startswith(b"RFB 003.")
    await sandbox.log.until(machine.ServiceChanged, lambda said: (said.service, said.state) == ("vnc", "running"))
    assert b"noVNC" in await sandbox.ask("GET", "/vnc/vnc.html")
