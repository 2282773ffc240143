"""The scripted language model as a process beside the command, for as long as the demo runs."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from valet_local.cli import limits
from valet_local.errors import StartFailed


class _Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What it prints once it listens."""

    url: str


@contextmanager
def playing(scenario: str) -> Iterator[str]:
    """The base URL of a model that plays a shipped scenario. Raises `StartFailed`."""
    child = subprocess.Popen(
        [sys.executable, "-m", "valet_local.model", "--scenario", scenario],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is ours to handle
    )
    try:
        yield _announced(child)
    finally:
        child.terminate()
        try:
            child.wait(limits.MODEL_STOP)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _announced(child: "subprocess.Popen[bytes]") -> str:
    assert child.stdout is not None
    deadline = time.monotonic() + limits.MODEL_START
    text = b""
    while b"\n" not in text:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
            raise StartFailed(f"the scripted model did not start within {limits.MODEL_START:g} s")
        read = os.read(child.stdout.fileno(), 4096)
        if not read:
            raise StartFailed(f"the scripted model ended with status {child.wait()}")
        text += read
    return msgspec.json.decode(text.partition(b"\n")[0], type=_Announcement).url
