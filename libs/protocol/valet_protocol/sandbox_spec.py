"""What a sandbox is told at boot: one JSON file, `/run/valet/runner.json`, readable by its runner only.

A file rather than environment variables: the agent's shell commands inherit the environment of OpenCode.
"""

import msgspec

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
    cost_input: float = 0.0
    """US dollars per million tokens."""
    cost_output: float = 0.0


class ProviderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of models, reached through the portal, which holds its address and key."""

    id: str
    builtin: bool = False
    """Whether OpenCode knows this provider and its models itself (anthropic, openai, google)."""
    models: list[ModelSpec] = []


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
