"""Which benchmarks there are, and a run of some of them."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import msgspec

from valet_local.bench import dispatch, fanout, folding, machine, replay, stage, starting, streaming
from valet_local.bench.report import Failure, Figure, Report, line
from valet_local.bench.scale import FULL, QUICK, Scale
from valet_local.bench.stage import Stage
from valet_local.errors import LocalError


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark: on the platform that several share, or by itself."""

    letter: str
    title: str
    shared: Callable[[Stage, Scale], list[Figure]] | None = None
    alone: Callable[[Scale], list[Figure]] | None = None


BENCHES: tuple[Bench, ...] = (
    Bench(letter="a", title="from OpenCode's stream to a client", shared=streaming.run),
    Bench(letter="b", title="from a posted message to the runner", shared=dispatch.run),
    Bench(letter="c", title="the ledger's fold and projection", alone=folding.run),
    Bench(letter="d", title="replay to a client that comes back", shared=replay.run),
    Bench(letter="e", title="one session, many clients", shared=fanout.run),
    Bench(letter="f", title="cold and warm start of a session", alone=starting.run),
)

Progress = Callable[[str], None]
"""Told what is being done."""


def chosen(only: str) -> tuple[Bench, ...]:
    """The benchmarks named by letters, e.g. `a,c`; empty for all. Raises `LocalError` naming what is unknown."""
    letters = [word.strip().lower() for word in only.split(",") if word.strip()]
    known = {bench.letter: bench for bench in BENCHES}
    unknown = [letter for letter in letters if letter not in known]
    if unknown:
        raise LocalError(f"there is no benchmark {', '.join(unknown)}; choose from {', '.join(known)}")
    return tuple(bench for bench in BENCHES if not letters or bench.letter in letters)


def run(benches: Sequence[Bench], *, quick: bool, progress: Progress) -> Report:
    """Run them. One that cannot be carried out is a `Failure` in the report; the others still run."""
    scale = QUICK if quick else FULL
    began, load = time.monotonic(), machine.load()
    figures: list[Figure] = []
    failures: list[Failure] = []

    def attempt(bench: Bench, work: Callable[[], list[Figure]]) -> None:
        progress(f"({bench.letter}) {bench.title}")
        try:
            figures.extend(work())
        except LocalError as error:
            failures.append(Failure(bench=bench.letter, reason=str(error)))

    _shared([bench for bench in benches if bench.shared], scale, attempt, progress)
    for bench in benches:
        if bench.alone is not None:
            alone = bench.alone
            attempt(bench, lambda alone=alone: alone(scale))
    return Report(
        machine=machine.describe(load),
        quick=quick,
        seconds=time.monotonic() - began,
        lines=[line(figure, judged=not quick) for figure in sorted(figures, key=lambda figure: figure.bench)],
        failures=failures,
    )


def _shared(
    benches: Sequence[Bench],
    scale: Scale,
    attempt: Callable[[Bench, Callable[[], list[Figure]]], None],
    progress: Progress,
) -> None:
    if not benches:
        return
    progress("starting a platform with a stand-in for OpenCode")
    with ExitStack() as stack:
        folder = stack.enter_context(stage.folder())
        running = stack.enter_context(stage.platform(folder / "d", opencode=stage.write_standin(folder)))
        for bench in benches:
            assert bench.shared is not None
            shared = bench.shared
            attempt(bench, lambda shared=shared: shared(running, scale))
