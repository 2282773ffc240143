"""What a fork starts from: the source's saved work, copied into the new session's folder, or, at a message so old that
its files are kept no longer, what was said until then."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from valet_protocol.codec import decode_envelope
from valet_protocol.errors import BadEvent, Conflict, Unavailable
from valet_protocol.events.agent import WorkRef
from valet_protocol.requests import ForkPlan, SessionView
from valet_service.object_store import ObjectNotFound, ObjectStore, ObjectStoreUnavailable

from valet_api import imported_context, limits
from valet_api.ledger import Ledger
from valet_api.transfer_files import unwrapped
from valet_api.transfers import Export

WITHOUT_FILES = (
    "The changed files as they were at that message are kept no longer. The fork has the conversation and begins with "
    "the repository; its agent knows what was said from the text."
)


class ForkView(SessionView, frozen=True, kw_only=True):
    """A session as it was just forked."""

    left_out: str = ""
    """What it has not taken over, and why; empty where it has everything."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork starts from."""

    work: WorkRef | None = None
    left_out: str = ""


class Forks:
    """Raises `Unavailable` while the object store is away."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def start(
        self, ledger: Ledger, plan: ForkPlan, *, source: str, message_id: str | None, session_id: str, user: str
    ) -> Start:
        """The work as a session's own. A second time changes nothing. Raises `Conflict` where the latest is gone, and
        what the ledger refuses with."""
        if plan.work is None:
            return Start()
        try:
            async with asyncio.timeout(limits.COPY_WAIT):
                work = await self._copied(plan.work, f"sessions/{session_id}/saved/fork")
                if work is not None:
                    return Start(work=work)
                if message_id is None:
                    raise Conflict(
                        "work_not_found",
                        "The files as they are now are not in the object store any more; fork at a message to have the "
                        "conversation and the repository.",
                    )
                said = await self._said(ledger, source, plan.at, session_id, user)
        except (ObjectStoreUnavailable, TimeoutError) as error:
            raise Unavailable(
                "objects_unavailable", "The saved files cannot be copied at the moment; try again."
            ) from error
        return Start(work=said, left_out=WITHOUT_FILES)

    async def _copied(self, work: WorkRef, target: str) -> WorkRef | None:
        """None where it is gone, unless that was after it was copied."""
        try:
            await self._objects.copy(work.object, target)
        except ObjectNotFound:
            try:
                copied = await self._objects.stat(target)
            except ObjectNotFound:
                return None
            if copied.bytes != work.bytes:
                return None
        return msgspec.structs.replace(work, object=target)

    async def _said(self, ledger: Ledger, source: str, until: int, session_id: str, user: str) -> WorkRef | None:
        """Stored as work; none where nothing was said."""
        heard = imported_context.Conversations()
        async for lines in Export(ledger, source, until, user).lines():
            for line in lines.splitlines():
                try:
                    heard.hear(unwrapped(decode_envelope(line)))
                except BadEvent:
                    continue  # what the ledger did not believe either
        texts = heard.texts()
        if not texts:
            return None
        name = f"sessions/{session_id}/saved/said"
        packed = imported_context.as_work(source, texts)
        put = await self._objects.put(name, _whole(packed), limit=limits.WORK_BYTES)
        return WorkRef(object=name, bytes=put.bytes, sha256=put.sha256)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content
