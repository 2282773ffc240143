"""`valet chaos`: break everything at random, and check that nothing was lost."""

from pathlib import Path
from typing import Annotated

import typer


def chaos(
    minutes: Annotated[float, typer.Option(help="How long things break.", min=0.2, max=600)] = 2.0,
    seed: Annotated[int, typer.Option(help="The same seed is the same schedule.")] = 1,
    sessions: Annotated[int, typer.Option(help="Sessions, each with an agent of its own.", min=1, max=32)] = 4,
    report_file: Annotated[
        Path | None, typer.Option("--report", help="Write the report there, as JSON.", dir_okay=False)
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the platform's files and all that was recorded there.", file_okay=False)
    ] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Only show the schedule.")] = False,
) -> None:
    """Kill, stop and cut every part of a platform while agents work; then check every promise. Exit status 1 for any
    that was broken.
    """
    import msgspec  # here, so that `valet --help` need not wait for all this

    from valet_local.chaos import page, plan, run

    planned = plan.schedule(seed, seconds=minutes * 60, sessions=sessions)
    typer.echo(plan.in_words(planned))
    if plan_only:
        return
    made = run.run(planned, tell=lambda text: typer.echo(f"… {text}", err=True), keep=keep)
    if report_file is not None:
        report_file.write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    typer.echo(page.summary(made))
    if made.violations:
        raise typer.Exit(1)
