"""Who is in the sandbox through the gateway at this moment, and their end when they may be there no longer."""

import asyncio
import contextlib
from collections.abc import Iterator

from aiohttp import web
from valet_service import logs

from valet_gateway import limits
from valet_gateway.admission import AGENT, Access, Admitted
from valet_gateway.sockets import Ending, Sockets

log = logs.get(__name__)

PUT_OUT = Ending(code=1008, reason="you may no longer be in this sandbox")


class _Visit:
    """A request that is being answered, or a WebSocket that it became."""

    __slots__ = ("answering", "by", "transport")

    def __init__(self, by: Admitted, request: web.BaseRequest) -> None:
        self.by = by
        self.transport = request.transport
        self.answering = asyncio.current_task()


class Visits:
    """All visits of people. `access` is the last word of the runner on who may be here; none before its first."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._open: set[_Visit] = set()
        self.access: Access | None = None

    @contextlib.contextmanager
    def visit(self, admitted: Admitted, request: web.BaseRequest) -> Iterator[None]:
        """Around all that is done for somebody who came in: it is ended from outside if need be."""
        if admitted.subject == AGENT:
            yield
            return
        visit = _Visit(admitted, request)
        self._open.add(visit)
        try:
            yield
        finally:
            self._open.discard(visit)

    async def judge(self, access: Access) -> None:
        """These may be here from now on. Returns when all others are out, which takes half a second at most."""
        self.access = access
        gone = [visit for visit in self._open if not access.allows(visit.by.subject, visit.by.seq)]
        if not gone:
            return
        log.info("put_out", visits=len(gone), people=len({visit.by.subject for visit in gone}), seq=access.seq)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.PUT_OUT):
                await asyncio.gather(*(self._sockets.end(visit.answering, PUT_OUT) for visit in gone))
        for visit in gone:
            if visit in self._open and visit.transport is not None:
                visit.transport.abort()
