"""What the runner is told: the spec file of the sandbox."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_protocol.sandbox_spec import RUNNER_SPEC_PATH, RunnerSpec

from valet_runner.errors import BadSpec


def load(environ: Mapping[str, str] = os.environ) -> RunnerSpec:
    """Read the file named by `VALET_RUNNER_SPEC`, or the usual one. Raises `BadSpec`."""
    path = Path(environ.get("VALET_RUNNER_SPEC") or RUNNER_SPEC_PATH)
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunnerSpec)
    except OSError as error:
        raise BadSpec(
            f"{path}: {error.strerror or error}; the sandbox controller puts the runner's spec there"
        ) from error
    except msgspec.MsgspecError as error:
        raise BadSpec(f"{path} is not a runner's spec: {error}") from error
