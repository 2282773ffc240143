"""`valet queue`: the prompts that wait."""

from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def queue(
    data_dir: DataDir,
    session_id: SessionId,
    edit: Annotated[
        tuple[str, str] | None, typer.Option(metavar="PROMPT TEXT", help="Give a prompt another text.")
    ] = None,
    withdraw: Annotated[str | None, typer.Option(metavar="PROMPT", help="Take a prompt back.")] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="PROMPT,PROMPT,…", help="Put these first, in this order; the others follow as they were."),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List the prompts that wait, after having changed one of them if told to."""
    if sum(one is not None for one in (edit, withdraw, order)) > 1:
        raise typer.BadParameter("give one of --edit, --withdraw and --order at a time")

    async def queued(client: "Client", terminal: "Terminal") -> None:
        import msgspec

        from valet_local.cli import tables

        if edit is not None:
            await client.edit_prompt(session_id, *edit)
        elif withdraw is not None:
            await client.withdraw_prompt(session_id, withdraw)
        elif order is not None:
            await client.reorder_queue(session_id, [one.strip() for one in order.split(",") if one.strip()])
        waiting = (await client.session(session_id)).queued
        if as_json:
            terminal.raw(msgspec.json.format(msgspec.json.encode(waiting)))
        elif waiting:
            terminal.write(tables.prompts(waiting))
        else:
            terminal.tell("No prompt waits.")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, queued)
