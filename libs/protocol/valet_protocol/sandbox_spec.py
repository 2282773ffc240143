"""What a sandbox is told at boot: one JSON file, `/run/valet/runner.json`, readable by its runner only.

A file rather than environment variables: the agent's shell commands inherit the environment of OpenCode.
"""

from typing import Literal

import msgspec

Desktop = Literal["first-use", "boot", "off"]
"""When a sandbox's desktop is started: at its first visitor, after the boot, never."""

RUNNER_SPEC_PATH = "/run/valet/runner.json"
"""Where the sandbox controller puts it and the runner looks, unless `VALET_RUNNER_SPEC` names another file."""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A model OpenCode is to know."""

    id: str
    name: str = ""
    context: int = 128_000
    """Tokens."""
    output: int = 16_000
    """Tokens."""
    reasoning: bool = False
    tool_call: bool = True
    images: bool = False
    """Whether it takes images: the agent is then shown what its tools show people."""
    cost_input: float = 0.0
    """US dollars per million tokens."""
    cost_output: float = 0.0


class ProviderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of models, reached through the portal, which holds its address and key."""

    id: str
    builtin: bool = False
    """Whether OpenCode knows this provider and its models itself (anthropic, openai, google)."""
    models: list[ModelSpec] = []


class GatewaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox's gateway is told, as one JSON document on its standard input.

    Not a file and no environment: the agent's commands can read both. Its process is not dumpable.
    """

    session_id: str
    key: str
    """Signs this session's sandbox tokens (`valet_service.sandbox_token`), and no other session's."""
    tools_token: str
    """What the agent's own programs show for `/api` and `/mcp`. No secret from the agent."""
    socket: str | None = None
    """Path of the unix socket on which it serves; the way in where sandboxes have no network of their own."""
    host: str = "127.0.0.1"
    port: int | None = 9000
    """TCP port on which it serves as well; none for none."""
    control_socket: str
    """Unix socket for its own sandbox's runner: which OpenCode runs, which tunnels there are."""
    tools_socket: str
    """Where the runner answers `/api` and `/mcp`."""
    processes_socket: str
    """Where the processes are."""
    state_dir: str
    """Where it keeps its tunnels over a restart of its own."""
    xterm_dir: str | None = None
    """The unpacked npm packages of the terminal page: `xterm/`, `addon-fit/` and, if there, `addon-unicode11/`; none
    for no page."""
    services: dict[str, str] = {}
    """What is proxied besides: `vscode`, `vnc`, `ttyd` to `http://127.0.0.1:<port>` or `unix:<path>`."""
    secure: bool = False
    """Whether browsers come by TLS: cookies are then marked so."""
    frame_ancestors: list[str] = []
    """Origins whose pages may show this sandbox's in a frame, beside those of the same origin: the platform's."""


class ProcessesSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the process service of a sandbox is told, as one JSON document on its standard input."""

    socket: str
    """Path of the unix socket on which it serves."""
    workspace: str
    """Where a process starts unless its request says otherwise."""
    spool_dir: str
    """Where output goes that was asked to be kept whole."""
    environment: dict[str, str] = {}
    """What every process's environment begins with."""
    session_id: str = ""
    """The session of this sandbox: no process can be for the agent of another one. Empty: that is not looked at."""


class RunnerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a runner needs."""

    session_id: str
    epoch: int
    nats_creds: str
    """Credentials file's text; empty for a broker without authentication."""
    portal_socket: str
    portal_token: str
    workspace: str
    """Absolute path of the working copy."""
    home: str
    """Home directory of the agent; kept with the workspace, so conversations outlive a sandbox."""
    repo: str | None
    """What to clone: a URL, or the path at which a host repository is mounted read-only."""
    branch: str | None
    model: str
    """Default model, `provider/model`."""
    providers: list[ProviderSpec]
    opencode: str
    """Path of the OpenCode binary."""
    path: str
    """`PATH` for OpenCode and the agent's commands; contains `rg` and `git`."""
    nats_url: str | None = None
    """Direct address of the broker where there is no portal (isolation `none` in tests); else none."""
    gateway_key: str = ""
    """The gateway's key, see `GatewaySpec.key`; empty for a sandbox without a gateway."""
    gateway_socket: str | None = None
    """Where the gateway serves for those outside; see `GatewaySpec.socket`."""
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 9000
    gateway_secure: bool = False
    """See `GatewaySpec.secure`."""
    gateway_frame_ancestors: list[str] = []
    """See `GatewaySpec.frame_ancestors`."""
    xterm_dir: str | None = None
    """See `GatewaySpec.xterm_dir`."""
    orchestrator: bool = False
    """Whether the session's agent directs others: it is not offered the tools that end or report a child."""
    desktop: Desktop = "first-use"
    """When the desktop is started, where the machine has one."""
    persona: dict[str, str] = {}
    """Files for the agent's persona folder, by name; shown to it as instructions, in the order of their names."""
