"""`valet demo`: the whole system at work once, with a scripted model and everything else real."""

from pathlib import Path
from typing import Annotated

import typer

from valet_local.layout import default_data_dir

PROMPT = "One of the tests of this calculator fails. Find out why and repair it."

CONFIG = """\
# Written by `valet demo` at every run.
default_model = "scripted/demo"

[providers.scripted]
base_url = "{url}"

# Prices of a usual model, so that the demo's cost is a figure worth showing. Nobody charges them.
[providers.scripted.models.demo]
name = "Scripted model"
cost = {{ input = 3.0, output = 15.0 }}

[sandbox]
question_timeout_seconds = {timeout}
"""


def demo(
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir",
            default_factory=lambda: default_data_dir() / "demo",
            show_default="demo in the system's place for application data",
            help="Where the demo keeps everything.",
        ),
    ],
) -> None:
    """Watch a real agent repair a small repository. Needs no API key: only the language model is scripted."""
    import time  # here, so that `valet --help` need not wait for all this

    from valet_local import sample, tools
    from valet_local.assembly import Options
    from valet_local.cli import connection, limits, scripted_model
    from valet_local.cli.demonstration import demonstrate
    from valet_local.cli.terminal import Terminal
    from valet_local.errors import AlreadyRunning
    from valet_local.files import write_atomically
    from valet_local.layout import layout, prepare
    from valet_local.lock import holder

    began = time.monotonic()
    terminal = Terminal()
    places = layout(data_dir)
    if (pid := holder(places.lock)) is not None:
        raise AlreadyRunning(places.data, pid)
    prepare(places)
    repo = places.data / "calculator"
    sample.make(repo, tools.find_git())
    terminal.tell("Valet demo: a real OpenCode agent in a real sandbox; only the language model is scripted.")
    with scripted_model.playing("demo") as url:
        config = places.data / "valet.toml"
        text = CONFIG.format(url=url, timeout=limits.DEMO_QUESTION)
        write_atomically(config, text.encode())
        options = Options(data_dir=places.data, port=0, config=config, quiet=True)
        with connection.own(options, terminal) as platform:
            terminal.tell(f"  ready after {time.monotonic() - began:.1f} s\n")
            status = demonstrate(platform, terminal, PROMPT, repo)
    raise typer.Exit(status)
