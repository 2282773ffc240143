"""What the runner is told: its spec, from standard input or from the sandbox's file, and its settings."""

import contextlib
import os
import select
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
from valet_protocol.sandbox_spec import RUNNER_SPEC_PATH, RunnerSpec

from valet_runner import limits
from valet_runner.errors import BadSpec

STANDARD_INPUT = "-"
"""Instead of a file's name."""


def load(
    environ: Mapping[str, str] = os.environ, stdin: BinaryIO | None = None, *, patience: float = limits.SPEC_TIMEOUT
) -> RunnerSpec:
    """Read the spec from where `VALET_RUNNER_SPEC` says: a file's name, `-` for standard input, which is waited for
    `patience` seconds; otherwise the usual file. A file is removed when it has been read, if it can be: the agent is of
    the same user. Raises `BadSpec`."""
    name = environ.get("VALET_RUNNER_SPEC") or RUNNER_SPEC_PATH
    if name == STANDARD_INPUT:
        return _decode(_all_of(stdin or sys.stdin.buffer, patience), "standard input")
    path = Path(name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadSpec(
            f"{path}: {error.strerror or error}; the sandbox controller puts the runner's spec there"
        ) from error
    spec = _decode(content, str(path))
    with contextlib.suppress(OSError):  # a mount, or a folder that is read-only
        path.unlink()
    return spec


def _all_of(stdin: BinaryIO, patience: float) -> bytes:
    """What comes up to the end of it, which must not be waited for where nobody writes: a container started by hand."""
    until = time.monotonic() + patience
    found = bytearray()
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([stdin], [], [], left)[0]:
            raise BadSpec(
                f"the runner's spec did not come on standard input within {patience:.0f} s: the sandbox controller"
                " writes one JSON document there and closes it. A sandbox is not started by hand; create a session."
            )
        if not (piece := os.read(stdin.fileno(), 1 << 16)):
            return bytes(found)
        found += piece


def _decode(content: bytes, where: str) -> RunnerSpec:
    try:
        return msgspec.json.decode(content, type=RunnerSpec)
    except msgspec.MsgspecError as error:
        raise BadSpec(f"{where} is not a runner's spec: {error}") from error
