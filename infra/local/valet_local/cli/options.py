"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from valet_local.layout import default_data_dir

DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        default_factory=default_data_dir,
        show_default="the system's place for application data",
        help="Where everything is kept.",
    ),
]

SessionId = Annotated[str, typer.Argument(metavar="ID", help="The session, as `valet sessions` lists it.")]

Url = Annotated[
    str | None, typer.Option("--url", help="Address of a platform elsewhere; else $VALET_URL.", show_default=False)
]

Token = Annotated[
    str | None, typer.Option("--token", help="Token to sign in there; else $VALET_TOKEN.", show_default=False)
]

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
