"""`valet down`: stop the platform of a data directory from outside."""

import typer

from valet_local import launch
from valet_local.cli.options import DataDir
from valet_local.errors import NotRunning


def down(data_dir: DataDir) -> None:
    """Stop the platform that runs on this data directory."""
    try:
        in_order = launch.stop(data_dir)
    except NotRunning:
        typer.echo("Valet is not running.")
        return
    if in_order:
        typer.echo("Stopped.")
    else:
        typer.echo("Stopped; some of it had to be killed. Nothing that was acknowledged is lost.")
