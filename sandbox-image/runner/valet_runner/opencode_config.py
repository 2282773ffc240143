"""OpenCode's configuration and environment, made of the runner's spec. Pure.

Keys of models are not in it: OpenCode talks to the relay inside the sandbox, which adds the portal's token, and the
portal adds the real key. What the agent's shell can see is said in this package's README.
"""

import msgspec
from valet_protocol.events.facts import SessionPolicy
from valet_protocol.sandbox_spec import ModelSpec, ProviderSpec, RunnerSpec

from valet_runner import limits, permissions

_PLAIN = frozenset({"todowrite", "question", "webfetch", "websearch", "doom_loop"})
"""Kinds of permission that take an action and no patterns (OpenCode's own schema of its configuration)."""

MCP_SERVER = "valet"
"""The agent's tools are called `valet_<name>`."""

PLACEHOLDER_KEY = "portal"
"""OpenCode insists on a key; the relay replaces it."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent's tools are, and what opens them. No secret from the agent."""

    url: str
    """The gateway's, without a path."""
    token: str


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox has beside OpenCode."""

    relay_port: int | None = None
    """Of the proxy; none where there is no portal."""
    tools: Tools | None = None
    display: str | None = None
    """The desktop's, e.g. `:99`, whether it runs already or not; none for no desktop."""
    instructions: tuple[str, ...] = ()
    """Files that are shown to the agent with every prompt."""


def config(spec: RunnerSpec, around: Surroundings, *, policy: SessionPolicy) -> bytes:
    """`opencode.json` (bytes of JSON).

    Measured: without `enabled_providers` OpenCode adds one of its own; without `small_model` titles are asked of a
    model that is not there."""
    more: dict[str, object] = {}
    if (tools := around.tools) is not None:
        more["mcp"] = {
            MCP_SERVER: {
                "type": "remote",
                "url": f"{tools.url}/mcp",
                "headers": {"Authorization": f"Bearer {tools.token}"},
                # a remote server may want a person to sign in, and OpenCode would look for how
                "oauth": False,
                "enabled": True,
                "timeout": limits.MCP_TIMEOUT_MS,
            }
        }
    if around.instructions:
        more["instructions"] = around.instructions
    return msgspec.json.encode(
        {
            "$schema": "https://opencode.ai/config.json",
            "model": spec.model,
            "small_model": spec.model,
            "enabled_providers": [provider.id for provider in spec.providers],
            "provider": {provider.id: _provider(provider, around.relay_port or 0) for provider in spec.providers},
            "autoupdate": False,
            "share": "disabled",
            "permission": _permission(policy),
        }
        | more
    )


def environment(spec: RunnerSpec, around: Surroundings, *, config_file: str, plugin_dir: str) -> dict[str, str]:
    """All of OpenCode's environment: nothing is inherited. Its shell commands inherit it in turn, less what the plugin
    blanks, so no secret is in it.

    Verified with strace to make no connection of its own with these (OpenCode 1.18.33).
    """
    return agent_environment(spec, around) | {
        "TERM": "dumb",
        "OPENCODE_CONFIG": config_file,
        "OPENCODE_CONFIG_DIR": plugin_dir,
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "OPENCODE_DISABLE_EMBEDDED_WEB_UI": "1",
        # OpenCode installs its plugin package at the first start; unreachable at once beats unreachable after 70 s
        "npm_config_registry": "http://127.0.0.1:1",
        "npm_config_fetch_retries": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }


def guarded(environ: dict[str, str], guard: str) -> dict[str, str]:
    """The environment of an OpenCode server: its runtime runs the script `guard` ahead of everything, which takes the
    password from standard input (measured with 1.18.33: of the ways to have Bun run something first, `BUN_OPTIONS` and
    `bunfig.toml` have no effect on it, this variable has)."""
    return {**environ, "BUN_INSPECT_PRELOAD": guard}


def agent_environment(spec: RunnerSpec, around: Surroundings) -> dict[str, str]:
    """What every program begins with that works for the agent or a person in the sandbox."""
    environ = {
        "PATH": spec.path,
        "HOME": spec.home,
        "LANG": "C.UTF-8",
        "USER": "agent",
        "SHELL": "/bin/bash",
    }
    if around.display is not None:
        environ["DISPLAY"] = around.display
    if around.relay_port is not None:
        environ |= proxy_environment(around.relay_port)
    if around.tools is not None:
        environ |= {"VALET_API_URL": around.tools.url, "VALET_API_TOKEN": around.tools.token}
    return environ


def proxy_environment(relay_port: int) -> dict[str, str]:
    """The way out of the sandbox, for every program that honours the usual variables."""
    proxy, none = f"http://127.0.0.1:{relay_port}", "127.0.0.1,localhost,::1"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return dict.fromkeys(names, proxy) | {"NO_PROXY": none, "no_proxy": none}


def _permission(policy: SessionPolicy) -> dict[str, object]:
    """The policy for conversations that have no rules of their own: those of sub-agents, which get from their parents
    only what is denied (measured). The question tool is off for agents of the user's own unless allowed.

    What is allowed is left to OpenCode's defaults, which allow all but what leads out of the workspace; that asks, and
    the platform answers by policy.
    """
    rules = permissions.rules(policy)
    if rules[0].action == "allow":
        rules = rules[1:]
    nested: dict[str, dict[str, str]] = {}
    for rule in rules:  # the last that matches counts, so a kind that comes again goes to the end
        patterns = nested.pop(rule.permission, {})
        patterns.pop(rule.pattern, None)
        nested[rule.permission] = {**patterns, rule.pattern: rule.action}
    return {permission: _patterns(permission, patterns) for permission, patterns in nested.items()}


def _patterns(permission: str, patterns: dict[str, str]) -> str | dict[str, str]:
    """Some kinds take no patterns, and OpenCode refuses its whole configuration where they get some: what is asked then
    instead, the platform answers by the exact rule."""
    if list(patterns) == ["*"]:
        return patterns["*"]
    return "ask" if permission in _PLAIN else patterns


def _provider(provider: ProviderSpec, relay_port: int) -> dict[str, object]:
    options: dict[str, object] = {
        "baseURL": f"http://127.0.0.1:{relay_port}/model/{provider.id}",
        "apiKey": PLACEHOLDER_KEY,
    }
    models = {model.id: _model(model) for model in provider.models}
    if provider.builtin:
        return {"options": options, "models": models} if models else {"options": options}
    return {"npm": "@ai-sdk/openai-compatible", "name": provider.id, "options": options, "models": models}


def _model(model: ModelSpec) -> dict[str, object]:
    # OpenCode takes pictures out of what it sends to a model of unknown abilities (1.18.33)
    takes = {"modalities": {"input": ["text", "image"], "output": ["text"]}, "attachment": True} if model.images else {}
    return {
        **takes,
        "name": model.name or model.id,
        "limit": {"context": model.context, "output": model.output},
        "tool_call": model.tool_call,
        "reasoning": model.reasoning,
        "cost": {"input": model.cost_input, "output": model.cost_output},
    }
