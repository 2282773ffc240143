"""Who may sign in; for administrators."""

from valet_local.client import bodies
from valet_local.client.transport import Transport, segment


class People(Transport):
    """Part of the client."""

    async def users(self) -> list[bodies.User]:
        """Everybody who may sign in, by name."""
        return (await self.read("/api/users", bodies.Users)).items

    async def add_user(self, name: str) -> bodies.UserToken:
        """A further user. Their token is told this once."""
        return await self.write("POST", "/api/users", bodies.UserToken, bodies.NewUser(name=name))

    async def remove_user(self, user: str) -> bodies.UserName:
        """Refuse a user's (name or id) tokens from now on; their sessions stay."""
        return await self.write("DELETE", f"/api/users/{segment(user)}", bodies.UserName)

    async def replace_token(self, user: str) -> bodies.UserToken:
        """A new token for a user (name or id), told this once; those from before are refused from now on."""
        return await self.write("POST", f"/api/users/{segment(user)}/token", bodies.UserToken)
