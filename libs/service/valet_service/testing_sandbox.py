"""For tests of services that answer sandboxes: the asking side, and the ledger as far as it knows owners."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.errors import NotFound
from valet_protocol.ids import new_id
from valet_protocol.requests import GetOwner, Owner, Reply
from valet_protocol.tools.base import Tool

from valet_service import rpc

R = TypeVar("R", bound=Reply)


class Agent:
    """Asks as the agent of a session does, through its runner; here without the runner's credentials."""

    def __init__(self, nc: Client, session_id: str) -> None:
        self._nc = nc
        self.session_id = session_id

    async def ask(self, tool: Tool, reply: type[R], **filled_in: Any) -> R:
        """Fill in what the runner fills in, send it, wait. Raises the `Refused` that came back."""
        filled_in = {"session_id": self.session_id, "request_id": new_id(), **filled_in}
        request = msgspec.structs.replace(tool, **filled_in)
        return await rpc.call(self._nc, subjects.sandbox_request(self.session_id, tool.method), request, reply)


class OwnerLedger:
    """Stands in for the ledger where only owners are asked for. `asked` are the sessions it was asked about."""

    def __init__(self, owners: Mapping[str, str]) -> None:
        self.owners = dict(owners)
        self.asked: list[str] = []

    async def serve(self, nc: Client) -> None:
        """Begin to answer."""
        await rpc.serve(nc, f"rpc.ledger.*.{GetOwner.method}", GetOwner, self._answer, queue="ledger")
        await nc.flush()

    async def _answer(self, request: GetOwner) -> Owner:
        self.asked.append(request.session_id)
        if request.session_id not in self.owners:
            raise NotFound("session_not_found", "There is no such session.")
        return Owner(session_id=request.session_id, user=self.owners[request.session_id])
