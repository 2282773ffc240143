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
"""

_IGNORE = Path(".config") / "git" / "ignore"
_IGNORED = """# put into workspaces by the platform and by OpenCode, never to be committed
.valet/
.agent-ops/
.opencode/node_modules/
.opencode/screenshots/
"""

_HELPER = r"""[credential "https://github.com"]
	helper =
	helper = "!f() { test \"$1\" = get && test -n \"$GITHUB_TOKEN\" \
 && printf 'username=x-access-token\\npassword=%s\\n' \"$GITHUB_TOKEN\"; }; f"
"""
"""Gives a token that whoever runs git has in its environment; without one, git goes on as if there were no helper."""

_AUTHOR = Path(".valet") / "git-author"
_INCLUDE = f"[include]\n\tpath = {_AUTHOR}\n"
_NAME = "Valet agent"
_EMAIL = "agent@valet.invalid"


def write_config(home: Path) -> None:
    """A `.gitconfig` for the runner and the agent, unless there is one; who commits is in a file it includes.

    A file, because git does not pass its configuration variables on to the `upload-pack` of a local clone, which
    would then refuse a repository that belongs to somebody else.
    """
    path = home / ".gitconfig"
    config = path.read_text() if path.exists() else _CONFIG
    missing = [part for part in (_HELPER, _INCLUDE) if part not in config]
    if missing:
        path.write_text("\n".join([config.rstrip(), *(part.rstrip() for part in missing)]) + "\n")
    ignore = home / _IGNORE
    if not ignore.exists():
        ignore.parent.mkdir(parents=True, exist_ok=True)
        ignore.write_text(_IGNORED)
    set_author(home)


def set_author(home: Path, name: str = "", email: str = "") -> None:
    """Commits are by this person from now on; what is not known of them is the agent's."""
    path = home / _AUTHOR
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(f"[user]\n\tname = {_quoted(name or _NAME)}\n\temail = {_quoted(email or _EMAIL)}\n")
    new.replace(path)


def _quoted(text: str) -> str:
    """A value of a git configuration file."""
    line = " ".join(text.replace("\0", " ").split())
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
