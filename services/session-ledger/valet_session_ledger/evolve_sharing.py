"""Folding who takes part in a session, and by which links one may join. Pure."""

from msgspec.structs import replace
from valet_protocol.events import facts
from valet_protocol.events.envelope import Event

from valet_session_ledger import limits
from valet_session_ledger.evolve_turns import Folds
from valet_session_ledger.state import Leaving, Participant, SessionState, ShareLink


def _participant_added(state: SessionState, event: Event, data: facts.ParticipantAdded) -> SessionState:
    added = Participant(user=data.user, role=data.role, link_id=data.link_id)
    return replace(state, participants=(*_others(state, data.user), added), leaving=_staying(state, data.user))


def _participant_removed(state: SessionState, event: Event, data: facts.ParticipantRemoved) -> SessionState:
    return replace(state, participants=_others(state, data.user), leaving=_staying(state, data.user))


def _others(state: SessionState, user: str) -> tuple[Participant, ...]:
    return tuple(participant for participant in state.participants if participant.user != user)


def _staying(state: SessionState, user: str) -> tuple[Leaving, ...]:
    """Who else is leaving: of this one a fact has said whether they take part."""
    return tuple(one for one in state.leaving if one.user != user)


def _link_created(state: SessionState, event: Event, data: facts.ShareLinkCreated) -> SessionState:
    link = ShareLink(link_id=data.link_id, token_sha256=data.token_sha256, role=data.role, expires_ms=data.expires_ms)
    return replace(state, links=(*(item for item in state.links if item.link_id != link.link_id), link))


def _link_revoked(state: SessionState, event: Event, data: facts.ShareLinkRevoked) -> SessionState:
    """Who came by the link goes with it at once; the facts that name them follow for those who watch."""
    gone = tuple(item.user for item in state.participants if item.link_id == data.link_id)
    return replace(
        state,
        links=tuple(link for link in state.links if link.link_id != data.link_id),
        revoked_links=(*state.revoked_links, data.link_id)[-limits.SHARE_LINKS :],
        participants=tuple(item for item in state.participants if item.link_id != data.link_id),
        leaving=(*state.leaving, *(Leaving(user=user, by=data.by) for user in gone)),
    )


FOLDS: Folds = {
    facts.ParticipantAdded: _participant_added,
    facts.ParticipantRemoved: _participant_removed,
    facts.ShareLinkCreated: _link_created,
    facts.ShareLinkRevoked: _link_revoked,
}
