"""`valet bench`: every figure beside its floor."""

from pathlib import Path
from typing import Annotated

import typer


def bench(
    only: Annotated[str, typer.Option(help="Only these, e.g. a,c; see docs/performance.md.")] = "",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the report there too.", dir_okay=False)
    ] = None,
    quick: Annotated[bool, typer.Option(help="Smaller and shorter: shows that it works, not how fast.")] = False,
) -> None:
    """Measure this machine: each figure beside its floor in the same run, with the aim and whether it is met."""
    import msgspec  # here, so that `valet --help` need not wait for all this
    from rich.console import Console

    from valet_local.bench import suite
    from valet_local.cli import bench_table

    console = Console(stderr=True)
    benches = suite.chosen(only)
    with console.status("") as status:

        def progress(text: str) -> None:
            status.update(text)
            if not console.is_terminal:
                console.print(f"{text} …", markup=False, highlight=False)

        report = suite.run(benches, quick=quick, progress=progress)
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    # piped, there is no width to keep to
    out = Console(width=None if console.is_terminal else bench_table.WIDTH)
    out.print(bench_table.rendered(report))
    if report.failures:
        raise typer.Exit(1)
