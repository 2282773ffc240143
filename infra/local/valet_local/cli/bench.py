"""`valet bench`: every figure beside its floor; `valet bench load`: many sessions at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the report there too.", dir_okay=False)]


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    only: Annotated[str, typer.Option(help="Only these, e.g. a,c; see docs/performance.md.")] = "",
    json_file: JsonFile = None,
    quick: Annotated[bool, typer.Option(help="Smaller and shorter: shows that it works, not how fast.")] = False,
) -> None:
    """Measure this machine: each figure beside its floor in the same run, with the aim and whether it is met."""
    if context.invoked_subcommand is not None:
        return
    import msgspec  # here, so that `valet --help` need not wait for all this
    from rich.console import Console

    from valet_local.bench import suite
    from valet_local.cli import bench_table

    benches = suite.chosen(only)
    with _progress() as progress:
        report = suite.run(benches, quick=quick, progress=progress)
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    # piped, there is no width to keep to
    out = Console(width=None if Console(stderr=True).is_terminal else bench_table.WIDTH)
    out.print(bench_table.rendered(report))
    if report.failures:
        raise typer.Exit(1)


@app.command("load")
def load(
    idle: Annotated[int, typer.Option(help="Sessions that wait.", min=0)] = 1000,
    streaming: Annotated[int, typer.Option(help="Sessions in which a turn runs.", min=1)] = 100,
    minutes: Annotated[float, typer.Option(help="Length of the largest step.", min=0.1)] = 5.0,
    json_file: JsonFile = None,
) -> None:
    """Many sessions with simulated runners: how late events are, and what each session costs; at a hundredth, a tenth
    and all of them.
    """
    import msgspec

    from valet_local.bench import load as bench_load
    from valet_local.bench import load_table

    with _progress() as progress:
        report = bench_load.run(
            bench_load.Load(idle=idle, streaming=streaming, seconds=minutes * 60), progress=progress
        )
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    typer.echo(load_table.markdown(report))


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What is being done, on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("") as status:

        def progress(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(f"{text} …", markup=False, highlight=False)

        yield progress
