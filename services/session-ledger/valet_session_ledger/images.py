"""Where a picture lies that a session shows: with the session whose agent showed it."""

from valet_protocol.codec import decode_data, decode_envelope
from valet_protocol.errors import NotFound
from valet_protocol.events.facts import SessionImported

from valet_session_ledger import limits
from valet_session_ledger.history_archive import NEWEST
from valet_session_ledger.message_pages import Fetch


async def shown_by(fetch: Fetch, session_id: str, image_id: str) -> str:
    """The session whose agent showed a picture. Raises `NotFound` for one this session has not.

    What the event calls the object proves nothing: a runner could name another session's. A fork has the pictures that
    its source, or what that was forked from, had shown by then; an import brought its own.
    """
    if "\0" in image_id or not await fetch("image_shown", session_id, image_id, NEWEST):
        raise NotFound("image_not_found", f"This session has no image {image_id[:40]!r}.")
    place = session_id
    for _ in range(limits.FORKS_OF_FORKS):
        begun = await _begun(fetch, place)
        if begun is None or not begun.forked:
            break
        if not await fetch("image_shown", begun.source_session, image_id, begun.source_seq):
            break
        place = begun.source_session
    return place


async def _begun(fetch: Fetch, session_id: str) -> SessionImported | None:
    rows = await fetch("session_imported", session_id)
    data = decode_data(decode_envelope(rows[0]["payload"])) if rows else None
    return data if isinstance(data, SessionImported) else None
