"""Users and tokens in PostgreSQL, schema `identity`. The statements are in `queries.sql`."""

import hashlib
import re
from importlib.resources import files

import asyncpg
from valet_protocol.requests import Identity
from valet_service import database

OWNER = "owner"
"""Name of the first user."""


def _queries() -> dict[str, str]:
    text = files("valet_api").joinpath("queries.sql").read_text()
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


QUERIES = _queries()


def hash_of(token: str) -> bytes:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).digest()


class Store:
    """Reads and writes identities. Raises one of `database.UNAVAILABLE` while the server is away."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def migrate(self) -> None:
        """Bring the schema up to date."""
        folder = files("valet_api").joinpath("migrations")
        await database.migrate(self._pool, "identity", sorted(folder.iterdir(), key=lambda file: file.name))

    async def identity(self, token: str) -> Identity | None:
        """Who a token belongs to."""
        row = await self._pool.fetchrow(QUERIES["user_of_token"], hash_of(token))
        return Identity(user=row["id"], name=row["name"], admin=row["admin"]) if row else None

    async def add_user(self, user_id: str, name: str, token: str) -> bool:
        """A new user with a token; False when the name is taken."""
        async with self._pool.acquire() as connection, connection.transaction():
            if await connection.fetchrow(QUERIES["add_user"], user_id, name, False) is None:
                return False
            await connection.execute(QUERIES["add_token"], hash_of(token), user_id, "issued")
        return True

    async def ensure_owner(self, user_id: str, token: str) -> None:
        """The first user, an administrator, signs in with this token and with no earlier one of the token file.

        `user_id` is used if there is no owner yet.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.fetchrow(QUERIES["add_user"], user_id, OWNER, True)
            row = await connection.fetchrow(QUERIES["user_named"], OWNER)
            await connection.execute(QUERIES["drop_file_tokens"], row["id"], hash_of(token))
            await connection.execute(QUERIES["add_token"], hash_of(token), row["id"], "file")

    async def ping(self) -> None:
        """Raises while the database cannot be asked."""
        await self._pool.fetchval(QUERIES["ping"])
