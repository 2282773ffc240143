"""A command that asks the platform something and is done."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import typer

from valet_local.cli.terminal import Terminal
from valet_local.client import endpoint
from valet_local.client.http import Client


def call(
    data_dir: Path,
    url: str | None,
    token: str | None,
    action: Callable[[Client, Terminal], Awaitable[int | None]],
) -> None:
    """Do it with a client of the platform that runs or is named; what it gives is the exit status.

    Raises `LocalError`s and `Refused`.
    """

    async def called() -> int | None:
        async with Client(endpoint.find(data_dir, url, token, os.environ)) as client:
            return await action(client, Terminal())

    try:
        status = asyncio.run(called())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if status:
        raise typer.Exit(status)
