"""`valet rename`: a session's title."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def rename(
    data_dir: DataDir,
    session_id: SessionId,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="Its name from now on.")],
    url: Url = None,
    token: Token = None,
) -> None:
    """Name a session; what the agent would call it no longer counts."""

    async def renamed(client: "Client", terminal: "Terminal") -> None:
        view = await client.rename(session_id, title)
        terminal.tell(f"It is called {view.title!r} now.")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, renamed)
