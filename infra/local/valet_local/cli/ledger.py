"""`valet ledger`: maintenance of the session ledger."""

from typing import Annotated

import typer

from valet_local import maintenance
from valet_local.cli.options import DataDir

app = typer.Typer(help="Maintenance of the session ledger.", no_args_is_help=True)


@app.callback()
def ledger() -> None:
    """Maintenance of the session ledger."""


@app.command("rebuild")
def rebuild(
    data_dir: DataDir,
    verify: Annotated[
        bool, typer.Option(help="Only compare; exit status 1 if a read model differs from the log.")
    ] = False,
) -> None:
    """Drop every read model and fold it again from the log."""
    arguments = ("--verify",) if verify else ()
    module = "valet_session_ledger.rebuild"
    raise typer.Exit(maintenance.run_module(data_dir, "session-ledger", module, *arguments))
