"""Claims about what is said of a set of measurements."""

import pytest
from valet_local.bench.statistics import Spread, median, middle_run, percentile, spread, weighted_spread


def test_percentiles_are_values_that_were_measured() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert percentile(ordered, 0.5) == 50
    assert percentile(ordered, 0.99) == 99
    assert percentile(ordered, 1.0) == 100
    assert percentile([7.0], 0.01) == 7


def test_a_spread_does_not_care_about_order() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(p50=2.0, p99=3.0, worst=3.0, samples=3)


def test_a_weighted_spread_equals_the_spread_of_the_values_written_out() -> None:
    weighted = [(5.0, 3), (1.0, 90), (9.0, 7), (4.0, 0)]
    assert weighted_spread(weighted) == spread(value for value, count in weighted for _ in range(count))


def test_an_even_number_of_values_has_a_median_between_the_middle_two() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_the_middle_run_is_one_of_the_runs() -> None:
    runs = [Spread(p50=p50, p99=9.0, worst=9.0, samples=1) for p50 in (3.0, 1.0, 2.0)]
    assert middle_run(runs) is runs[2]
    assert middle_run(runs[:2]) is runs[1]


@pytest.mark.parametrize("nothing", [spread, weighted_spread, median, middle_run])
def test_nothing_measured_is_an_error_and_not_a_zero(nothing: object) -> None:
    with pytest.raises(ValueError, match=r"^no "):
        nothing([])  # type: ignore[operator]
