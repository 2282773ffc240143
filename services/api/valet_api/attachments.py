"""Files that come with prompts: the content in the object store, what is known of it in the database."""

import mimetypes
import re
from collections.abc import AsyncIterable, AsyncIterator
from urllib.parse import quote

from valet_protocol.errors import NotFound, TooLarge, Unavailable, Unprocessable
from valet_protocol.events.facts import Attachment
from valet_service import database
from valet_service.object_store import ObjectNotFound, ObjectStore, ObjectStoreUnavailable, ObjectTooLarge

from valet_api import limits, streams
from valet_api.store import Store

_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, and those that make a name look like another one."""

_MIME = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,80}")
_SAYS_NOTHING = ("", "application/octet-stream", "application/x-www-form-urlencoded")
"""What clients send that were not told a type."""

ANYTHING = "application/octet-stream"


def clean_name(name: str) -> str:
    """A file name out of whatever was given: no folders, nothing hidden, not too long."""
    last = _HIDDEN.sub("", name).replace("\\", "/").rstrip("/").rpartition("/")[2].strip(" .")
    if len(last) > limits.NAME_CHARACTERS:
        stem, dot, end = last.rpartition(".")
        end = dot + end if stem and len(end) <= 16 else ""
        last = last[: limits.NAME_CHARACTERS - len(end)] + end
    return last or "file"


def clean_mime(content_type: str, name: str) -> str:
    """The media type that was announced; if that says nothing, what the name suggests."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _SAYS_NOTHING:
        kind = mimetypes.guess_type(name)[0] or ANYTHING
    return kind if _MIME.fullmatch(kind) else ANYTHING


def disposition(name: str) -> str:
    """`Content-Disposition` for a download under a name in any script (RFC 6266)."""
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def object_name(session_id: str, attachment_id: str) -> str:
    """Where an attachment's content lies."""
    return f"sessions/{session_id}/attachments/{attachment_id}"


class Attachments:
    """Raises `Unavailable` while the object store or the database is away."""

    def __init__(self, objects: ObjectStore, store: Store) -> None:
        self._objects = objects
        self._store = store

    async def add(
        self, session_id: str, attachment_id: str, name: str, mime: str, chunks: AsyncIterable[bytes], author: str
    ) -> Attachment:
        """Store a file. Raises `TooLarge` and, for an empty one or an id that has another content, `Unprocessable`."""
        place = object_name(session_id, attachment_id)
        before = (await self._known(session_id, [attachment_id])).get(attachment_id)
        try:
            # what an id stands for never changes: a repetition is read, and compared, but not stored
            target = place if before is None else f"{place}.again"
            stored = await self._objects.put(target, chunks, limit=limits.ATTACHMENT_BYTES)
            if before is not None or stored.bytes == 0:
                await self._objects.delete(target)
        except ObjectTooLarge as error:
            raise too_large() from error
        except ObjectStoreUnavailable as error:
            raise _unavailable() from error
        if stored.bytes == 0:
            raise Unprocessable("empty_attachment", "The file is empty; send its content as the request's body.")
        if before is not None:
            if before.sha256 != stored.sha256:
                raise Unprocessable(
                    "idempotency_key_reused", "This Idempotency-Key was used for another file; use a new one for each."
                )
            return before
        attachment = Attachment(
            attachment_id=attachment_id, name=name, mime=mime, bytes=stored.bytes, sha256=stored.sha256
        )
        try:
            await self._store.add_attachment(session_id, attachment, author)
        except database.UNAVAILABLE as error:
            raise _unavailable() from error
        return attachment

    async def named(self, session_id: str, ids: list[str]) -> list[Attachment]:
        """Attachments of a session in the order of their ids. Raises `Unprocessable` for an unknown one."""
        if not ids:
            return []
        known = await self._known(session_id, ids)
        for id in ids:
            if id not in known:
                raise Unprocessable(
                    "unknown_attachment",
                    f"This session has no attachment {id[:40]!r}; upload it with POST …/attachments first.",
                )
        return [known[id] for id in dict.fromkeys(ids)]

    async def open(self, session_id: str, attachment_id: str) -> tuple[Attachment, AsyncIterator[bytes]]:
        """An attachment and its content. Raises `NotFound`."""
        known = await self._known(session_id, [attachment_id])
        if attachment_id not in known:
            raise _not_found(attachment_id)
        try:
            content = await streams.begun(self._objects.get(object_name(session_id, attachment_id)))
        except ObjectNotFound as error:
            raise _not_found(attachment_id) from error
        except ObjectStoreUnavailable as error:
            raise _unavailable() from error
        return known[attachment_id], content

    async def copy(self, source: str, target: str, author: str) -> None:
        """Give a session all attachments of another one. A second time changes nothing."""
        for attachment in (await self._known(source, None)).values():
            names = [object_name(session, attachment.attachment_id) for session in (source, target)]
            try:
                await self._objects.copy(*names)
                await self._store.add_attachment(target, attachment, author)
            except ObjectNotFound:
                continue
            except (ObjectStoreUnavailable, *database.UNAVAILABLE) as error:
                raise _unavailable() from error

    async def _known(self, session_id: str, ids: list[str] | None) -> dict[str, Attachment]:
        if ids is not None and any("\0" in id for id in ids):
            return {}
        try:
            return await self._store.attachments(session_id, ids)
        except database.UNAVAILABLE as error:
            raise _unavailable() from error


def too_large() -> TooLarge:
    """An attachment over the limit."""
    return TooLarge(
        "attachment_too_large",
        f"An attachment may have {limits.ATTACHMENT_BYTES:,} bytes; put what is larger into the repository.",
    )


def _not_found(attachment_id: str) -> NotFound:
    return NotFound("attachment_not_found", f"This session has no attachment {attachment_id[:40]!r}.")


def _unavailable() -> Unavailable:
    return Unavailable("attachments_unavailable", "Attachments cannot be reached at the moment; try again.")
