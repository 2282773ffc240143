"""Who takes part in a session."""

from typing import Literal

from valet_protocol.requests import Done, SessionView

from valet_local.client import bodies
from valet_local.client.transport import Transport, path_of

SharedRole = Literal["collaborator", "viewer"]


class Sharing(Transport):
    """Part of the client."""

    async def participants(self, session_id: str) -> bodies.Participants:
        """Who takes part and, for owners, by which links one may join."""
        return await self.read(path_of(session_id, "participants"), bodies.Participants)

    async def add_participant(self, session_id: str, user: str, role: SharedRole) -> Done:
        """Let a user (name or id) take part, or change their role."""
        path = path_of(session_id, "participants", user)
        return await self.write("PUT", path, Done, bodies.NewRole(role=role))

    async def remove_participant(self, session_id: str, user: str) -> Done:
        """End the part of a user (name or id)."""
        return await self.write("DELETE", path_of(session_id, "participants", user), Done)

    async def create_link(
        self, session_id: str, role: SharedRole, *, expires_in_s: int | None = None
    ) -> bodies.CreatedLink:
        """A link by which people may join. Its token is told this once."""
        body = bodies.NewLink(role=role, expires_in_s=expires_in_s)
        return await self.write("POST", path_of(session_id, "links"), bodies.CreatedLink, body)

    async def revoke_link(self, session_id: str, link_id: str) -> Done:
        """Make a link void; who came by it takes part no more."""
        return await self.write("DELETE", path_of(session_id, "links", link_id), Done)

    async def join(self, token: str) -> SessionView:
        """Join by a link's token."""
        return await self.write("POST", "/api/join", SessionView, bodies.Join(token=token))
