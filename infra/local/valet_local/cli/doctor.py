"""`valet doctor`: what is missing, and how to get it."""

from pathlib import Path
from typing import Annotated

import typer

from valet_local.cli.options import DataDir
from valet_local.doctor import examine
from valet_local.layout import layout


def doctor(
    data_dir: DataDir,
    config_file: Annotated[Path | None, typer.Option("--config", help="A valet.toml.")] = None,
) -> None:
    """Say what this machine lacks to run Valet; exit status 1 if something needed is missing."""
    healthy = True
    for finding in examine(layout(data_dir), config_path=config_file):
        mark = "ok  " if finding.ok else ("MISS" if finding.needed else "note")
        typer.echo(f"{mark} {finding.name}: {finding.detail}")
        if not finding.ok and finding.remedy:
            typer.echo(f"       {finding.remedy}")
        healthy = healthy and (finding.ok or not finding.needed)
    raise typer.Exit(0 if healthy else 1)
