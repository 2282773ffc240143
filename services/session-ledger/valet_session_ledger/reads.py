"""Reads: views of sessions, messages, diffs and the archive, from the read models."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec
from valet_protocol.errors import NotFound
from valet_protocol.requests import (
    ArchivedEvent,
    ArchivePage,
    DiffView,
    GetDiff,
    GetSession,
    ListMessages,
    ListSessions,
    MessagePage,
    PartView,
    ReadArchive,
    Reply,
    SessionPage,
    SessionView,
)

from valet_session_ledger import limits, views
from valet_session_ledger.freshness import Freshness
from valet_session_ledger.queries import Queries
from valet_session_ledger.store import patiently

Record = Mapping[str, Any]
R = TypeVar("R", bound=Reply)


class Reads:
    """The ledger's reads, one method each; a method's result is the reply.

    All raise `NotFound` for what is not there or not the user's, and `Unavailable` while PostgreSQL is away.
    """

    def __init__(self, pool: asyncpg.Pool, queries: Queries, freshness: Freshness) -> None:
        self._pool = pool
        self._sql = queries
        self._freshness = freshness

    async def get_session(self, request: GetSession) -> SessionView:
        """One session."""
        await self._freshness.session(request.session_id)
        return await self.session_by_id(request.session_id, request.user)

    async def session_by_id(self, session_id: str, user: str) -> SessionView:
        """One session of a user."""
        rows = await self._fetch("session", session_id)
        if not rows or rows[0]["owner"] != user:
            raise _not_found()
        return (await self._views(rows))[0]

    async def list_sessions(self, request: ListSessions) -> SessionPage:
        """A user's sessions, newest first."""
        await self._freshness.folded()
        limit = _page(request.limit)
        rows = await self._fetch("sessions_of", request.user, limit + 1, request.before)
        items = await self._views(rows[:limit])
        return SessionPage(items=items, next=items[-1].id if len(rows) > limit else None)

    async def list_messages(self, request: ListMessages) -> MessagePage:
        """A session's messages in the order of the log."""
        await self._check(request.session_id, request.user)
        limit = _page(request.limit)
        rows = await self._fetch("messages_after", request.session_id, request.after, limit + 1)
        page = rows[:limit]
        ids = [row["message_id"] for row in page]
        parts: dict[str, list[PartView]] = {message_id: [] for message_id in ids}
        for row in await self._fetch("parts_of", request.session_id, ids):
            parts[row["message_id"]].append(views.part(row))
        items = [views.message(row, parts[row["message_id"]]) for row in page]
        fitting = _fitting(items, limits.MESSAGE_PAGE_BYTES)
        more = len(rows) > limit or len(fitting) < len(items)
        return MessagePage(items=fitting, next=fitting[-1].seq if more else None)

    async def get_diff(self, request: GetDiff) -> DiffView:
        """What the session changed; empty when nothing did."""
        await self._check(request.session_id, request.user)
        rows = await self._fetch("diff", request.session_id)
        return views.diff(rows[0]) if rows else views.no_diff()

    async def read_archive(self, request: ReadArchive) -> ArchivePage:
        """Archived events between two sequences, both exclusive."""
        limit = max(1, min(request.limit, limits.ARCHIVE_PAGE))
        rows = await self._fetch("archived", request.session_id, request.after, request.before, limit + 1)
        items = [ArchivedEvent(seq=row["seq"], event=msgspec.Raw(row["payload"])) for row in rows[:limit]]
        fitting = _fitting(items, limits.ARCHIVE_PAGE_BYTES)
        return ArchivePage(items=fitting, complete=len(rows) <= limit and len(fitting) == len(items))

    async def _check(self, session_id: str, user: str) -> None:
        await self._freshness.session(session_id)
        rows = await self._fetch("session_owner", session_id)
        if not rows or rows[0]["owner"] != user:
            raise _not_found()

    async def _views(self, rows: Sequence[Record]) -> list[SessionView]:
        ids = [row["session_id"] for row in rows]
        if not ids:
            return []
        turn_ids = [turn for row in rows for turn in (row["active_turn"], row["last_turn"]) if turn is not None]
        turns = {
            (row["session_id"], row["turn_id"]): views.turn(row)
            for row in (await self._fetch("turns_by_id", ids, turn_ids) if turn_ids else [])
        }
        prompts = await self._fetch("queued_prompts", ids)
        questions = await self._fetch("open_questions", ids)
        todos = {row["session_id"]: row["items"] for row in await self._fetch("todos", ids)}
        return [
            views.session(
                row,
                active_turn=turns.get((row["session_id"], row["active_turn"])),
                last_turn=turns.get((row["session_id"], row["last_turn"])),
                queued=[views.prompt(item) for item in prompts if item["session_id"] == row["session_id"]],
                questions=[views.question(item) for item in questions if item["session_id"] == row["session_id"]],
                todos=views.todos(todos.get(row["session_id"])),
            )
            for row in rows
        ]

    async def _fetch(self, name: str, *parameters: object) -> list[Record]:
        return await patiently(lambda: self._pool.fetch(self._sql[name], *parameters))


def _page(limit: int) -> int:
    return max(1, min(limit, limits.PAGE))


def _fitting(items: list[R], most: int) -> list[R]:
    """The first items that make up at most so many bytes, but one at least."""
    size = 0
    for count, item in enumerate(items):
        size += len(msgspec.json.encode(item))
        if size > most and count:
            return items[:count]
    return items


def _not_found() -> NotFound:
    return NotFound("session_not_found", "There is no such session, or it is not yours.")
