"""`valet open`: addresses of what there is to look at in a session's sandbox."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client

_SERVICES = {"vscode": "vscode", "vnc": "vnc", "terminal": "ttyd"}
"""What people say, and what a token calls it."""


def open_sandbox(
    data_dir: DataDir,
    session_id: SessionId,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[vscode|vnc|terminal|TUNNEL]", help="Which; all of them where it is left out."),
    ] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Print the address of a session's VS Code, desktop, terminal or tunnel, to be opened in a browser.

    Whoever has the address can use it for an hour: keep it to yourself.
    """

    async def opened(client: "Client", terminal: "Terminal") -> int:
        from valet_local.cli import sandbox_access

        service = "*" if what is None else _SERVICES.get(what, "t")
        way = await sandbox_access.token(client, session_id, service)
        urls = {"vscode": way.urls.vscode, "vnc": way.urls.vnc, "terminal": way.urls.ttyd}
        addresses = {**way.urls.tunnels, **urls}
        if what is not None and what not in addresses:
            terminal.tell(f"There is no {what!r} in this sandbox; there is: {', '.join(sorted(addresses))}", "bad")
            return 1
        for name, address in addresses.items():
            if what is None:
                terminal.line(f"{name:<10} {address}?token={way.token}")
            elif what == name:
                terminal.line(f"{address}?token={way.token}")
        return 0

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, opened)
