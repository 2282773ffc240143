"""Asking the ledger of a session, whichever that is."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar, cast

from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.requests import Reply, Request
from valet_service import rpc

from valet_session_ledger import limits

Handler = Callable[[Any], Awaitable[Reply]]
Q = TypeVar("Q", bound=Request)
R = TypeVar("R", bound=Reply)


class Peers:
    """The ledgers of all shards. This process answers for its own ones without a way over the broker."""

    def __init__(self, nc: Client, shards: Collection[int]) -> None:
        self._nc = nc
        self._shards = shards
        self.handlers: dict[type[Request], Handler] = {}
        """This process's own; set before anything is asked."""

    def is_own(self, session_id: str) -> bool:
        """Whether this process answers for a session."""
        return subjects.shard_of(session_id) in self._shards

    async def ask(self, session_id: str, request: Request, reply: type[R]) -> R:
        """A command or a read about one session. Raises the `Refused` that comes back."""
        if self.is_own(session_id):
            return cast(R, await self.handlers[type(request)](request))
        subject = subjects.ledger_command(session_id, request.method)
        return await rpc.call(self._nc, subject, request, reply, timeout=limits.PEER_WAIT)

    def at_its_ledger(self, answer: Callable[[Q], Awaitable[R]], reply: type[R]) -> Callable[[Q], Awaitable[R]]:
        """A sandbox's request does not say its shard: one that came to the wrong ledger is passed on."""

        async def passed_on(request: Q) -> R:
            session_id: str = getattr(request, "session_id", "")
            if self.is_own(session_id):
                return await answer(request)
            subject = subjects.ledger_command(session_id, of_a_sandbox(request.method))
            return await rpc.call(self._nc, subject, request, reply, timeout=limits.PEER_WAIT)

        return passed_on


def of_a_sandbox(method: str) -> str:
    """The last tokens of the subject on which a ledger takes a sandbox's request that another one passes on."""
    return f"sandbox.{method}"
