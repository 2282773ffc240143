"""The spec of the process service: one JSON document on standard input."""

import sys

import msgspec
from valet_protocol.sandbox_spec import ProcessesSpec

from valet_processes.errors import BadSpec


def load() -> ProcessesSpec:
    """Read it to its end. Raises `BadSpec`."""
    try:
        return msgspec.json.decode(sys.stdin.buffer.read(), type=ProcessesSpec)
    except (OSError, msgspec.MsgspecError) as error:
        raise BadSpec(f"the process service's spec is to be one JSON document on standard input: {error}") from error
