"""`valet show`: one session and its conversation."""

from typing import Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, Token, Url


def show(
    data_dir: DataDir,
    session_id: Annotated[str, typer.Argument(metavar="ID", help="The session, as `valet sessions` lists it.")],
    as_json: AsJson = False,
    diff: Annotated[bool, typer.Option("--diff", help="Only what it changed, as a patch.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show a session: its state, its conversation, what it changed."""
    import asyncio  # here, so that `valet --help` need not wait for all this
    import os

    import msgspec
    from valet_protocol.requests import DiffView

    from valet_local.cli import tables
    from valet_local.cli.terminal import Terminal
    from valet_local.client import endpoint
    from valet_local.client.http import Client

    terminal = Terminal()

    async def shown() -> None:
        async with Client(endpoint.find(data_dir, url, token, os.environ)) as client:
            if diff:
                _write_patch(terminal, await client.diff(session_id))
                return
            view = await client.session(session_id)
            messages = [message async for message in client.messages(session_id, nested=not as_json)]
            changed = None if as_json else await client.diff(session_id)
        if changed is None:
            both = {"session": view, "messages": messages}
            terminal.raw(msgspec.json.format(msgspec.json.encode(both)))
            return
        terminal.write(tables.session(view))
        terminal.write(tables.conversation(messages))
        if changed.patch:
            terminal.line()
            terminal.write(tables.diff(changed))

    def _write_patch(terminal: Terminal, changed: DiffView) -> None:
        if terminal.rich is not None:
            terminal.write(tables.diff(changed))
        elif changed.patch:
            terminal.raw(changed.patch.encode().removesuffix(b"\n"))  # as git made it, for `git apply`

    try:
        asyncio.run(shown())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
