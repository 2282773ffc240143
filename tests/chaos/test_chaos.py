"""The promise of the product, tried: whatever dies, whenever, nothing is lost, nothing happens twice, nobody waits for
ever. Everything but the language model is real. `CHAOS_SEED` chooses another schedule.

Bug class: whatever nobody thought of.
"""

import os

import pytest
from valet_local.chaos import page, plan, run


@pytest.mark.timeout(600)
def test_two_minutes_of_faults_break_no_promise() -> None:
    planned = plan.schedule(int(os.environ.get("CHAOS_SEED", "1")), seconds=120.0, sessions=2)
    made = run.run(planned, tell=print)
    assert made.violations == [], page.summary(made)
    assert made.figures.kills >= len(plan.PROCESSES)
    assert made.figures.prompts > 20
    assert made.figures.terminal_bytes > 100
    assert made.figures.notes
