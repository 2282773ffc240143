"""Claims about when a dead process is started again."""

from valet_local import limits
from valet_local.restart_policy import Restarts, after_death


def _waits(uptimes: list[float]) -> list[float]:
    state = Restarts()
    waits: list[float] = []
    for uptime in uptimes:
        state, wait = after_death(state, uptime=uptime)
        waits.append(wait)
    return waits


def test_the_first_restart_is_at_once_and_the_wait_doubles() -> None:
    assert _waits([0.0] * 4) == [0.1, 0.2, 0.4, 0.8]


def test_no_wait_is_longer_than_the_recovery_that_is_promised() -> None:
    assert max(_waits([0.0] * 5000)) == limits.BACKOFF_LONGEST


def test_a_process_that_was_up_for_long_starts_afresh() -> None:
    assert _waits([0.0, 0.0, limits.BACKOFF_RESET_AFTER, 0.0]) == [0.1, 0.2, 0.1, 0.2]
