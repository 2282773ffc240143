"""How much is measured: enough for steady figures, or just enough to see that everything works."""

import msgspec


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of all benchmarks."""

    stream_rate: int
    """(a) Frames a second."""
    stream_seconds: float
    """(a) How long they are streamed."""
    stream_runs: int
    """(a) How often, the floor as often; the median run counts."""
    prompts: int
    """(b) Prompts posted one after the other."""
    publishes: int
    """(b) Publishes of its floor."""
    fold_events: int
    """(c) Events prepared in the log."""
    fold_sessions: int
    """(c) Sessions they belong to."""
    replay_events: int
    """(d) Events replayed."""
    replay_runs: int
    """(d) How often."""
    watchers: int
    """(e) Clients of the one session."""
    watch_rates: tuple[int, ...]
    """(e) Events a second, step by step until one is not sustained; the first is light traffic."""
    watch_seconds: float
    """(e) Length of a step."""
    starts: int
    """(f) Sessions started cold, resumed warm, and OpenCodes started by themselves."""


FULL = Scale(
    stream_rate=150,
    stream_seconds=5.0,
    stream_runs=3,
    prompts=120,
    publishes=1000,
    fold_events=120_000,
    fold_sessions=40,
    replay_events=10_000,
    replay_runs=5,
    watchers=1000,
    watch_rates=(10, 100, 300, 500, 750, 1000, 1500, 2000, 3000),
    watch_seconds=2.0,
    starts=3,
)

QUICK = Scale(
    stream_rate=100,
    stream_seconds=1.0,
    stream_runs=1,
    prompts=20,
    publishes=100,
    fold_events=10_000,
    fold_sessions=8,
    replay_events=2_000,
    replay_runs=2,
    watchers=100,
    watch_rates=(10, 300),
    watch_seconds=1.0,
    starts=1,
)
