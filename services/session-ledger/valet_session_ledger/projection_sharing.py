"""Participants and share links, as rows. Pure."""

from valet_protocol.events import facts
from valet_protocol.events.envelope import Event

from valet_session_ledger import values
from valet_session_ledger.projection_turns import Projections
from valet_session_ledger.rows import Batch, LinkRow, ParticipantRow
from valet_session_ledger.state import Participant, SessionState


def _participant_added(batch: Batch, before: SessionState, event: Event, data: facts.ParticipantAdded) -> None:
    added = Participant(user=data.user, role=data.role, link_id=data.link_id)
    _participant(batch, event, added, present=True)


def _participant_removed(batch: Batch, before: SessionState, event: Event, data: facts.ParticipantRemoved) -> None:
    for participant in before.participants:
        if participant.user == data.user:
            _participant(batch, event, participant, present=False)


def _participant(batch: Batch, event: Event, participant: Participant, *, present: bool) -> None:
    row = ParticipantRow(
        session_id=event.session_id,
        user_id=values.identifier(participant.user),
        role=participant.role,
        link_id=participant.link_id,
        present=present,
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.participants, (event.session_id, row.user_id), row)


def _link_created(batch: Batch, before: SessionState, event: Event, data: facts.ShareLinkCreated) -> None:
    _link(
        batch,
        LinkRow(
            session_id=event.session_id,
            link_id=values.identifier(data.link_id),
            role=data.role,
            expires_ms=values.integer_or_none(data.expires_ms),
            created_by=values.text(data.by),
            revoked=False,
            first_seq=event.seq,
            seq=event.seq,
        ),
    )


def _link_revoked(batch: Batch, before: SessionState, event: Event, data: facts.ShareLinkRevoked) -> None:
    """Who came by it is gone at once."""
    link_id = values.identifier(data.link_id)
    _link(
        batch, LinkRow(session_id=event.session_id, link_id=link_id, revoked=True, first_seq=event.seq, seq=event.seq)
    )
    for participant in before.participants:
        if participant.link_id == data.link_id:
            _participant(batch, event, participant, present=False)


def _link(batch: Batch, row: LinkRow) -> None:
    batch.merge(batch.links, (row.session_id, row.link_id), row)


PROJECTIONS: Projections = {
    facts.ParticipantAdded: _participant_added,
    facts.ParticipantRemoved: _participant_removed,
    facts.ShareLinkCreated: _link_created,
    facts.ShareLinkRevoked: _link_revoked,
}
