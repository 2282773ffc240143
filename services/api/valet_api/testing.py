"""For tests of the API: a ledger that answers as the real one does, over the real broker, from memory.

What it does not have: events, a log, projections. The whole-system tests use the real ledger.
"""

from collections.abc import Awaitable, Callable

import msgspec
from nats.aio.client import Client
from valet_protocol.errors import Conflict, NotFound
from valet_protocol.events.agent import FileChange, Tokens
from valet_protocol.requests import (
    AbortTurn,
    Accepted,
    AnswerQuestion,
    CreateSession,
    DiffView,
    Done,
    GetDiff,
    GetSession,
    ListMessages,
    ListSessions,
    MessagePage,
    Reply,
    Request,
    SessionPage,
    SessionView,
    SubmitPrompt,
    TerminateSession,
)
from valet_service import rpc

NOWHERE = NotFound("session_not_found", "There is no such session.")


class FakeLedger:
    """Remembers sessions and what it was asked."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionView] = {}
        self.prompts: dict[str, SubmitPrompt] = {}
        self.asked: list[Request] = []
        self.running = False
        """Whether there is a turn to abort."""

    async def serve(self, nc: Client) -> None:
        """Answer from now on."""
        handlers: dict[type[Request], Callable[..., Awaitable[Reply]]] = {
            CreateSession: self._create,
            SubmitPrompt: self._submit,
            AnswerQuestion: self._answer,
            AbortTurn: self._abort,
            TerminateSession: self._terminate,
            GetSession: self._get,
            ListMessages: self._messages,
            GetDiff: self._diff,
            ListSessions: self._list,
        }
        for request, handler in handlers.items():
            await rpc.serve(nc, f"rpc.ledger.*.{request.method}", request, self._noting(handler), queue="ledger")
        await nc.flush()

    def _noting(self, handler: Callable[..., Awaitable[Reply]]) -> Callable[[Request], Awaitable[Reply]]:
        async def handle(request: Request) -> Reply:
            self.asked.append(request)
            return await handler(request)

        return handle

    def _own(self, session_id: str, user: str) -> SessionView:
        session = self.sessions.get(session_id)
        if session is None or session.owner != user:
            raise NOWHERE
        return session

    async def _create(self, request: CreateSession) -> SessionView:
        view = SessionView(
            id=request.session_id,
            status="requested",
            status_detail="",
            owner=request.owner,
            title=request.title,
            repo=request.repo,
            branch=request.branch,
            model=request.model,
            created_at="2026-01-01T00:00:00.000Z",
            updated_at="2026-01-01T00:00:00.000Z",
            epoch=0,
            cost=0.0,
            tokens=Tokens(),
            turns=0,
            seq=1,
        )
        return self.sessions.setdefault(request.session_id, view)

    async def _submit(self, request: SubmitPrompt) -> Accepted:
        self._own(request.session_id, request.user)
        self.prompts.setdefault(request.prompt_id, request)
        seq = 2 + list(self.prompts).index(request.prompt_id)
        return Accepted(prompt_id=request.prompt_id, seq=seq, status="queued")

    async def _answer(self, request: AnswerQuestion) -> Done:
        self._own(request.session_id, request.user)
        return Done(seq=7)

    async def _abort(self, request: AbortTurn) -> Done:
        self._own(request.session_id, request.user)
        if not self.running:
            raise Conflict("nothing_running", "There is no turn to stop.")
        self.running = False
        return Done(seq=8)

    async def _terminate(self, request: TerminateSession) -> Done:
        session = self._own(request.session_id, request.user)
        self.sessions[request.session_id] = msgspec.structs.replace(session, status="terminated")
        return Done(seq=9)

    async def _get(self, request: GetSession) -> SessionView:
        return self._own(request.session_id, request.user)

    async def _messages(self, request: ListMessages) -> MessagePage:
        self._own(request.session_id, request.user)
        return MessagePage(items=[], next=None)

    async def _diff(self, request: GetDiff) -> DiffView:
        self._own(request.session_id, request.user)
        return DiffView(
            base_commit="a" * 40,
            head_commit="a" * 40,
            branch="main",
            files=[FileChange(path="a.txt", status="modified", additions=1, deletions=1)],
            patch="--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n",
            truncated=False,
            seq=5,
        )

    async def _list(self, request: ListSessions) -> SessionPage:
        own = [session for session in self.sessions.values() if session.owner == request.user]
        return SessionPage(items=own[: request.limit], next=None)
