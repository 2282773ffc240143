"""Tickets of `POST /pty/{id}/connect-token`: one use, one terminal, one minute. Pure.

The gateway has checked who comes before this service sees a request, so a ticket is asked for only because OpenCode's
clients ask for one; one that is shown must still be good.
"""

from valet_processes import limits


class Tickets:
    """Those not used yet."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, float]] = {}

    def issue(self, ticket: str, process: str, now: float) -> None:
        """Let this ticket in once."""
        while len(self._open) >= limits.TICKETS_MAX:
            del self._open[next(iter(self._open))]
        self._open[ticket] = (process, now + limits.TICKET_AGE)

    def use(self, ticket: str, process: str, now: float) -> bool:
        """Whether it is good for this process; it is not any more."""
        owner, until = self._open.pop(ticket, ("", 0.0))
        return owner == process and now < until
