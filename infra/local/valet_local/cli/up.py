"""`valet up`: fetch what is missing, then become the platform."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from valet_local import config, launch, provision
from valet_local.assembly import DEFAULT_PORT, Options
from valet_local.cli import progress
from valet_local.cli.options import DataDir
from valet_local.errors import AlreadyRunning
from valet_local.layout import layout, prepare
from valet_local.lock import holder


class Isolation(StrEnum):
    BWRAP = "bwrap"
    NONE = "none"


def up(
    data_dir: DataDir,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = DEFAULT_PORT,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    config_file: Annotated[Path | None, typer.Option("--config", help="A valet.toml.")] = None,
    isolation: Annotated[
        Isolation | None, typer.Option(help="none runs agents without a sandbox: only where that is safe.")
    ] = None,
    services: Annotated[str | None, typer.Option(hidden=True, help="Only these services, separated by commas.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the platform on this machine until Ctrl-C."""
    places = layout(data_dir)
    options = Options(
        data_dir=places.data,
        host=host,
        port=port,
        config=config_file.absolute() if config_file else None,
        isolation=isolation.value if isolation else None,
        log_level=log_level,
        services=None if services is None else tuple(filter(None, services.split(","))),
    )
    config.load(places.data, options.config)  # a wrong file is named before anything is fetched
    pid = holder(places.lock)
    if pid is not None:
        raise AlreadyRunning(places.data, pid)
    prepare(places)
    with progress.shown() as report:
        provision.ensure_tools(places, progress=report)
    # The platform needs little of what the command line has imported, and lives much longer.
    sys.stdout.flush()
    command = launch.command(options, with_parent=False)
    os.execv(command[0], command)
