"""Write `requirements.lock` and the root's `constraint-dependencies` anew, from the pins of all `pyproject.toml` files.

    uv run python infra/docker/renew_lock.py            # what is pinned stays, what is new is added
    uv run python infra/docker/renew_lock.py --upgrade  # everything below the direct dependencies moves to its newest

Neither file says where a package comes from: people build behind mirrors of their own (docs/decisions/0005).
"""

import argparse
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOCK = "requirements.lock"
RESOLVE_TIMEOUT = 300.0
"""Seconds for one resolution; with a cold cache it reads the index of some seventy packages."""

_HEAD = """\
# Every package of the services and of a sandbox, with its version and hashes, for images and strict installations:
# pip install --require-hashes -r requirements.lock. Written by infra/docker/renew_lock.py.
"""
_BLOCK = re.compile(r"^constraint-dependencies = \[\n.*?^\]\n", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--upgrade", action="store_true", help="forget the pins of indirect dependencies")
    upgrade: bool = parser.parse_args().upgrade
    with tempfile.TemporaryDirectory(prefix="valet-lock-") as folder:
        copy = Path(folder)
        copy_manifests(ROOT, copy)
        if upgrade:
            root = copy / "pyproject.toml"
            root.write_text(with_constraints(root.read_text(), []))
        everything = export(copy, "--all-groups", "--no-hashes")
        locked = export(copy, "--no-dev", "--group", "build")
    direct = direct_names(ROOT)
    constraints = [line for line in everything.splitlines() if name_of(line) not in direct]
    manifest = ROOT / "pyproject.toml"
    manifest.write_text(with_constraints(manifest.read_text(), constraints))
    (ROOT / LOCK).write_text(_HEAD + locked)


def copy_manifests(source: Path, target: Path) -> None:
    """Copy what a resolution reads: the root's and every member's `pyproject.toml`, and the root's README."""
    for path in [source / "README.md", *manifests(source)]:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def manifests(root: Path) -> list[Path]:
    """The root's `pyproject.toml` first, then the members'."""
    patterns: list[str] = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
    members = [path for pattern in patterns for path in sorted(root.glob(f"{pattern}/pyproject.toml"))]
    return [root / "pyproject.toml", *members]


def direct_names(root: Path) -> set[str]:
    """Everything that a `pyproject.toml` of ours names itself, and so pins itself."""
    found: set[str] = set()
    for path in manifests(root):
        document: dict[str, Any] = tomllib.loads(path.read_text())
        lists = [document["project"].get("dependencies", []), *document.get("dependency-groups", {}).values()]
        found |= {name_of(entry) for entries in lists for entry in entries}
    return found


def name_of(requirement: str) -> str:
    """The normalised name of a requirement: `PyYAML==6.0; …` → `pyyaml`."""
    match = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def export(workspace: Path, *options: str) -> str:
    """Resolve for every platform and print it as requirements, ours left out."""
    command = ["uv", "export", "--quiet", "--all-packages", "--no-emit-workspace", "--no-annotate", "--no-header"]
    done = subprocess.run(
        [*command, *options], cwd=workspace, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"error: the pins do not fit together:\n{done.stderr.strip()}")
    return done.stdout


def with_constraints(manifest: str, constraints: list[str]) -> str:
    """The root's `pyproject.toml` with these `constraint-dependencies`."""
    block = "constraint-dependencies = [\n" + "".join(f'    "{line}",\n' for line in constraints) + "]\n"
    if _BLOCK.search(manifest) is None:
        return manifest.replace("[tool.uv.workspace]\n", f"[tool.uv]\n{block}\n[tool.uv.workspace]\n", 1)
    return _BLOCK.sub(lambda _: block, manifest, count=1)


if __name__ == "__main__":
    main()
