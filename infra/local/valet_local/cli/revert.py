"""`valet revert` and `valet unrevert`: back to before a message, and forth again."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_protocol.requests import CommandView

    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def revert(
    data_dir: DataDir,
    session_id: SessionId,
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id, as `valet show --json` lists it.")],
    url: Url = None,
    token: Token = None,
) -> None:
    """Take a message and all after it back, files too. `valet unrevert` undoes it until the next turn.

    Exit status: 0 when it was done, 1 when it could not be, or was not within half a minute.
    """

    async def reverted(client: "Client", terminal: "Terminal") -> int:
        return _told(await client.revert(session_id, message_id), terminal)

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, reverted)


def unrevert(
    data_dir: DataDir,
    session_id: SessionId,
    channel: Annotated[str | None, typer.Option(help="The conversation, if it is not the usual one.")] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Let what was taken back count again, files too.

    Exit status: 0 when it was done, 1 when it could not be, or was not within half a minute.
    """

    async def unreverted(client: "Client", terminal: "Terminal") -> int:
        return _told(await client.unrevert(session_id, channel=channel), terminal)

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, unreverted)


def _told(view: "CommandView", terminal: "Terminal") -> int:
    from valet_local.cli import tables

    terminal.write(tables.command(view))
    return 0 if view.status == "completed" else 1
