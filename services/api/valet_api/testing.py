"""For tests of the API: a ledger that answers as the real one does, over the real broker, from memory.

What it does not have: events of its own, a log, projections. The whole-system tests use the real ledger.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from nats.aio.client import Client
from valet_protocol.errors import Conflict, Forbidden, NotFound, Refused, Unprocessable
from valet_protocol.events.agent import FileChange, Finding, Tokens, WorkRef
from valet_protocol.events.facts import Role
from valet_protocol.requests import (
    AbortTurn,
    Accepted,
    AddParticipant,
    AnswerQuestion,
    ArchivedEvent,
    ArchivePage,
    ChangePolicy,
    CommandView,
    CreateSession,
    CreateShareLink,
    DiffView,
    Done,
    EditPrompt,
    FindImage,
    ForkPlan,
    ForkSession,
    GetCommand,
    GetDiff,
    GetReview,
    GetSession,
    GetState,
    ImagePlace,
    ImportEvents,
    JoinSession,
    ListMessages,
    ListParticipants,
    ListPrompts,
    ListSessions,
    ListTurns,
    MessagePage,
    ParticipantList,
    ParticipantView,
    PlanFork,
    PromptPage,
    PromptView,
    ReadArchive,
    RemoveParticipant,
    RenameSession,
    ReorderQueue,
    Reply,
    Request,
    RequestCommand,
    ReviewView,
    RevokeShareLink,
    SessionPage,
    SessionView,
    ShareLinkView,
    StateView,
    SubmitPrompt,
    TerminateSession,
    TurnPage,
    WithdrawPrompt,
)
from valet_service import rpc

if TYPE_CHECKING:
    import httpx

DIFF = DiffView(
    base_commit="a" * 40,
    head_commit="a" * 40,
    branch="main",
    files=[FileChange(path="a.txt", status="modified", additions=1, deletions=1)],
    patch="--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n",
    truncated=False,
    seq=5,
)


def problem(response: "httpx.Response", status: int, code: str | None = None) -> dict[str, Any]:
    """The problem document of an answer, checked for what every one must have."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert code is None or document["code"] == code, document
    assert "Traceback" not in response.text
    return document


class FakeLedger:
    """Remembers sessions and what it was asked."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionView] = {}
        self.prompts: dict[str, SubmitPrompt] = {}
        self.participants: dict[str, dict[str, Role]] = {}
        self.links: dict[str, CreateShareLink] = {}
        self.commands: dict[str, CommandView] = {}
        self.images: dict[tuple[str, str], str] = {}
        """Where pictures of forks lie, by session and picture."""
        self.archive: list[ArchivedEvent] = []
        """What every session's archive has."""
        self.asked: list[Request] = []
        self.running = False
        """Whether there is a turn to abort."""
        self.work: WorkRef | None = None
        """What a fork starts from."""
        self.refuse: dict[type[Request], Refused] = {}
        """Requests that are refused from now on."""
        self.hold = asyncio.Event()
        """While not set, answers to aborts wait."""
        self.hold.set()

    async def serve(self, nc: Client) -> None:
        """Answer from now on."""
        handlers: dict[type[Request], Callable[..., Awaitable[Reply]]] = {
            CreateSession: self._create,
            SubmitPrompt: self._submit,
            EditPrompt: self._edit,
            WithdrawPrompt: self._edit,
            ReorderQueue: self._writer,
            AnswerQuestion: self._writer,
            AbortTurn: self._abort,
            TerminateSession: self._terminate,
            RenameSession: self._rename,
            ChangePolicy: self._change_policy,
            AddParticipant: self._add_participant,
            RemoveParticipant: self._remove_participant,
            CreateShareLink: self._create_link,
            RevokeShareLink: self._owner,
            JoinSession: self._join,
            RequestCommand: self._request_command,
            PlanFork: self._plan_fork,
            ForkSession: self._fork,
            ImportEvents: self._import,
            GetSession: self._get,
            GetCommand: self._command,
            GetReview: self._review,
            FindImage: self._find_image,
            GetState: self._state,
            GetDiff: self._diff,
            ListMessages: self._messages,
            ListPrompts: self._list_prompts,
            ListTurns: self._turns,
            ListParticipants: self._list_participants,
            ListSessions: self._list,
            ReadArchive: self._read_archive,
        }
        for request, handler in handlers.items():
            await rpc.serve(nc, f"rpc.ledger.*.{request.method}", request, self._noting(handler), queue="ledger")
        await nc.flush()

    def all(self, kind: type[Request]) -> list[Request]:
        """What it was asked of a kind."""
        return [request for request in self.asked if isinstance(request, kind)]

    def _noting(self, handler: Callable[..., Awaitable[Reply]]) -> Callable[[Request], Awaitable[Reply]]:
        async def handle(request: Request) -> Reply:
            self.asked.append(request)
            if type(request) in self.refuse:
                raise self.refuse[type(request)]
            return await handler(request)

        return handle

    def _seen(self, session_id: str, user: str) -> SessionView:
        """A session as a participant sees it."""
        session = self.sessions.get(session_id)
        role = self.participants.get(session_id, {}).get(user)
        if session is None or role is None:
            raise NotFound("session_not_found", "There is no such session.")
        return msgspec.structs.replace(session, role=role)

    async def _find_image(self, request: FindImage) -> ImagePlace:
        self._seen(request.session_id, request.user)
        place = self.images.get((request.session_id, request.image_id))
        if place is None:
            raise NotFound("image_not_found", f"This session has no image {request.image_id[:40]!r}.")
        return ImagePlace(session_id=place)

    def _new(self, session_id: str, owner: str, **known: object) -> SessionView:
        view = SessionView(
            id=session_id,
            status="requested",
            status_detail="",
            owner=owner,
            title="",
            repo=None,
            branch=None,
            model="scripted/one",
            created_at="2026-01-01T00:00:00.000Z",
            updated_at="2026-01-01T00:00:00.000Z",
            epoch=0,
            cost=0.0,
            tokens=Tokens(),
            turns=0,
            seq=1,
        )
        self.participants.setdefault(session_id, {})[owner] = "owner"
        return self.sessions.setdefault(session_id, msgspec.structs.replace(view, **known))

    async def _owner(self, request: RevokeShareLink) -> Done:
        if self._seen(request.session_id, request.user).role != "owner":
            raise Forbidden("role_too_low", "Only an owner may do this.")
        return Done(seq=10)

    async def _writer(self, request: ReorderQueue | AnswerQuestion) -> Done:
        if self._seen(request.session_id, request.user).role == "viewer":
            raise Forbidden("role_too_low", "Viewers read.")
        return Done(seq=7)

    async def _create(self, request: CreateSession) -> SessionView:
        return self._new(
            request.session_id,
            request.owner,
            title=request.title,
            repo=request.repo,
            branch=request.branch,
            model=request.model,
            policy=request.policy,
        )

    async def _submit(self, request: SubmitPrompt) -> Accepted:
        self._seen(request.session_id, request.user)
        self.prompts.setdefault(request.prompt_id, request)
        seq = 2 + list(self.prompts).index(request.prompt_id)
        return Accepted(prompt_id=request.prompt_id, seq=seq, status="queued")

    async def _edit(self, request: EditPrompt | WithdrawPrompt) -> Done:
        self._seen(request.session_id, request.user)
        if request.prompt_id not in self.prompts:
            raise Conflict("not_waiting", "This prompt does not wait.")
        return Done(seq=6)

    async def _abort(self, request: AbortTurn) -> Done:
        self._seen(request.session_id, request.user)
        await self.hold.wait()
        if not self.running:
            raise Conflict("nothing_running", "There is no turn to stop.")
        self.running = False
        return Done(seq=8)

    async def _terminate(self, request: TerminateSession) -> Done:
        session = self._seen(request.session_id, request.user)
        self.sessions[request.session_id] = msgspec.structs.replace(session, status="terminated")
        return Done(seq=9)

    async def _rename(self, request: RenameSession) -> Done:
        session = self._seen(request.session_id, request.user)
        self.sessions[request.session_id] = msgspec.structs.replace(session, title=request.title)
        return Done(seq=10)

    async def _change_policy(self, request: ChangePolicy) -> Done:
        session = self._seen(request.session_id, request.user)
        self.sessions[request.session_id] = msgspec.structs.replace(session, policy=request.policy)
        return Done(seq=10)

    async def _add_participant(self, request: AddParticipant) -> Done:
        self._seen(request.session_id, request.user)
        self.participants[request.session_id][request.participant] = request.role
        return Done(seq=10)

    async def _remove_participant(self, request: RemoveParticipant) -> Done:
        self._seen(request.session_id, request.user)
        self.participants[request.session_id].pop(request.participant, None)
        return Done(seq=10)

    async def _create_link(self, request: CreateShareLink) -> Done:
        self._seen(request.session_id, request.user)
        if self.links.setdefault(request.link_id, request) != request:
            raise Unprocessable("idempotency_key_reused", "This key was used before for a different request.")
        return Done(seq=10)

    async def _join(self, request: JoinSession) -> SessionView:
        for link in self.links.values():
            if (link.session_id, link.token_sha256) == (request.session_id, request.token_sha256):
                self.participants[request.session_id].setdefault(request.user, link.role)
                return self._seen(request.session_id, request.user)
        raise NotFound("link_not_found", "There is no such link.")

    async def _request_command(self, request: RequestCommand) -> CommandView:
        self._seen(request.session_id, request.user)
        view = CommandView(
            request_id=request.request_id,
            command=request.command,
            status="requested",
            due_at="2026-01-01T00:01:00.000Z",
            seq=11,
        )
        return self.commands.setdefault(request.request_id, view)

    def complete(self, request_id: str, error: str | None = None) -> None:
        """A command has its result."""
        status = "completed" if error is None else "failed"
        self.commands[request_id] = msgspec.structs.replace(self.commands[request_id], status=status, error=error)

    async def _plan_fork(self, request: PlanFork) -> ForkPlan:
        self._seen(request.session_id, request.user)
        return ForkPlan(at=5, work=self.work)

    async def _fork(self, request: ForkSession) -> SessionView:
        return self._new(
            request.session_id, request.owner, title=request.title or "", source_session=request.source_session
        )

    async def _import(self, request: ImportEvents) -> Done:
        self._new(request.session_id, request.owner, title=request.title or "", source_session=request.source_session)
        return Done(seq=request.offset + len(request.events))

    async def _get(self, request: GetSession) -> SessionView:
        return self._seen(request.session_id, request.user)

    async def _command(self, request: GetCommand) -> CommandView:
        self._seen(request.session_id, request.user)
        if request.request_id not in self.commands:
            raise NotFound("command_not_found", "There is no such command.")
        return self.commands[request.request_id]

    async def _review(self, request: GetReview) -> ReviewView:
        self._seen(request.session_id, request.user)
        findings = [Finding(file="a.txt", line=1, severity="major", text="It is wrong.")]
        return ReviewView(turn_id=request.turn_id or "T", summary="One thing.", findings=findings, seq=5)

    async def _state(self, request: GetState) -> StateView:
        view = self._seen(request.session_id, request.user)
        return StateView(at=min(request.at, view.seq), session=view, messages=[], next=None, diff=DIFF)

    async def _diff(self, request: GetDiff) -> DiffView:
        self._seen(request.session_id, request.user)
        return DIFF

    async def _messages(self, request: ListMessages) -> MessagePage:
        self._seen(request.session_id, request.user)
        return MessagePage(items=[], next=None)

    async def _list_prompts(self, request: ListPrompts) -> PromptPage:
        self._seen(request.session_id, request.user)
        items = [
            PromptView(prompt_id=id, content=prompt.content, author=prompt.user, mode=prompt.mode, seq=2 + place)
            for place, (id, prompt) in enumerate(self.prompts.items())
        ]
        return PromptPage(items=items[: request.limit], next=None)

    async def _turns(self, request: ListTurns) -> TurnPage:
        self._seen(request.session_id, request.user)
        return TurnPage(items=[], next=None)

    async def _list_participants(self, request: ListParticipants) -> ParticipantList:
        self._seen(request.session_id, request.user)
        return ParticipantList(
            participants=[
                ParticipantView(user=user, role=role) for user, role in self.participants[request.session_id].items()
            ],
            links=[
                ShareLinkView(link_id=link.link_id, role=link.role, expires_at=None, created_by=link.user)
                for link in self.links.values()
            ],
        )

    async def _list(self, request: ListSessions) -> SessionPage:
        own = [view for view in self.sessions.values() if request.user in self.participants[view.id]]
        return SessionPage(items=own[: request.limit], next=None)

    async def _read_archive(self, request: ReadArchive) -> ArchivePage:
        found = [item for item in self.archive if request.after < item.seq < request.before]
        return ArchivePage(items=found[: request.limit], complete=len(found) <= request.limit)
