"""How far a download is: a bar on a terminal, one line per stage elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from valet_local.tools import Progress


@contextmanager
def shown() -> Iterator[Progress]:
    """A progress function that draws on stderr; nothing appears unless something is fetched."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    with ExitStack() as stack:
        yield _bars(stack)


def _lines() -> Progress:
    told: set[str] = set()

    def report(stage: str, done: int, total: int) -> None:
        if stage not in told:
            told.add(stage)
            print(f"{stage} …", file=sys.stderr, flush=True)

    return report


def _bars(stack: ExitStack) -> Progress:
    # Imported when the first bar is drawn: a start with everything in place shows none and should not wait
    # for it.
    def begin() -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bars

        bars = stack.enter_context(
            Bars(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                console=Console(stderr=True),
            )
        )
        tasks = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for other in tasks.values():
                    bars.update(other, total=1, completed=1, visible=False)
                tasks[stage] = bars.add_task(stage, total=None)
            bars.update(tasks[stage], completed=done, total=total or None)

        return report

    drawn: list[Progress] = []

    def report(stage: str, done: int, total: int) -> None:
        if not drawn:
            drawn.append(begin())
        drawn[0](stage, done, total)

    return report
