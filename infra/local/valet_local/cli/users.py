"""`valet users`: who may sign in."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, Token, Url
from valet_local.invocation import typed

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client

app = typer.Typer(help="Who may sign in; for administrators.", no_args_is_help=True)

UserKey = Annotated[str, typer.Argument(metavar="USER", help="Name or id, as `valet users list` shows it.")]


@app.callback()
def users() -> None:
    """Who may sign in; for administrators."""


@app.command("list")
def list_users(data_dir: DataDir, as_json: AsJson = False, url: Url = None, token: Token = None) -> None:
    """List everybody who may sign in."""

    async def listed(client: "Client", terminal: "Terminal") -> None:
        import msgspec

        from valet_local.cli import tables

        found = await client.users()
        if as_json:
            terminal.raw(msgspec.json.format(msgspec.json.encode(found)))
        else:
            terminal.write(tables.users(found))

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, listed)


@app.command("add")
def add(
    data_dir: DataDir,
    name: Annotated[str, typer.Argument(help="How the user is called.")],
    url: Url = None,
    token: Token = None,
) -> None:
    """Add a user and print the token to sign in with. It is shown only once."""

    async def added(client: "Client", terminal: "Terminal") -> None:
        terminal.line((await client.add_user(name)).token)

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, added)


@app.command("remove")
def remove(data_dir: DataDir, user: UserKey, url: Url = None, token: Token = None) -> None:
    """Refuse a user's tokens from now on. Their sessions stay; their name is free for somebody else."""

    async def removed(client: "Client", terminal: "Terminal") -> None:
        gone = await client.remove_user(user)
        terminal.tell(f"{gone.name} ({gone.id}) may not sign in any more. Their sessions stay.")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, removed)


@app.command("token")
def replace_token(data_dir: DataDir, user: UserKey, url: Url = None, token: Token = None) -> None:
    """Give a user a new token, where one was lost or became known, and print it. Those from before are refused."""

    async def replaced(client: "Client", terminal: "Terminal") -> None:
        given = await client.replace_token(user)
        terminal.line(given.token)
        terminal.tell(f"It is shown this once. {given.name} signs in with it: {typed('sessions')} --url … --token …")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, replaced)
