"""What knowledge is called, and what it must be told."""

from valet_service.errors import BadSettings
from valet_service.settings import Settings

NAME = "knowledge"


def database_url(settings: Settings) -> str:
    """Raises `BadSettings` where there is none: everything here is stored."""
    if not settings.database_url:
        raise BadSettings("VALET_DATABASE_URL is not set: knowledge keeps memories in PostgreSQL")
    return settings.database_url
