"""`valet open`: addresses of what there is to look at in a session's sandbox."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url
from valet_local.invocation import typed

if TYPE_CHECKING:
    from valet_local.cli.entrances import Entrance
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def open_sandbox(
    data_dir: DataDir,
    session_id: SessionId,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[vscode|vnc|terminal|TUNNEL]", help="Which; all of them where it is left out."),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Print the address of a session's VS Code, desktop, terminal or tunnel, to be opened in a browser.

    Whoever has the address can use it for an hour: keep it to yourself. Exit status 1 where what was asked for is not
    there.
    """

    async def opened(client: "Client", terminal: "Terminal") -> int:
        import msgspec
        from valet_protocol.requests import SandboxView

        from valet_local.cli import entrances, sandbox_access

        service = "*" if what is None else entrances.SERVICES.get(what, "t")
        way = await sandbox_access.token(client, session_id, service)
        view = (await client.session(session_id)).sandbox or SandboxView()
        found = entrances.entrances(way, view)
        wanted = [one for one in found if what is None or one.name == what]
        if not wanted:
            names = ", ".join(sorted(one.name for one in found if one.url is not None))
            terminal.tell(f"There is no {what!r} in this sandbox; there is: {names}", "bad")
            return 1
        if as_json:
            terminal.raw(msgspec.json.format(msgspec.json.encode(wanted)))
        else:
            _show(terminal, wanted, alone=what is not None)
        return 1 if what is not None and wanted[0].url is None else 0

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, opened)


def _show(terminal: "Terminal", wanted: "list[Entrance]", *, alone: bool) -> None:
    for one in wanted:
        if one.url is not None:
            terminal.line(one.url if alone else f"{one.name:<10} {one.url}")
    for one in wanted:
        if one.words:
            terminal.tell(f"{one.name}: {one.words}", "bad" if alone else "dim")
    if any(one.state == "absent" for one in wanted):
        terminal.tell(f"`{typed('doctor')}` says how to get what is missing; the session's next sandbox has it then.")
