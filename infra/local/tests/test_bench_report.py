"""Claims about figures, aims and the table."""

import io

import pytest
from rich.console import Console
from valet_local.bench.report import (
    Aim,
    Failure,
    Figure,
    Machine,
    Report,
    Unit,
    aim_in_words,
    amount,
    line,
    met,
    ratio,
)
from valet_local.cli.bench_table import rendered


def figure(value: float, floor: float, aim: Aim | None, unit: Unit = "ms") -> Figure:
    return Figure(
        bench="x", name="a figure", value=value, unit=unit, floor=floor, floor_name="floor", aim=aim, bound="too slow"
    )


@pytest.mark.parametrize(
    ("value", "aim", "unit", "expected"),
    [
        (3.0, Aim(times_floor=3.0), "ms", True),
        (3.1, Aim(times_floor=3.0), "ms", False),
        (10.0, Aim(at_most=10.0), "ms", True),
        (10.1, Aim(at_most=10.0), "ms", False),
        (30_000.0, Aim(at_least=30_000), "events/s", True),
        (29_999.0, Aim(at_least=30_000), "events/s", False),
        (2.5, Aim(above_floor=1.5), "s", True),
        (2.6, Aim(above_floor=1.5), "s", False),
        (1.0, None, "s", None),
    ],
)
def test_an_aim_is_met_up_to_its_very_number(value: float, aim: Aim | None, unit: Unit, expected: bool | None) -> None:
    assert met(figure(value, 1.0, aim, unit)) is expected


def test_a_ratio_above_one_is_worse_than_the_floor_for_times_and_for_rates() -> None:
    assert ratio(figure(4.0, 2.0, None, "ms")) == 2.0
    assert ratio(figure(2.0, 4.0, None, "events/s")) == 2.0
    assert ratio(figure(0.0, 4.0, None, "events/s")) == float("inf")


def test_only_a_missed_aim_has_a_reason() -> None:
    assert line(figure(4.0, 1.0, Aim(times_floor=3.0))).reason == "too slow"
    assert line(figure(2.0, 1.0, Aim(times_floor=3.0))).reason == ""
    assert line(figure(2.0, 1.0, None)).reason == ""


def test_a_quick_run_judges_nothing() -> None:
    quick = line(figure(4.0, 1.0, Aim(times_floor=3.0)), judged=False)
    assert quick.met is None
    assert quick.reason == ""


def test_amounts_have_their_unit() -> None:
    assert amount(0.12345, "ms") == "0.123 ms"
    assert amount(1234.5, "s") == "1,234 s"
    assert amount(300_000.4, "deliveries/s") == "300,000/s"
    assert aim_in_words(Aim(above_floor=1.5), "s") == "≤ floor + 1.5 s"


def test_the_table_names_what_was_missed_and_what_was_not_measured() -> None:
    machine = Machine(
        cpu="a processor",
        cpus=2,
        memory_mb=4096,
        system="Linux",
        python="3.11",
        nats="2.15.1",
        opencode="1",
        load_before=5.0,
        load_after=1.0,
    )
    report = Report(
        machine=machine,
        quick=False,
        seconds=1.0,
        lines=[line(figure(4.0, 1.0, Aim(times_floor=3.0)))],
        failures=[Failure(bench="y", reason="it was dark")],
    )
    out = io.StringIO()
    Console(file=out, width=120).print(rendered(report))
    for words in ("≤ 3 × floor", "missed: too slow", "(y) not measured: it was dark", "busy when the run began"):
        assert words in out.getvalue()
