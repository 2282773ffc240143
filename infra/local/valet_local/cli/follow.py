"""`valet follow`: a session as it goes."""

from typing import Annotated

import typer

from valet_local.cli.options import DataDir, Token, Url
from valet_local.invocation import typed


def follow(
    data_dir: DataDir,
    session_id: Annotated[str, typer.Argument(metavar="ID", help="The session, as `valet sessions` lists it.")],
    after: Annotated[int, typer.Option(min=0, help="Sequence of the last event that need not be shown.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One event per line, with its sequence.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show a session from its beginning on and as it goes on, until it ends or Ctrl-C."""
    import asyncio  # here, so that `valet --help` need not wait for all this
    import os
    from contextlib import aclosing

    from valet_protocol.errors import BadRequest, Refused
    from valet_protocol.events.facts import SessionFailed, SessionTerminated

    from valet_local.cli.terminal import Terminal
    from valet_local.cli.watch import Follower, view
    from valet_local.client import endpoint
    from valet_local.client.follow import Entry
    from valet_local.client.http import Client

    terminal = Terminal()

    async def followed() -> None:
        async with Client(endpoint.find(data_dir, url, token, os.environ)) as client:
            follower = Follower(client, terminal, view(terminal, as_json=as_json), after=after)
            synced = ended = False
            try:
                async with aclosing(follower.follow(session_id)) as items:
                    async for item in items:
                        if not isinstance(item, Entry):
                            synced = True
                        elif isinstance(item.data, SessionFailed | SessionTerminated):
                            ended = True
                        if synced and ended:
                            return
            except Refused as refusal:
                if refusal.code != "bad_cursor":
                    raise
                last = (await client.session(session_id)).seq
                raise BadRequest(
                    "bad_cursor",
                    f"There is no event {after} yet; the session's last one is {last}. Give that, or less.",
                ) from None
            except asyncio.CancelledError:
                terminal.tell(f"\nGo on with: {typed(f'follow {session_id} --after {follower.seq}')}")
                raise

    try:
        asyncio.run(followed())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
