"""Claims about requirements.lock: complete, in step with the pins, and free of addresses."""

import re
import subprocess
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
GIT_TIMEOUT = 30.0
"""Seconds for `git ls-files`."""

MANIFEST = tomllib.loads((ROOT / "pyproject.toml").read_text())
MEMBERS = [
    path
    for pattern in MANIFEST["tool"]["uv"]["workspace"]["members"]
    for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
]


def pins(lines: list[str]) -> dict[str, str]:
    """Package → the one version it is pinned to."""
    found: dict[str, str] = {}
    for line in lines:
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", f"{line} is not pinned"
        found[canonicalize_name(requirement.name)] = specifier.version
    return found


def locked() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text()
    return pins([line.removesuffix(" \\") for line in text.splitlines() if line and line[0] not in "# "])


def direct() -> dict[str, str]:
    """What the packages depend on directly, ours left out."""
    entries = [
        entry
        for path in MEMBERS
        for entry in tomllib.loads(path.read_text())["project"].get("dependencies", [])
        if not entry.startswith("valet-")
    ]
    return pins(entries)


def test_every_direct_dependency_is_locked_in_its_very_version() -> None:
    have = locked()
    assert {name: have.get(name) for name in direct()} == direct()


def test_the_lock_and_the_constraints_agree() -> None:
    have, constrained = locked(), pins(MANIFEST["tool"]["uv"]["constraint-dependencies"])
    own = direct() | pins(MANIFEST["dependency-groups"]["build"]) | pins(MANIFEST["dependency-groups"]["dev"])
    for name, version in have.items():
        assert (own | constrained).get(name) == version, f"{name}: run infra/docker/renew_lock.py"
    assert not set(constrained) & set(own), "a package is pinned directly and constrained, too"


def test_every_locked_package_has_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    for block in re.split(r"\n(?=[a-z0-9])", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block.splitlines()[0]


def test_the_lock_names_no_place() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert not re.search(r"@ |^-|^\.?/|index-url|find-links", text, re.MULTILINE)


def test_no_file_of_the_repository_names_a_registry() -> None:
    # put together here, so that this file does not name one either
    hosts = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("registry", "npmjs", "org"))]
    hosts += [".".join(parts) for parts in (("docker", "io"), ("ghcr", "io"), ("quay", "io"), ("deb", "debian", "org"))]
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        timeout=GIT_TIMEOUT,
        check=True,
    )
    guilty: list[str] = []
    for name in filter(None, done.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            text = path.read_bytes()
            guilty += [f"{name}: {host}" for host in hosts if re.search(rf"(?<![\w-]){re.escape(host)}".encode(), text)]
    assert not guilty
