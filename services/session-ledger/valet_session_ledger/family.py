"""What agents ask about other sessions, and about who speaks to their own: the tools of
`valet_protocol.tools.sessions`, and `list_channels`.

An agent reaches the sessions of its own tree, so that one who may prompt a session cannot read through its agent what
else its owner does. An agent that directs others reaches every session of its owner.
"""

from valet_protocol.errors import Conflict, Forbidden, NotFound, Refused, Unprocessable
from valet_protocol.events import facts
from valet_protocol.ids import derived_id
from valet_protocol.requests import (
    Accepted,
    Done,
    GetSession,
    ListMessages,
    ListSessions,
    MessagePage,
    MessageView,
    RequestChild,
    RequestCompletion,
    SessionView,
    SubmitPrompt,
    TerminateSession,
)
from valet_protocol.tools import sessions as tools
from valet_protocol.tools.channels import ChannelList, ListChannels

from valet_session_ledger import family_views, limits
from valet_session_ledger.commands import Commands
from valet_session_ledger.decide_family import child_of
from valet_session_ledger.decide_prompts import check_open
from valet_session_ledger.decide_sharing import not_found
from valet_session_ledger.errands import Errands
from valet_session_ledger.models import Models
from valet_session_ledger.peers import Peers
from valet_session_ledger.reads import Reads
from valet_session_ledger.state import SessionState

_NEWEST = 1 << 62
"""Above every sequence."""


class Family:
    """The tools about other sessions, one method each; a method's result is the reply. All raise `Refused`."""

    def __init__(self, *, commands: Commands, reads: Reads, peers: Peers, errands: Errands, models: Models) -> None:
        self._commands = commands
        self._reads = reads
        self._peers = peers
        self._errands = errands
        self._models = models

    # -- children ----------------------------------------------------------------------------------------------

    async def spawn_child(self, tool: tools.SpawnChild) -> tools.ChildSpawned:
        """Start a child. When its request is in the log it is certain that there will be one."""
        child_id = derived_id(tool.session_id, "child", tool.request_id)
        if tool.model is not None and child_of(await self._commands.state(tool.session_id), child_id) is None:
            self._models.check(tool.model)
        title = tool.title or family_views.title_of(tool.prompt)
        request = RequestChild(
            session_id=tool.session_id,
            request_id=tool.request_id,
            prompt=f"{family_views.from_session(tool.session_id, 'parent')}\n\n{tool.prompt}",
            title=title,
            repo=tool.repo,
            branch=tool.branch,
            model=tool.model,
            notify=tool.notify,
        )
        await self._commands.carry_out(request)
        await self._errands.done(tool.session_id)
        return tools.ChildSpawned(child_session=child_id, title=title, prompt_id=derived_id(child_id, "prompt"))

    async def terminate_child(self, tool: tools.TerminateChild) -> tools.SessionEnded:
        """End a session below this one, and all below that."""
        state = await self._acting(tool.session_id)
        child = await self._reached(state, tool.child_session)
        if state.session_id not in child.ancestors:
            raise Forbidden("not_a_child", "The session is not one that this one has spawned, nor below such a one.")
        end = TerminateSession(
            session_id=child.id, user=state.owner, session=state.session_id, reason=tool.reason or ""
        )
        await self._peers.ask(child.id, end, Done)
        return tools.SessionEnded(session=child.id, already=child.status == "terminated")

    async def list_children(self, tool: tools.ListChildren) -> tools.SessionList:
        """The sessions this one has spawned."""
        state = await self._commands.state(tool.session_id)
        return await self._listed(
            ListSessions(
                user=state.owner, parent=state.session_id, status=tool.status, limit=tool.limit, before=tool.before
            )
        )

    async def list_sessions(self, tool: tools.ListSessions) -> tools.SessionList:
        """The sessions this one reaches."""
        state = await self._commands.state(tool.session_id)
        tree = None if state.orchestrator else family_views.root_of(state.session_id, state.ancestors)
        return await self._listed(
            ListSessions(user=state.owner, tree=tree, status=tool.status, limit=tool.limit, before=tool.before)
        )

    async def _listed(self, request: ListSessions) -> tools.SessionList:
        page = await self._reads.list_sessions(request)
        items = [family_views.brief(item) for item in page.items if item.owner == request.user]
        return tools.SessionList(items=items, next=page.next)

    # -- the session itself ------------------------------------------------------------------------------------

    async def complete_session(self, tool: tools.CompleteSession) -> tools.SessionEnded:
        """Its work is over: it ends after the turn, unless somebody writes before that."""
        request = RequestCompletion(
            session_id=tool.session_id, request_id=tool.request_id, outcome=tool.outcome, summary=tool.summary
        )
        already = (await self._commands.state(tool.session_id)).completed is not None
        await self._commands.carry_out(request)
        return tools.SessionEnded(session=tool.session_id, already=already)

    # -- messages ----------------------------------------------------------------------------------------------

    async def notify_parent(self, tool: tools.NotifyParent) -> tools.MessageSent:
        """A prompt for the parent's agent."""
        state = await self._acting(tool.session_id)
        if state.parent is None:
            raise Conflict("no_parent", "A person started this session: there is no session above it to tell.")
        return await self._send(state, tool, state.parent, tool.content, mode=tool.mode)

    async def send_message(self, tool: tools.SendMessage) -> tools.MessageSent:
        """A prompt for another session's agent."""
        state = await self._acting(tool.session_id)
        if tool.target_session == tool.session_id:
            raise Unprocessable("to_itself", "That is this session itself; name another one.")
        target = await self._reached(state, tool.target_session)
        return await self._send(state, tool, target.id, tool.content, mode=tool.mode)

    async def _send(
        self,
        state: SessionState,
        tool: tools.NotifyParent | tools.SendMessage | tools.ForwardMessages,
        target: str,
        content: str,
        *,
        mode: facts.PromptMode,
    ) -> tools.MessageSent:
        relation = family_views.relation(state, target)
        origin = None if state.turn is None else state.turn.origin
        on_behalf = origin if origin is not None and origin.author == state.owner else None
        prompt = SubmitPrompt(
            session_id=target,
            user=state.owner,
            prompt_id=derived_id(target, "message", state.session_id, tool.request_id),
            content=f"{family_views.from_session(state.session_id, relation)}\n\n{content}",
            mode=mode,
            author_name="" if on_behalf is None else on_behalf.author_name,
            author_email="" if on_behalf is None else on_behalf.author_email,
            sender=facts.Sender(
                session_id=state.session_id, title=state.title, turn_id=tool.turn_id, hops=state.hops + 1
            ),
        )
        accepted = await self._peers.ask(target, prompt, Accepted)
        return tools.MessageSent(session=target, prompt_id=accepted.prompt_id, status=accepted.status)

    async def read_messages(self, tool: tools.ReadMessages) -> tools.SessionMessages:
        """A page of another session's conversation."""
        state = await self._commands.state(tool.session_id)
        target = await self._reached(state, tool.target_session)
        page = await self._messages(state, target.id, limit=tool.limit, after=tool.after)
        items = [family_views.message(item) for item in page.items]
        return tools.SessionMessages(session=target.id, items=items, next=page.next)

    async def forward_messages(self, tool: tools.ForwardMessages) -> tools.MessagesForwarded:
        """Messages of one session as one prompt of another."""
        state = await self._acting(tool.session_id)
        source = await self._reached(state, tool.from_session)
        target = await self._reached(state, tool.to_session)
        if target.id == state.session_id:
            raise Unprocessable("to_itself", "That would be a prompt for yourself; use read_messages.")
        if target.id == source.id:
            raise Unprocessable("to_itself", "The session has said that itself; name another one to forward it to.")
        chosen = await self._chosen(state, source.id, tool)
        if not chosen:
            return tools.MessagesForwarded(session=target.id, forwarded=0, prompt_id=None)
        content = family_views.quoted(source.id, chosen, tool.note or "")
        prompt_id = derived_id(target.id, "message", state.session_id, tool.request_id)
        try:
            await self._send(state, tool, target.id, content, mode="queue")
        except Refused as refusal:
            # its id is made of this request: it was forwarded before, when other messages were the newest
            if refusal.code != "idempotency_key_reused":
                raise
        return tools.MessagesForwarded(session=target.id, forwarded=len(chosen), prompt_id=prompt_id)

    async def _chosen(self, state: SessionState, source: str, tool: tools.ForwardMessages) -> list[MessageView]:
        if not tool.seqs:
            page = await self._messages(state, source, limit=limits.PAGE)
            said = [item for item in page.items if item.role == "assistant" and item.text]
            return said[-tool.limit :]
        if len(tool.seqs) > limits.FORWARDED_MESSAGES:
            raise Unprocessable("too_many_messages", f"Forward at most {limits.FORWARDED_MESSAGES} messages at once.")
        chosen: list[MessageView] = []
        for seq in sorted(set(tool.seqs)):
            page = await self._messages(state, source, limit=1, after=max(0, seq - 1))
            found = [item for item in page.items if item.seq == seq]
            if not found:
                raise NotFound("message_not_found", f"The session has no message with the seq {seq}.")
            chosen += found
        return chosen

    async def _messages(
        self, state: SessionState, session_id: str, *, limit: int, after: int | None = None
    ) -> MessagePage:
        request = ListMessages(
            session_id=session_id,
            user=state.owner,
            limit=limit,
            after=after or 0,
            before=_NEWEST if after is None else None,
        )
        return await self._peers.ask(session_id, request, MessagePage)

    async def list_channels(self, tool: ListChannels) -> ChannelList:
        """Where people spoke to this session from."""
        state = await self._commands.state(tool.session_id)
        rows = await self._reads.channels(state.session_id)
        return ChannelList(items=[family_views.channel(row["channel"], row["last_used_ms"]) for row in rows])

    async def session_status(self, tool: tools.GetSessionStatus) -> tools.SessionStatusReport:
        """How another session is doing."""
        state = await self._commands.state(tool.session_id)
        target = await self._reached(state, tool.target_session)
        return family_views.report(target, await self._reads.last_words(target.id))

    # -- who reaches whom --------------------------------------------------------------------------------------

    async def _acting(self, session_id: str) -> SessionState:
        """The state of a session whose agent may still do something."""
        state = await self._commands.state(session_id)
        check_open(state, "requests")
        return state

    async def _reached(self, state: SessionState, session_id: str) -> SessionView:
        """Another session, or this one, as far as the agent reaches it. Raises `NotFound`."""
        view = await self._peers.ask(session_id, GetSession(session_id=session_id, user=state.owner), SessionView)
        if not family_views.reaches(state, view):
            raise not_found()
        return view
