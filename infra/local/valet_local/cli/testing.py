"""Running a command in this very process, against the server of `valet_local.client.testing`."""

import asyncio
import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from valet_local.cli import main
from valet_local.client.testing import FakeApi


async def valet(api: FakeApi, *words: str) -> tuple[int, str, str]:
    """Exit status, what it printed, and what it told. Starting a process for each would take a minute."""
    return await asyncio.wait_for(asyncio.to_thread(_ran, api, words), 20)


def _ran(api: FakeApi, words: tuple[str, ...]) -> tuple[int, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    status: Any = 0
    environment = {"VALET_URL": api.endpoint.url, "VALET_TOKEN": api.endpoint.token}
    ours = patch.dict(os.environ, environment), patch.object(sys, "argv", ["valet", *words])
    with ours[0], ours[1], redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    texts = [stream.flush() or stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return status, texts[0], texts[1]
