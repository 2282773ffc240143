"""`valet diff`: what a session, or one turn of it, changed."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def diff(
    data_dir: DataDir,
    session_id: SessionId,
    turn: Annotated[str | None, typer.Option(metavar="TURN", help="Only what this turn changed.")] = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show what a session changed as a patch; piped, it is as git made it, for `git apply`."""

    async def shown(client: "Client", terminal: "Terminal") -> None:
        import msgspec

        from valet_local.cli import tables

        view = await client.diff(session_id, turn=turn)
        if as_json:
            terminal.raw(msgspec.json.format(msgspec.json.encode(view)))
        elif terminal.rich is not None:
            terminal.write(tables.diff(view))
        else:
            terminal.pass_on(view.patch.encode())

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, shown)
