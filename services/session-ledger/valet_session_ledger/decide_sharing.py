"""Who may do what in a session, and letting people in and out. Pure; refusals are raised."""

from valet_protocol.errors import Conflict, Forbidden, NotFound, TooMany
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.events.facts import Role
from valet_protocol.requests import (
    AddParticipant,
    CreateShareLink,
    JoinSession,
    RemoveParticipant,
    RevokeShareLink,
)

from valet_session_ledger import limits
from valet_session_ledger.decide_prompts import reused
from valet_session_ledger.state import Participant, SessionState

_RANK: dict[Role, int] = {"viewer": 0, "collaborator": 1, "owner": 2}


def permitted(state: SessionState | None, user: str, least: Role, above: Role | None = None) -> SessionState:
    """The state, for somebody whose role is high enough. A session one takes no part in is not even there.

    `above` is their role in a session above this one: who takes part there does so here.
    """
    role = None if state is None else highest(state.role_of(user), above)
    if state is None or role is None:
        raise not_found()
    if _RANK[role] < _RANK[least]:
        raise Forbidden("role_too_low", f"You take part in this session as {role}; this takes {_AS[least]}.")
    return state


def highest(*roles: Role | None) -> Role | None:
    """The highest of some roles; none where there is none."""
    return max((role for role in roles if role is not None), key=_RANK.__getitem__, default=None)


def not_found() -> NotFound:
    """The refusal for a session that is not there, or not for whoever asks."""
    return NotFound("session_not_found", "There is no such session, or it is not yours.")


_AS: dict[Role, str] = {"viewer": "a viewer", "collaborator": "a collaborator", "owner": "its owner"}


def add(state: SessionState, command: AddParticipant) -> list[Data]:
    """Somebody takes part, or has another role."""
    if command.participant == state.owner:
        raise Conflict("is_owner", "The owner takes part in any case, and keeps that role.")
    present = _participant(state, command.participant)
    if present is not None and (present.role, present.link_id) == (command.role, None):
        return []
    _check_room(state, command.participant)
    return [facts.ParticipantAdded(user=command.participant, role=command.role, by=command.user)]


def remove(state: SessionState, command: RemoveParticipant, took_part: bool) -> list[Data]:
    """The end of somebody's part: an owner ends anybody's, everybody their own. `took_part`: whether they ever did."""
    if command.user not in (state.owner, command.participant):
        raise Forbidden("role_too_low", "Only the owner ends other people's part in a session.")
    if command.participant == state.owner:
        raise Conflict("is_owner", "The owner cannot leave the session; end it instead.")
    if _participant(state, command.participant) is None:
        if not took_part:
            raise NotFound(
                "participant_not_found", f"{command.participant[:40]!r} has never taken part in this session."
            )
        return []
    return [facts.ParticipantRemoved(user=command.participant, by=command.user)]


def create_link(state: SessionState, command: CreateShareLink) -> list[Data]:
    """A link by which people may join."""
    asked = (command.token_sha256, command.role, command.expires_ms)
    for link in state.links:
        if link.link_id == command.link_id:
            if asked != (link.token_sha256, link.role, link.expires_ms):
                raise reused()
            return []
    if command.link_id in state.revoked_links:
        raise Conflict("link_revoked", "This link was revoked; make a new one.")
    if len(state.links) >= limits.SHARE_LINKS:
        raise TooMany("too_many_links", f"A session has at most {limits.SHARE_LINKS} links; revoke one first.")
    return [
        facts.ShareLinkCreated(
            link_id=command.link_id,
            token_sha256=command.token_sha256,
            role=command.role,
            expires_ms=command.expires_ms,
            by=command.user,
        )
    ]


def revoke_link(state: SessionState, command: RevokeShareLink) -> list[Data]:
    """A link is void, and who came by it takes part no more: `react` says of each that they are gone."""
    if command.link_id in state.revoked_links:
        return []
    if all(link.link_id != command.link_id for link in state.links):
        raise NotFound("link_not_found", "The session has no such link.")
    return [facts.ShareLinkRevoked(link_id=command.link_id, by=command.user)]


def join(state: SessionState | None, command: JoinSession, now_ms: int) -> list[Data]:
    """Somebody comes by a link. A higher role they have is kept."""
    links = () if state is None else state.links
    link = next((link for link in links if link.token_sha256 == command.token_sha256), None)
    if state is None or link is None or (link.expires_ms is not None and link.expires_ms <= now_ms):
        raise NotFound("link_not_found", "This link is void: it was revoked, has expired, or never was one.")
    role = state.role_of(command.user)
    if role is not None and _RANK[role] >= _RANK[link.role]:
        return []
    _check_room(state, command.user)
    return [facts.ParticipantAdded(user=command.user, role=link.role, by=command.user, link_id=link.link_id)]


def _check_room(state: SessionState, user: str) -> None:
    if len(state.participants) >= limits.PARTICIPANTS and _participant(state, user) is None:
        raise TooMany("too_many_participants", f"At most {limits.PARTICIPANTS} people take part in a session.")


def _participant(state: SessionState, user: str) -> Participant | None:
    return next((item for item in state.participants if item.user == user), None)
