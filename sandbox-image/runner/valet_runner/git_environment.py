"""Git's environment inside a sandbox, for the runner's own commands."""

from pathlib import Path

from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import opencode_config

_CONFIG = """[safe]
\tdirectory = *
[init]
\tdefaultBranch = main
[advice]
\tdetachedHead = false
[user]
\tname = Valet agent
\temail = agent@valet.invalid
"""


def write_config(home: Path) -> None:
    """A `.gitconfig` for the runner and the agent, unless there is one.

    A file, because git does not pass its configuration variables on to the `upload-pack` of a local clone, which
    would then refuse a repository that belongs to somebody else.
    """
    path = home / ".gitconfig"
    if not path.exists():
        path.write_text(_CONFIG)


def environment(spec: RunnerSpec, *, relay_port: int | None) -> dict[str, str]:
    """All of it; nothing is inherited. Git never asks anybody for a password, and its messages are in English."""
    environ = {
        "PATH": spec.path,
        "HOME": spec.home,
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    if relay_port is not None:
        environ |= opencode_config.proxy_environment(relay_port)
    return environ
