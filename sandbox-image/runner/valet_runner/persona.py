"""Who the agent is to be and where it works: files in its home, shown to it as instructions.

In the home and not in the workspace: nobody commits them by accident, and a clone needs an empty folder.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from valet_protocol.sandbox_spec import RunnerSpec

FOLDER = Path(".valet") / "persona"
_CONTEXT = "00-repo-context.md"
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def files(spec: RunnerSpec, commit: str | None = None) -> dict[str, str]:
    """Contents by file name, in the order in which they are shown; `commit` is where the session began. Pure.

    Names from outside cannot lead out of the folder; two that become the same are numbered.
    """
    found: dict[str, str] = {}
    if spec.repo is not None:
        found[_CONTEXT] = context(spec, commit)
    for name, text in sorted(spec.persona.items()):
        plain = _ODD.sub("-", name).lstrip(".-") or "persona"
        plain = plain if plain.endswith(".md") else f"{plain}.md"
        number = 2
        while plain in found:
            plain, number = f"{plain.removesuffix('.md')}-{number}.md", number + 1
        found[plain] = text
    return found


def context(spec: RunnerSpec, commit: str | None) -> str:
    """What the agent is told of its repository. Pure."""
    lines = ["# Repository", "", f"The working copy is {spec.workspace}."]
    if spec.repo and not spec.repo.startswith("/"):
        lines.append(f"It was cloned from {_without_credentials(spec.repo)}.")
    if spec.branch:
        lines.append(f"The session began on branch {spec.branch}.")
    if commit:
        lines.append(f"Its changes are counted from commit {commit}.")
    return "\n".join(lines) + "\n"


def paths(spec: RunnerSpec) -> tuple[str, ...]:
    """Where the files lie, in order."""
    return tuple(str(Path(spec.home) / FOLDER / name) for name in files(spec))


def write(home: Path, files: Mapping[str, str]) -> None:
    """Make the folder hold these files and no others."""
    folder = home / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def _without_credentials(url: str) -> str:
    return re.sub(r"^([a-z][a-z0-9+.-]*://)[^/@\s]+@", r"\1", url)
