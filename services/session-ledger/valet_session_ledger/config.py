"""What the ledger is told, beyond the settings of every service."""

import msgspec
from valet_protocol import subjects
from valet_service.errors import BadSettings
from valet_service.settings import Settings


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's configuration."""

    settings: Settings

    @property
    def all_shards(self) -> bool:
        """Whether this process serves the whole log."""
        return len(self.settings.shards) == subjects.SHARDS

    @property
    def filters(self) -> list[str]:
        """What is read of the log: more than is folded, because one filter is much cheaper than three (measured)."""
        if self.all_shards:
            return [subjects.EVERYTHING]
        return [subjects.shard(number) for number in self.settings.shards]


def configure(settings: Settings) -> Config:
    """Check what the ledger needs. Raises `BadSettings`."""
    if not settings.database_url:
        raise BadSettings("VALET_DATABASE_URL is not set: the ledger keeps its read models in PostgreSQL")
    return Config(settings=settings)
