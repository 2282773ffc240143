"""`valet ledger`: maintenance of the session ledger."""

import typer

from valet_local import maintenance
from valet_local.cli.options import DataDir

app = typer.Typer(help="Maintenance of the session ledger.", no_args_is_help=True)


@app.callback()
def ledger() -> None:
    """Maintenance of the session ledger."""


@app.command("rebuild")
def rebuild(data_dir: DataDir) -> None:
    """Drop every read model and fold it again from the log."""
    raise typer.Exit(maintenance.run_module(data_dir, "session-ledger", "valet_session_ledger.rebuild"))
