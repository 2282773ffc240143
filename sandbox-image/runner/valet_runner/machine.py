"""Everything of a sandbox beside OpenCode: the process service, the gateway, what people may look at. Wiring.

Nothing here is needed for a turn. What fails is said, and the session goes on without it. A sandbox without a gateway
key has nothing of this: nobody could reach it.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Coroutine
from pathlib import Path

import msgspec
from valet_protocol.requests import Writers
from valet_protocol.sandbox_spec import GatewaySpec, ProcessesSpec, RunnerSpec
from valet_service import logs

from valet_runner import limits, on_demand, opencode_config, optional_services, persona, supervised
from valet_runner.boot_steps import BootSteps
from valet_runner.errors import OpencodeRefused, OpencodeUnavailable, ServiceUnavailable
from valet_runner.gateway_control import GatewayControl
from valet_runner.on_demand import OnDemand
from valet_runner.opencode_client import OpencodeClient
from valet_runner.opencode_config import Surroundings
from valet_runner.optional_services import PORTS, STEPS, Name
from valet_runner.process_events import ProcessEvents
from valet_runner.shown_processes import ShownProcesses
from valet_runner.supervised import Supervised

OPTIONAL: tuple[Name, ...] = ("vscode", "vnc", "ttyd")
_GATEWAY = "valet_gateway"
_NO_KEY = "this sandbox was given no key for a gateway"
_KEPT = ("TMPDIR", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "MALLOC_ARENA_MAX", "VALET_LOG_LEVEL")
"""What our own services get of the runner's environment."""

_log = logs.get(__name__)


class Machine:
    """What is beside OpenCode. `run()` is its life; `ready` is set when the boot is over, and what is optional may
    start."""

    def __init__(self, spec: RunnerSpec, *, relay_port: int | None, folder: Path, steps: BootSteps) -> None:
        self._spec = spec
        self._desktop = spec.desktop
        self._steps = steps
        self._home = Path(spec.home)
        token = secrets.token_urlsafe(24)
        tools = opencode_config.Tools(url=f"http://127.0.0.1:{spec.gateway_port}", token=token)
        self._absent = "" if supervised.is_installed(_GATEWAY) else f"{_GATEWAY} is not installed here"
        self._absent = self._absent if spec.gateway_key else _NO_KEY
        self.wanted = not self._absent
        self.around = Surroundings(
            relay_port=relay_port,
            tools=tools if self.wanted else None,
            display=optional_services.display(self._find) if self.wanted and spec.desktop != "off" else None,
            instructions=persona.paths(spec),
        )
        self._environment = opencode_config.agent_environment(spec, self.around)
        self._missing = {name: optional_services.missing(name, self._find) for name in OPTIONAL}
        self._on_demand = {name: self._service(name) for name in OPTIONAL if self.wanted and self._has(name)}
        self.tools_socket = folder / "tools.sock"
        self.control_socket = folder / "control.sock"
        processes_socket = folder / "processes.sock"
        own = {name: os.environ[name] for name in _KEPT if name in os.environ} | {
            name: self._environment[name] for name in ("PATH", "HOME", "LANG")
        }
        self.processes = Supervised(
            "processes",
            module="valet_processes",
            spec=msgspec.json.encode(
                ProcessesSpec(
                    socket=str(processes_socket),
                    workspace=spec.workspace,
                    spool_dir=str(self._home / ".valet" / "processes"),
                    environment=self._environment | {"TERM": "xterm-256color"},
                    session_id=spec.session_id,
                )
            ),
            environment=own,
            folder=spec.home,
            steps=steps,
            clock=time.monotonic,
        )
        self.gateway = Supervised(
            "gateway",
            module=_GATEWAY,
            spec=msgspec.json.encode(
                GatewaySpec(
                    session_id=spec.session_id,
                    key=spec.gateway_key,
                    tools_token=token,
                    socket=spec.gateway_socket,
                    host=spec.gateway_host,
                    port=spec.gateway_port,
                    secure=spec.gateway_secure,
                    frame_ancestors=spec.gateway_frame_ancestors,
                    control_socket=str(self.control_socket),
                    tools_socket=str(self.tools_socket),
                    processes_socket=str(processes_socket),
                    state_dir=str(self._home / ".valet" / "gateway"),
                    xterm_dir=spec.xterm_dir,
                    # their doors, so that a gateway always knows what there is; it is told when one runs
                    services={name: _at(service.door) for name, service in self._on_demand.items()},
                )
            ),
            environment=own,
            folder=spec.home,
            steps=steps,
            clock=time.monotonic,
            started=self._gateway_started,
        )
        self._control = GatewayControl(str(self.control_socket), pid=lambda: self.gateway.pid)
        self.shown = ShownProcesses(self._home)
        self._events = ProcessEvents(
            str(processes_socket),
            session_id=spec.session_id,
            home=self._home,
            shown=self.shown,
            say=steps.say,
            room=steps.room,
            serves=self.processes.ready,
        )
        self._opencode: OpencodeClient | None = None
        self._gateway_is_new = asyncio.Event()
        self.ready = asyncio.Event()

    def admit(self, writers: Writers) -> None:
        """These may come in by the gateway from now on, and nobody else."""
        self._control.access(writers)

    def opencode(self, client: OpencodeClient | None) -> None:
        """This OpenCode runs now; none while it is restarted."""
        self._opencode = client
        if client:
            self._control.opencode(client.url, client.authorization)
        else:
            self._control.no_opencode()

    async def tools_can_be_had(self) -> None:
        """Wait until the gateway serves, or has failed to; not for long."""
        if self.wanted:
            try:
                await asyncio.wait_for(self.gateway.tried.wait(), limits.TOOLS_WAIT)
            except TimeoutError:
                _log.warning("tools_come_later", reason="the gateway does not serve yet")

    async def run(self) -> None:
        """Until cancelled; then all of it is ended."""
        if not self.wanted:
            for step in ("processes", "gateway"):
                self._steps.absent(step, self._absent)
            return
        (self._home / ".valet").mkdir(parents=True, exist_ok=True)
        parts: list[tuple[str, Coroutine[None, None, None]]] = [
            ("processes", self.processes.run()),
            ("gateway", self.gateway.run()),
            ("gateway control", self._control.run()),
            ("process events", self._events.run()),
            ("tools", self._connect_tools()),
            *((name, service.run()) for name, service in self._on_demand.items()),
            ("optional services", self._offer_all()),
        ]
        tasks = [asyncio.create_task(_kept_apart(name, part)) for name, part in parts]
        try:
            await asyncio.Event().wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _has(self, name: Name) -> bool:
        return not self._missing[name] and not (name == "vnc" and self._desktop == "off")

    def _service(self, name: Name) -> OnDemand:
        def prepare() -> optional_services.Recipe:
            if removed := optional_services.clean(name, home=self._spec.home):
                _log.info("stale_locks_removed", files=[str(path) for path in removed])
            optional_services.settle(name, home=self._spec.home)
            return optional_services.recipe(
                name,
                find=self._find,
                free_port=on_demand.free_port,
                home=self._spec.home,
                workspace=self._spec.workspace,
            )

        return OnDemand(
            name,
            title=optional_services.title(name),
            listener=on_demand.listen(PORTS[name]),
            prepare=prepare,
            environment=self._environment,
            folder=self._spec.home,
            steps=self._steps,
            clock=time.monotonic,
            leads_to=lambda port: self._control.service(name, _at(port)),
        )

    async def _offer_all(self) -> None:
        """Let the optional services that this machine has start, when the boot is over."""
        await self.ready.wait()
        for service in self._on_demand.values():
            service.open()
        await asyncio.gather(*(self._offer(name) for name in OPTIONAL))

    async def _offer(self, name: Name) -> None:
        began = time.monotonic()
        step = STEPS[name]
        service = self._on_demand.get(name)
        if service is not None:
            if name == "vnc" and self._desktop == "boot":
                with contextlib.suppress(ServiceUnavailable), self._steps.step(step):
                    await service.start()
            else:
                self._steps.done(step, began, "starts with its first visitor")
        elif not self._missing[name]:
            self._steps.absent(step, "switched off by [sandbox] desktop")
        elif name == "ttyd" and self._spec.xterm_dir:
            self._steps.done(step, began, "the platform's own")
        else:
            lacking = [optional_services.why_missing(program, self._spec.path) for program in self._missing[name]]
            self._steps.absent(step, f"not installed here: {', '.join(lacking)}")

    def _gateway_started(self) -> None:
        self._control.started()
        self._gateway_is_new.set()

    async def _connect_tools(self) -> None:
        """OpenCode may have looked for the tools while there was no gateway, and does not look again by itself
        (measured). Not before the boot is over: asked about its tools, it takes the workspace in."""
        await self.ready.wait()
        while True:
            await self._gateway_is_new.wait()
            self._gateway_is_new.clear()
            try:
                if self._opencode:
                    await self._opencode.connect_tools(opencode_config.MCP_SERVER)
            except (OpencodeUnavailable, OpencodeRefused) as error:
                _log.warning("tools_not_connected", reason=str(error))

    def _find(self, program: str) -> str | None:
        return shutil.which(program, path=self._spec.path)


def _at(port: int) -> str:
    return f"http://127.0.0.1:{port}"


async def _kept_apart(name: str, part: Coroutine[None, None, None]) -> None:
    try:
        await part
    except Exception:  # noqa: BLE001 - a fault in what is not needed for a turn must not end the session
        _log.exception("part_failed", part=name)
