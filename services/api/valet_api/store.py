"""People, their tokens and what is known of attachments, in PostgreSQL, schema `identity`.

The statements are in `queries.sql`.
"""

import hashlib
import re
from collections.abc import Iterable
from importlib.resources import files

import asyncpg
import msgspec
from valet_protocol.events.facts import Attachment
from valet_protocol.requests import Identity
from valet_service import database

OWNER = "owner"
"""Name of the first user."""


def _queries() -> dict[str, str]:
    text = files("valet_api").joinpath("queries.sql").read_text()
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


QUERIES = _queries()


class Person(Identity, frozen=True, kw_only=True):
    """An identity, and how its commits are to be signed."""

    email: str | None = None
    display_name: str | None = None


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody else, as others see them."""

    id: str
    name: str


def _person(row: asyncpg.Record) -> Person:
    return Person(
        user=row["id"],
        name=row["name"],
        admin=row["admin"],
        email=row["email"],
        display_name=row["display_name"],
    )


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

    async def person(self, token: str) -> Person | None:
        """Who a token belongs to."""
        row = await self._pool.fetchrow(QUERIES["user_of_token"], hash_of(token))
        return _person(row) if row is not None else None

    async def add_user(
        self, user_id: str, name: str, token: str, *, email: str | None = None, display_name: str | None = None
    ) -> bool:
        """A new user with a token; False when the name is taken."""
        async with self._pool.acquire() as connection, connection.transaction():
            if await connection.fetchrow(QUERIES["add_user"], user_id, name, False, email, display_name) is None:
                return False
            await connection.execute(QUERIES["add_token"], hash_of(token), user_id, "issued")
        return True

    async def people(self) -> list[Person]:
        """Everybody who may sign in, by name."""
        return [_person(row) for row in await self._pool.fetch(QUERIES["all_users"])]

    async def remove_user(self, user_id: str) -> None:
        """Nobody signs in as this user any more; their name is free. Once more changes nothing."""
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(QUERIES["revoke_tokens"], user_id, None)
            await connection.execute(QUERIES["remove_user"], user_id)

    async def replace_tokens(self, user_id: str, token: str) -> None:
        """Sign in with this token from now on, and with none from before. A token that was given before, even one that
        is replaced by now, changes nothing.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            if await connection.fetchrow(QUERIES["add_token"], hash_of(token), user_id, "issued") is not None:
                await connection.execute(QUERIES["revoke_tokens"], user_id, hash_of(token))

    async def change_user(self, user_id: str, *, email: str | None, display_name: str | None) -> None:
        """How a user wants to be named; None for not at all."""
        await self._pool.execute(QUERIES["change_user"], user_id, email, display_name)

    async def known_as(self, id_or_name: str) -> Named | None:
        """The user of an id or a name."""
        row = await self._pool.fetchrow(QUERIES["user_known_as"], id_or_name)
        return Named(id=row["id"], name=row["name"]) if row else None

    async def names(self, users: Iterable[str]) -> dict[str, str]:
        """The names of some users by their ids; who is not known has none."""
        rows = await self._pool.fetch(QUERIES["users_of"], list(users))
        return {row["id"]: row["name"] for row in rows}

    async def ensure_owner(self, user_id: str, token: str) -> None:
        """The first user, an administrator, signs in with this token and with no earlier one of the token file.

        `user_id` is used if there is no owner yet.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.fetchrow(QUERIES["add_user"], user_id, OWNER, True, None, None)
            row = await connection.fetchrow(QUERIES["user_named"], OWNER)
            await connection.execute(QUERIES["drop_file_tokens"], row["id"], hash_of(token))
            await connection.execute(QUERIES["add_token"], hash_of(token), row["id"], "file")

    async def add_attachment(self, session_id: str, attachment: Attachment, author: str) -> None:
        """Note a file that is in the object store. The same id again changes nothing."""
        await self._pool.execute(
            QUERIES["add_attachment"],
            session_id,
            attachment.attachment_id,
            attachment.name,
            attachment.mime,
            attachment.bytes,
            attachment.sha256,
            author,
        )

    async def attachments(self, session_id: str, ids: list[str] | None = None) -> dict[str, Attachment]:
        """Attachments of a session by id: those named and known, or all."""
        if ids is None:
            rows = await self._pool.fetch(QUERIES["attachments_of"], session_id)
        else:
            rows = await self._pool.fetch(QUERIES["attachments_named"], session_id, ids)
        return {row["attachment_id"]: Attachment(**row) for row in rows}

    async def ping(self) -> None:
        """Raises while the database cannot be asked."""
        await self._pool.fetchval(QUERIES["ping"])
