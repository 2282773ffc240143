"""`valet export` and `valet import`: a session as a file of its events."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url
from valet_local.invocation import typed

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def export(
    data_dir: DataDir,
    session_id: SessionId,
    output: Annotated[Path | None, typer.Option("-o", "--output", dir_okay=False, help="Else to stdout.")] = None,
    files: Annotated[
        bool, typer.Option("--files", help="With attachments, images, and what its agent goes on with elsewhere.")
    ] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Write everything that happened in a session as JSON lines. A file is there whole or not at all."""

    async def exported(client: "Client", terminal: "Terminal") -> None:
        if output is None:
            async for piece in client.export(session_id, files=files):
                terminal.pass_on(piece)
            return
        count = await _write(client, session_id, output, files=files)
        terminal.tell(f"{count:,} bytes in {output}; `{typed(f'import {output}')}` makes a session of it")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, exported)


async def _write(client: "Client", session_id: str, output: Path, *, files: bool) -> int:
    from valet_local.client.errors import FileTrouble

    part = output.with_name(f".{output.name}.part")
    count = 0
    try:
        with part.open("wb") as file:
            async for piece in client.export(session_id, files=files):
                count += file.write(piece)
        part.replace(output)
    except OSError as error:
        raise FileTrouble(output, error.strerror or str(error)) from None
    finally:
        part.unlink(missing_ok=True)
    return count


def import_session(
    data_dir: DataDir,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `valet export` wrote.", dir_okay=False)],
    title: Annotated[str | None, typer.Option(help="A name for the session; else the source's.")] = None,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Make a session from an export, and print its id."""

    async def imported(client: "Client", terminal: "Terminal") -> None:
        import msgspec

        view = await client.import_session(file, title=title)
        terminal.raw(msgspec.json.encode(view)) if as_json else terminal.line(view.id)

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, imported)
