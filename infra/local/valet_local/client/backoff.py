"""When to try again. Pure: the clock and the randomness are the caller's."""

from collections.abc import Iterator

from valet_local.client import limits


def waits(jitter: float) -> Iterator[float]:
    """Seconds before each repetition: doubling from `RETRY_FIRST` to `RETRY_LONGEST`, all scaled by
    0.75-1.25.

    `jitter` in 0..1 is drawn once per series, so that many clients cut at once do not all come back at once.
    """
    wait = limits.RETRY_FIRST
    while True:
        yield wait * (0.75 + jitter / 2)
        wait = min(wait * 2, limits.RETRY_LONGEST)
