"""What the ledger is told, beyond the settings of every service."""

import msgspec
from valet_protocol import subjects
from valet_service.errors import BadSettings
from valet_service.settings import Settings

FOLDED: tuple[subjects.Source, ...] = ("fact", "agent", "sandbox")
"""Every source but deltas, which are gone once their message is complete."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's configuration."""

    settings: Settings

    @property
    def all_shards(self) -> bool:
        """Whether this process serves the whole log."""
        return len(self.settings.shards) == subjects.SHARDS

    @property
    def filters(self) -> list[str]:
        """What of the log is folded."""
        if self.all_shards:
            return [subjects.every_of(source) for source in FOLDED]
        return [subjects.every_of(source, shard) for source in FOLDED for shard in self.settings.shards]


def configure(settings: Settings) -> Config:
    """Check what the ledger needs. Raises `BadSettings`."""
    if not settings.database_url:
        raise BadSettings("VALET_DATABASE_URL is not set: the ledger keeps its read models in PostgreSQL")
    return Config(settings=settings)
