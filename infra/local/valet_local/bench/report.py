"""Figures, their aims and the whole report. Pure."""

from typing import Literal

import msgspec

Unit = Literal["ms", "s", "events/s", "deliveries/s"]

RATES: frozenset[Unit] = frozenset(("events/s", "deliveries/s"))
"""Units of which more is better."""


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure is to be. Exactly one of these is given."""

    times_floor: float | None = None
    """At most so many times its floor."""
    at_most: float | None = None
    at_least: float | None = None
    above_floor: float | None = None
    """At most its floor and so much."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure beside its floor."""

    bench: str
    """Letter of the benchmark."""
    name: str
    value: float
    unit: Unit
    floor: float
    """The same unit: what the machine and the programs we build on need for it alone."""
    floor_name: str
    aim: Aim | None = None
    """None where the figure is only told."""
    bound: str = ""
    """What holds it back, as profiled; shown when the aim is missed."""
    note: str = ""
    """How many samples, what else was seen."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with what follows from it: the form of the JSON report."""

    bench: str
    name: str
    value: float
    unit: Unit
    floor: float
    floor_name: str
    ratio: float
    """Value by floor; for rates floor by value, so that 1 is the floor and more is worse, always."""
    aim: str
    """Empty for a figure without one."""
    met: bool | None
    """None for a figure without an aim, and in a quick run."""
    reason: str
    """Why a missed aim is missed."""
    note: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What it was measured on."""

    cpu: str
    cpus: int
    memory_mb: int
    system: str
    python: str
    nats: str
    opencode: str
    load_before: float
    """Load average over a minute when the run began: above 0.5 somebody else was at work, and figures suffer."""
    load_after: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark that could not be carried out."""

    bench: str
    reason: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run has to say."""

    machine: Machine
    quick: bool
    seconds: float
    """How long the whole run took."""
    lines: list[Line]
    failures: list[Failure]


def ratio(figure: Figure) -> float:
    """How many times the floor's cost the figure costs."""
    above, below = (figure.floor, figure.value) if figure.unit in RATES else (figure.value, figure.floor)
    return above / below if below > 0 else float("inf")


def met(figure: Figure) -> bool | None:
    """Whether the aim is met."""
    aim = figure.aim
    if aim is None:
        return None
    if aim.times_floor is not None:
        return ratio(figure) <= aim.times_floor
    if aim.at_most is not None:
        return figure.value <= aim.at_most
    if aim.at_least is not None:
        return figure.value >= aim.at_least
    if aim.above_floor is not None:
        return figure.value <= figure.floor + aim.above_floor
    return None


def aim_in_words(aim: Aim | None, unit: Unit) -> str:
    """The aim for people."""
    if aim is None:
        return ""
    if aim.times_floor is not None:
        return f"≤ {aim.times_floor:g} × floor"
    if aim.at_most is not None:
        return f"≤ {amount(aim.at_most, unit)}"
    if aim.at_least is not None:
        return f"≥ {amount(aim.at_least, unit)}"
    return f"≤ floor + {amount(aim.above_floor or 0.0, unit)}"


def amount(value: float, unit: Unit) -> str:
    """A number with three digits that count and its unit; what a rate counts is in its name."""
    if unit in RATES:
        return f"{value:,.0f}/s"
    return f"{value:.3g} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def line(figure: Figure, *, judged: bool = True) -> Line:
    """A figure with its verdict; without one when `judged` is off: a quick run says nothing about speed."""
    verdict = met(figure) if judged else None
    return Line(
        bench=figure.bench,
        name=figure.name,
        value=figure.value,
        unit=figure.unit,
        floor=figure.floor,
        floor_name=figure.floor_name,
        ratio=ratio(figure),
        aim=aim_in_words(figure.aim, figure.unit),
        met=verdict,
        reason=figure.bound if verdict is False else "",
        note=figure.note,
    )
