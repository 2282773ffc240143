"""Claims about many sessions with simulated runners: they are real sessions, and the figures are theirs."""

from pathlib import Path

from valet_local.bench import load, load_table, marked
from valet_local.bench.load import Load


def test_sizes_go_up_tenfold_and_never_twice_the_same() -> None:
    sizes = [(size.idle, size.streaming) for size in load.sizes(Load(idle=1000, streaming=100, seconds=300.0))]
    assert sizes == [(10, 1), (100, 10), (1000, 100)]
    assert [size.seconds for size in load.sizes(Load(idle=1000, streaming=100, seconds=300.0))] == [60.0, 60.0, 300.0]
    assert len(load.sizes(Load(idle=0, streaming=1, seconds=1.0))) == 1


def test_simulated_runners_hold_real_sessions_whose_events_reach_their_clients() -> None:
    report = load.run(
        Load(idle=4, streaming=2, seconds=3.0, rate=20.0, message_seconds=0.5), progress=lambda text: None
    )
    last = report.steps[-1]
    assert (last.idle, last.streaming) == (4, 2)
    assert last.events > 20, "two sessions at 20 deltas a second, with half a second of streaming in two"
    assert 0 < last.delay.p50 <= last.delay.p99 <= last.delay.worst
    assert last.floor.p50 > 0
    assert set(last.memory_mb) == {"nats", "postgres", *load.SERVICES}
    assert sum(last.memory_mb.values()) > 50
    assert sum(last.cpu.values()) > 0
    text = load_table.markdown(report)
    assert "| 4 + 2 |" in text


def test_the_page_of_the_documentation_has_a_place_for_the_figures() -> None:
    text = (Path(__file__).parents[3] / "docs" / "performance.md").read_text()
    assert "new figures" in marked.renewed(text, load_table.MARK, "new figures")
