"""When a process that died is started again: a pure function of how long it lived."""

import msgspec

from valet_local import limits


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a process's deaths."""

    in_a_row: int = 0
    """Deaths since it was last up for `BACKOFF_RESET_AFTER`."""


def after_death(before: Restarts, *, uptime: float) -> tuple[Restarts, float]:
    """What to remember, and how many seconds to wait before the next start. `uptime` in seconds."""
    in_a_row = 1 if uptime >= limits.BACKOFF_RESET_AFTER else before.in_a_row + 1
    # The exponent is held small: after a week of deaths 2**n must still be a float.
    wait = limits.BACKOFF_FIRST * 2.0 ** min(in_a_row - 1, 16)
    return Restarts(in_a_row=in_a_row), min(wait, limits.BACKOFF_LONGEST)
