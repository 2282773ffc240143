"""Whose session it is: the ledger knows, and it never changes."""

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.requests import GetOwner, Owner

from valet_service import rpc


class Owners:
    """Asks the ledger once for each session, and remembers the answers of the last `keep` ones."""

    def __init__(self, nc: Client, keep: int) -> None:
        self._nc = nc
        self._keep = keep
        self._known: dict[str, Owner] = {}

    async def of(self, session_id: str) -> Owner:
        """Raises `NotFound` for no such session, and `Unavailable` when the ledger is away for longer than a restart
        takes."""
        owner = self._known.pop(session_id, None)
        if owner is None:
            subject = subjects.ledger_command(session_id, GetOwner.method)
            owner = await rpc.call(self._nc, subject, GetOwner(session_id=session_id), Owner)
        self._known[session_id] = owner  # the youngest: the first of a dict is the one used longest ago
        if len(self._known) > self._keep:
            del self._known[next(iter(self._known))]
        return owner
