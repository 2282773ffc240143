"""Reads: views of sessions, messages, diffs and the archive, from the read models."""

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import msgspec
from msgspec.structs import replace
from valet_protocol.errors import NotFound
from valet_protocol.events.facts import Role
from valet_protocol.requests import (
    ArchivedEvent,
    ArchivePage,
    CommandView,
    DiffView,
    FindImage,
    GetCommand,
    GetDiff,
    GetReview,
    GetSession,
    ImagePlace,
    ListMessages,
    ListParticipants,
    ListPrompts,
    ListSessions,
    ListTurns,
    ListWriters,
    MessagePage,
    ParticipantList,
    ParticipantView,
    PromptPage,
    ReadArchive,
    ReviewView,
    SandboxView,
    SessionPage,
    SessionView,
    TurnPage,
    TurnView,
    Writers,
)

from valet_session_ledger import images, limits, views, views_sandbox
from valet_session_ledger.freshness import Freshness
from valet_session_ledger.message_pages import MessagePages
from valet_session_ledger.paging import fitting, page_size
from valet_session_ledger.queries import Queries
from valet_session_ledger.redact import for_export
from valet_session_ledger.store import patiently

Record = Mapping[str, Any]


class _Access(msgspec.Struct, frozen=True, kw_only=True):
    """A session for somebody who may read it."""

    owner: str
    role: Role
    active_turn: str | None


class Reads:
    """The ledger's reads, one method each; a method's result is the reply.

    All raise `NotFound` for what is not there or not for the user to see, and `Unavailable` while PostgreSQL is away.
    """

    def __init__(self, pool: asyncpg.Pool, queries: Queries, freshness: Freshness) -> None:
        self._pool = pool
        self._sql = queries
        self._freshness = freshness
        self._pages = MessagePages(self._fetch)

    # -- sessions ----------------------------------------------------------------------------------------------

    async def get_session(self, request: GetSession) -> SessionView:
        """One session."""
        await self._freshness.session(request.session_id)
        return await self.session_by_id(request.session_id, request.user)

    async def session_by_id(self, session_id: str, user: str) -> SessionView:
        """One session that a user takes part in."""
        rows = await self._fetch("session", session_id)
        items = await self._views(rows, user)
        if not items:
            raise _not_found()
        return replace(items[0], sandbox=await self._sandbox(rows[0]))

    async def _sandbox(self, session: Record) -> SandboxView:
        found = await self._fetch(
            "machine", session["session_id"], session["epoch"], limits.RUNNING_PROCESSES, limits.ENDED_PROCESSES
        )
        return views_sandbox.sandbox(session["status"], found)

    async def channels(self, session_id: str) -> list[Record]:
        """The channels from which people spoke to a session, and when last (ms since 1970). For who may read it."""
        return await self._fetch("channels", session_id, limits.PAGE)

    async def list_sessions(self, request: ListSessions) -> SessionPage:
        """The sessions a user owns or takes part in, or some session's children or tree, newest first."""
        await self._freshness.folded()
        limit = page_size(request.limit)
        of, whose = "sessions_of", request.user
        if request.parent is not None or request.tree is not None:
            of, whose = ("children_of", request.parent) if request.parent is not None else ("tree_of", request.tree)
            await self._access(whose or "", request.user)
        rows = await self._fetch(of, whose, limit + 1, request.before, request.status)
        items = await self._views(rows[:limit], request.user)
        return SessionPage(items=items, next=items[-1].id if items and len(rows) > limit else None)

    async def list_participants(self, request: ListParticipants) -> ParticipantList:
        """Who takes part. The links are for the owner."""
        access = await self._check(request.session_id, request.user)
        others = await self._fetch("participants", request.session_id)
        links = await self._fetch("links", request.session_id) if access.role == "owner" else []
        return ParticipantList(
            participants=[ParticipantView(user=access.owner, role="owner"), *map(views.participant, others)],
            links=[views.link(row) for row in links],
        )

    async def list_writers(self, request: ListWriters) -> Writers:
        """Who may write to a session. Never from a read model that is behind: raises `Unavailable` instead."""
        seq = await self._freshness.strictly(request.session_id)
        rows = await self._fetch("writers", request.session_id)
        if not rows:
            raise _not_found()
        since: dict[str, int] = {}
        if rows[0]["status"] != "terminated":
            since = {row["user_id"]: row["since"] for row in rows if row["user_id"] is not None}
            since[rows[0]["owner"]] = 0
        return Writers(seq=seq, since=since, inherits=rows[0]["inherits"])

    async def get_command(self, request: GetCommand) -> CommandView:
        """A command and its result."""
        await self._check(request.session_id, request.user)
        return await self.command_by_id(request.session_id, request.request_id)

    async def command_by_id(self, session_id: str, request_id: str) -> CommandView:
        """A command of a session that is known to be readable."""
        rows = await self._fetch("command", session_id, request_id)
        if not rows:
            raise NotFound("command_not_found", "No command with this id was requested in this session.")
        return views.command(rows[0])

    # -- the conversation --------------------------------------------------------------------------------------

    async def list_messages(self, request: ListMessages) -> MessagePage:
        """A session's messages in the order of the log."""
        await self._check(request.session_id, request.user)
        return await self._pages.page(request)

    async def last_words(self, session_id: str, turn_id: str | None = None) -> str:
        """What the agent said last, in a session or a turn of it; empty for nothing. For who may read the session."""
        rows = await self._fetch("last_words", session_id, turn_id)
        return rows[0]["text"] if rows else ""

    async def find_image(self, request: FindImage) -> ImagePlace:
        """With which session a picture lies that this one shows."""
        await self._check(request.session_id, request.user)
        return ImagePlace(session_id=await images.shown_by(self._fetch, request.session_id, request.image_id))

    async def list_turns(self, request: ListTurns) -> TurnPage:
        """A session's turns in the order of the log."""
        access = await self._check(request.session_id, request.user)
        limit = page_size(request.limit)
        rows = await self._fetch("turns_after", request.session_id, request.after, limit + 1)
        turns = await self._turns(rows[:limit], {request.session_id: access.active_turn})
        items = list(turns.values())
        return TurnPage(items=items, next=items[-1].seq if len(rows) > limit else None)

    async def list_prompts(self, request: ListPrompts) -> PromptPage:
        """Every prompt of a session in the order of the log."""
        access = await self._check(request.session_id, request.user)
        limit = page_size(request.limit)
        rows = await self._fetch("prompts_after", request.session_id, request.after, limit + 1)
        items = [views.prompt(row, active=access.active_turn) for row in rows[:limit]]
        count = fitting(items, limits.MESSAGE_PAGE_BYTES)
        return PromptPage(items=items[:count], next=items[count - 1].seq if len(rows) > count else None)

    async def get_diff(self, request: GetDiff) -> DiffView:
        """What the session, or one turn of it, changed; empty when nothing did."""
        await self._check(request.session_id, request.user)
        if request.turn_id is None:
            rows = await self._fetch("diff", request.session_id)
            return views.diff(rows[0]) if rows else views.no_diff()
        if not await self._fetch("turns_of", request.session_id, [request.turn_id]):
            raise NotFound("turn_not_found", "The session has no turn with this id.")
        rows = await self._fetch("turn_diff", request.session_id, request.turn_id)
        return views.turn_diff(rows[0]) if rows else views.no_diff()

    async def get_review(self, request: GetReview) -> ReviewView:
        """The findings of a review."""
        await self._check(request.session_id, request.user)
        rows = await self._fetch("review", request.session_id, request.turn_id)
        if not rows:
            raise NotFound("review_not_found", "There is no such review; a prompt of kind `review` makes one.")
        return views.review(rows[0])

    async def read_archive(self, request: ReadArchive) -> ArchivePage:
        """Archived events between two sequences, both exclusive; for an export, without what that must not carry."""
        limit = max(1, min(request.limit, limits.ARCHIVE_PAGE))
        user = request.export_for
        access = None if user is None else await self._check(request.session_id, user)
        rows = await self._fetch("archived", request.session_id, request.after, request.before, limit + 1)
        items: list[ArchivedEvent] = []
        for row in rows[:limit]:
            payload = row["payload"]
            if user is not None and access is not None:
                payload = for_export(row["type"], payload, user=user, is_owner=access.role == "owner")
            items.append(ArchivedEvent(seq=row["seq"], event=msgspec.Raw(payload)))
        count = fitting(items, limits.ARCHIVE_PAGE_BYTES)
        return ArchivePage(items=items[:count], complete=len(rows) <= count)

    # -- shared ------------------------------------------------------------------------------------------------

    async def _check(self, session_id: str, user: str) -> _Access:
        await self._freshness.session(session_id)
        return await self._access(session_id, user)

    async def _access(self, session_id: str, user: str) -> _Access:
        rows = await self._fetch("session_owner", session_id)
        role = None if not rows else (await self._roles(rows, [session_id], user)).get(session_id)
        if role is None:
            raise _not_found()
        return _Access(owner=rows[0]["owner"], role=role, active_turn=rows[0]["active_turn"])

    async def _roles(self, rows: Sequence[Record], session_ids: list[str], user: str) -> dict[str, Role]:
        """As what a user takes part in sessions; those they do not are not in the answer."""
        roles: dict[str, Role] = {
            session_id: "owner" for session_id, row in zip(session_ids, rows, strict=True) if row["owner"] == user
        }
        others = [session_id for session_id in session_ids if session_id not in roles]
        if others:
            found = await self._fetch("participant_roles", others, user)
            roles.update((row["session_id"], row["role"]) for row in found)
        return roles

    async def _views(self, rows: Sequence[Record], user: str) -> list[SessionView]:
        roles = await self._roles(rows, [row["session_id"] for row in rows], user) if rows else {}
        rows = [row for row in rows if row["session_id"] in roles]
        ids = [row["session_id"] for row in rows]
        if not ids:
            return []
        active = {row["session_id"]: row["active_turn"] for row in rows}
        turn_ids = [turn for row in rows for turn in (row["active_turn"], row["last_turn"]) if turn is not None]
        turns = await self._turns(await self._fetch("turns_by_id", ids, turn_ids) if turn_ids else [], active)
        prompts = await self._fetch("queued_prompts", ids)
        questions = await self._fetch("open_questions", ids)
        commands = await self._fetch("pending_commands", ids)
        todos = {row["session_id"]: row["items"] for row in await self._fetch("todos", ids)}
        return [
            views.session(
                row,
                active_turn=turns.get((row["session_id"], row["active_turn"])),
                last_turn=turns.get((row["session_id"], row["last_turn"])),
                queued=[views.prompt(item, active=None) for item in prompts if item["session_id"] == row["session_id"]],
                questions=[views.question(item) for item in questions if item["session_id"] == row["session_id"]],
                todos=views.todos(todos.get(row["session_id"])),
                commands=[views.command(item) for item in commands if item["session_id"] == row["session_id"]],
                role=roles[row["session_id"]],
            )
            for row in rows
        ]

    async def _turns(
        self, rows: Sequence[Record], active: Mapping[str, str | None]
    ) -> dict[tuple[str, str | None], TurnView]:
        """Turns by session and id, in the order of their rows. `active` are the sessions' present turns."""
        if not rows:
            return {}
        ids = sorted({row["session_id"] for row in rows})
        turn_ids = [row["turn_id"] for row in rows]
        prompts: dict[tuple[str, str], list[str]] = {}
        for row in await self._fetch("turn_prompts", ids, turn_ids):
            prompts.setdefault((row["session_id"], row["turn_id"]), []).append(row["prompt_id"])
        switched: dict[tuple[str, str], list[str]] = {}
        for row in await self._fetch("turn_switches", ids, turn_ids):
            switched.setdefault((row["session_id"], row["turn_id"]), []).append(row["to_model"])
        return {
            key: views.turn(
                row, active=active.get(key[0]), prompt_ids=prompts.get(key, []), switched=switched.get(key, [])
            )
            for row in rows
            for key in [(row["session_id"], row["turn_id"])]
        }

    async def _fetch(self, name: str, *parameters: object) -> list[Record]:
        return await patiently(lambda: self._pool.fetch(self._sql[name], *parameters))


def _not_found() -> NotFound:
    return NotFound("session_not_found", "There is no such session, or it is not yours.")
