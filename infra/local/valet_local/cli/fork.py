"""`valet fork`: a session from another one."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def fork(
    data_dir: DataDir,
    session_id: SessionId,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="MESSAGE", help="Yours: as it was before; the agent's: as it was after its turn."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="A name for it; else the source's.")] = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make a new session with the conversation and the files as they were, and print its id."""

    async def forked(client: "Client", terminal: "Terminal") -> None:
        import msgspec

        view = await client.fork(session_id, message_id=at, title=title)
        if view.left_out:
            terminal.tell(view.left_out, "bad")
        terminal.raw(msgspec.json.encode(view)) if as_json else terminal.line(view.id)

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, forked)
