"""`valet sessions`: what there is."""

import typer

from valet_local.cli.options import AsJson, DataDir, Token, Url
from valet_local.invocation import typed


def sessions(data_dir: DataDir, as_json: AsJson = False, url: Url = None, token: Token = None) -> None:
    """List your sessions, newest first."""
    import asyncio  # here, so that `valet --help` need not wait for all this
    import os
    import time

    import msgspec

    from valet_local.cli import tables
    from valet_local.cli.terminal import Terminal
    from valet_local.client import endpoint
    from valet_local.client.http import Client

    terminal = Terminal()

    async def listed() -> None:
        async with Client(endpoint.find(data_dir, url, token, os.environ)) as client:
            views = [view async for view in client.sessions()]
        if as_json:
            terminal.raw(msgspec.json.format(msgspec.json.encode(views)))
        elif views:
            terminal.write(tables.sessions(views, time.time_ns() // 1_000_000))
        else:
            terminal.tell(f'No sessions yet. Start one with: {typed("run")} "your prompt"')

    try:
        asyncio.run(listed())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
