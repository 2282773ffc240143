"""What is said of a set of measurements. Pure."""

import math
from collections.abc import Iterable, Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A set of measurements in three numbers, in the unit of the measurements."""

    p50: float
    p99: float
    worst: float
    samples: int


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 < share ≤ 1) of the values do not exceed (nearest rank).

    `ordered` is ascending and not empty: a percentile of nothing is a `ValueError`.
    """
    if not ordered:
        raise ValueError("no measurements")
    # rounded first: 0.99 × 100 is a little more than 99 in floating point
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def spread(values: Iterable[float]) -> Spread:
    """Median, 99th percentile and the worst. Raises `ValueError` for no values."""
    ordered = sorted(values)
    return Spread(p50=percentile(ordered, 0.5), p99=percentile(ordered, 0.99), worst=ordered[-1], samples=len(ordered))


def weighted_spread(values: Iterable[tuple[float, int]]) -> Spread:
    """The same of values that each count several times: (value, how often). Raises `ValueError` for no values."""
    ordered = sorted((value, count) for value, count in values if count > 0)
    total = sum(count for _, count in ordered)
    if not total:
        raise ValueError("no measurements")

    def at(share: float) -> float:
        rank = math.ceil(round(share * total, 9))
        seen = 0
        for value, count in ordered:
            seen += count
            if seen >= rank:
                return value
        return ordered[-1][0]

    return Spread(p50=at(0.5), p99=at(0.99), worst=ordered[-1][0], samples=total)


def median(values: Iterable[float]) -> float:
    """The middle value; of an even number the mean of the middle two. Raises `ValueError` for no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no measurements")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def middle_run(runs: Sequence[Spread]) -> Spread:
    """The run whose median is the median of the runs (of an even number the lower one)."""
    if not runs:
        raise ValueError("no runs")
    return sorted(runs, key=lambda run: run.p50)[(len(runs) - 1) // 2]
