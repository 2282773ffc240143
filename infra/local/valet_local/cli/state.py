"""`valet state`: a session as it was."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def state(
    data_dir: DataDir,
    session_id: SessionId,
    at: Annotated[int, typer.Option("--at", metavar="SEQ", min=1, help="Right after this event.")],
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show a session as it was right after an event: its state, its conversation, what it had changed."""

    async def shown(client: "Client", terminal: "Terminal") -> None:
        import msgspec

        from valet_local.cli import tables

        view = await client.state(session_id, at, nested=not as_json)
        if at > view.session.seq and at > (last := (await client.session(session_id)).seq):
            terminal.tell(f"Event {at} comes after its last one, {last}: this is the session as it is now.")
        if as_json:
            terminal.raw(msgspec.json.format(msgspec.json.encode(view)))
            return
        terminal.write(tables.session(view.session))
        terminal.write(tables.conversation(view.messages))
        if view.diff.patch:
            terminal.line()
            terminal.write(tables.diff(view.diff))

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, shown)
