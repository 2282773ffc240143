"""Pages of a session's conversation: messages with everything that belongs to them, in the order of the log."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from valet_protocol.requests import ListMessages, MessagePage, MessageView, PartView

from valet_session_ledger import limits, views, views_ended, views_shown
from valet_session_ledger.paging import fitting, page_size, whole
from valet_session_ledger.views_ended import Ending
from valet_session_ledger.views_reverted import Reverted, reverted
from valet_session_ledger.views_shown import Span

Record = Mapping[str, Any]


class Fetch(Protocol):
    """A statement of `queries.sql`, by its name."""

    def __call__(self, name: str, *parameters: object) -> Awaitable[list[Record]]: ...


class MessagePages:
    """Reads the conversation of sessions for those who may see them."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def page(self, request: ListMessages) -> MessagePage:
        """One page. What makes it too long for one reply is left for the next one."""
        session_id = request.session_id
        limit = page_size(request.limit)
        rows = await self._rows(request, limit)
        page = rows[: whole([row["first_seq"] for row in rows], limit)]
        back = await self._reverted(session_id)
        items = await self._views(session_id, page, back)
        count = whole([item.seq for item in items], fitting(items, limits.MESSAGE_PAGE_BYTES))
        cursor = items[count - 1].seq if len(rows) > count else None
        items = items[:count]
        if request.nested:
            items = await self._nested(session_id, items, back)
        if request.before is not None:
            return MessagePage(items=items[::-1], next=None, previous=cursor)
        return MessagePage(items=items, next=cursor)

    async def _rows(self, request: ListMessages, limit: int) -> Sequence[Record]:
        """More than `limit` where there are more, from the cursor on: against the log's order with `before`."""
        cursor, order = (request.after, "after") if request.before is None else (request.before, "before")
        if request.conversation is not None:
            name = f"messages_of_conversation_{order}"
            return await self._fetch(name, request.session_id, cursor, limit + 1, request.conversation)
        name = f"outer_messages_{order}" if request.nested else f"messages_{order}"
        rows = await self._fetch(name, request.session_id, cursor, limit + 1)
        if len(rows) > limit and rows[limit]["first_seq"] == rows[limit - 1]["first_seq"]:
            # messages that one event began stay together: their sequence is the cursor
            rows = await self._fetch(name, request.session_id, cursor, limit + limits.QUEUED_PROMPTS + 1)
        return rows

    async def _views(self, session_id: str, rows: Sequence[Record], back: Reverted) -> list[MessageView]:
        ids = [row["message_id"] for row in rows]
        turns = sorted({row["turn_id"] for row in rows if row["turn_id"] is not None})
        around = {row["turn_id"]: row for row in await self._fetch("turns_of", session_id, turns)}
        over = {turn_id: views_ended.ending(row) for turn_id, row in around.items()}
        rows = await self._read_again(session_id, rows, over)
        parts: dict[str, list[PartView]] = {message_id: [] for message_id in ids}
        for row in await self._fetch("parts_of", session_id, ids):
            parts[row["message_id"]].append(views.part(row))
        for message_id, part in await self._shown(session_id, ids, turns):
            parts[message_id] = views_shown.placed(parts[message_id], part)
        people = [row["message_id"] for row in rows if row["role"] == "user"]
        prompts = {row["prompt_id"]: row for row in await self._fetch("prompts_by_id", session_id, people)}
        channels = {turn_id: row["channel"] for turn_id, row in around.items()}
        return [
            views_ended.message(
                views.message(
                    row,
                    parts[row["message_id"]],
                    prompt=prompts.get(row["message_id"]),
                    channel=channels.get(row["turn_id"]),
                    reverted=back.has(channels.get(row["turn_id"]), row["first_seq"]),
                ),
                over.get(row["turn_id"]),
            )
            for row in rows
        ]

    async def _read_again(
        self, session_id: str, rows: Sequence[Record], over: Mapping[str, Ending | None]
    ) -> Sequence[Record]:
        """Messages as they are no earlier than their turns were looked at: one may have been completed, and its turn
        have ended, between the two."""
        unfinished = [row["message_id"] for row in rows if not row["complete"] and over.get(row["turn_id"]) is not None]
        if not unfinished:
            return rows
        again = {row["message_id"]: row for row in await self._fetch("messages_by_id", session_id, unfinished)}
        return [again.get(row["message_id"], row) for row in rows]

    async def _shown(self, session_id: str, ids: list[str], turns: list[str]) -> list[tuple[str, PartView]]:
        """Pictures and channel replies with the message, one of these, that they stand in; in the order of the log."""
        found = await self._fetch("turn_parts_of", session_id, ids, turns)
        here = frozenset(ids)
        rows = [row for row in found if row["stands_in"] in here]
        sent = sorted({image for row in rows for image in views_shown.images_sent(row)})
        images = await self._fetch("images_by_id", session_id, sent) if sent else []
        known = {row["part_id"]: views_shown.image(session_id, row) for row in images}
        return [(row["stands_in"], views_shown.part(session_id, row, known)) for row in rows]

    async def _reverted(self, session_id: str) -> Reverted:
        reverts = await self._fetch("reverts", session_id)
        if not reverts:
            return Reverted()
        return reverted(reverts, await self._fetch("turns_begun", session_id, reverts[0]["first_seq"]))

    # -- sub-agents ----------------------------------------------------------------------------------------------

    async def _nested(self, session_id: str, items: list[MessageView], back: Reverted) -> list[MessageView]:
        """Messages with those of sub-agents under the tool calls that started them, level by level."""
        room = limits.NESTED_PAGE_BYTES
        level = items
        said: dict[views_shown.Call, tuple[list[MessageView], int | None]] = {}
        for _ in range(limits.NESTED_DEPTH):
            spans = await self._spans(session_id, level)
            if not spans:
                break
            level = []
            for span, (messages, complete) in zip(spans, await self._said(session_id, spans, back), strict=True):
                kept = messages[: _within(messages, room)]
                room -= sum(len(msgspec.json.encode(message)) for message in kept)
                complete = complete and len(kept) == len(messages)
                said[span.call] = (kept, None if complete else (kept[-1].seq if kept else span.above))
                level += kept
        return views_shown.nested(items, said)

    async def _spans(self, session_id: str, items: list[MessageView]) -> list[Span]:
        conversations = sorted({part.conversation for item in items for part in item.parts if part.conversation})
        if not conversations:
            return []
        calls = await self._fetch("calls_of", session_id, conversations)
        here = frozenset((item.id, part.part_id) for item in items for part in item.parts if part.conversation)
        return [span for span in views_shown.spans(calls) if span.call in here]

    async def _said(self, session_id: str, spans: list[Span], back: Reverted) -> list[tuple[list[MessageView], bool]]:
        """The first messages of each span, and whether these are all."""
        rows = await self._fetch(
            "nested_messages",
            session_id,
            [span.conversation for span in spans],
            [span.above for span in spans],
            [span.until for span in spans],
            limits.NESTED_MESSAGES + 1,
            limits.NESTED_AT_ONCE + 1,
        )
        cut = rows[limits.NESTED_AT_ONCE]["call"] if len(rows) > limits.NESTED_AT_ONCE else len(spans) + 1
        rows = rows[: limits.NESTED_AT_ONCE]
        found: list[list[MessageView]] = [[] for _ in spans]
        for row, message in zip(rows, await self._views(session_id, rows, back), strict=True):
            found[row["call"] - 1].append(message)
        return [
            (messages[: limits.NESTED_MESSAGES], place < cut and len(messages) <= limits.NESTED_MESSAGES)
            for place, messages in enumerate(found, start=1)
        ]


def _within(messages: Sequence[MessageView], room: int) -> int:
    """How many of the first messages make up at most so many bytes."""
    for count, message in enumerate(messages):
        room -= len(msgspec.json.encode(message))
        if room < 0:
            return count
    return len(messages)
