"""What the API is told beyond the settings every service has."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_service.config_file import ConfigError, ValetConfig, missing_keys, parse, with_environment
from valet_service.errors import BadSettings
from valet_service.settings import Settings

from valet_api.errors import BadToken


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The API's own settings."""

    host: str
    port: int
    """0 for a free one."""
    admin_token: str | None
    """Token of the first user; none leaves the users as they are."""
    event_bus: Path
    """Socket on which the event bus takes connections over."""
    nats_health: str | None
    """URL of the broker's health page; None where it cannot be reached."""
    config: ValetConfig
    missing_keys: Mapping[str, str]
    """The environment variables that should hold providers' keys and do not, by provider."""
    secret: bytes
    """The installation's key; tokens that must come out alike twice derive from it."""


def load(settings: Settings, environ: Mapping[str, str] = os.environ) -> ApiSettings:
    """Raises `BadSettings` and `BadToken`, naming the variable or file."""
    port = environ.get("VALET_API_PORT", "8700")
    if not port.isdigit() or int(port) > 65535:
        raise BadSettings(f"VALET_API_PORT={port!r} is not a port number")
    config = with_environment(_config(settings.config), environ)
    return ApiSettings(
        host=environ.get("VALET_API_HOST", "127.0.0.1"),
        port=int(port),
        admin_token=_admin_token(environ.get("VALET_ADMIN_TOKEN_FILE")),
        event_bus=settings.run_dir / "event-bus.sock",
        nats_health=environ.get("VALET_NATS_HEALTH"),
        config=config,
        missing_keys=dict(missing_keys(config, environ)),
        secret=_secret(settings.keys_dir / "secret"),
    )


def _secret(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}; `valet up` makes it") from error


def _config(path: Path | None) -> ValetConfig:
    if path is None:
        return ValetConfig()
    try:
        return parse(path.read_text(), str(path))
    except FileNotFoundError:
        return ValetConfig()
    except (OSError, ConfigError) as error:
        raise BadSettings(str(error)) from error


def _admin_token(path: str | None) -> str | None:
    if not path:
        return None
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise BadToken(f"VALET_ADMIN_TOKEN_FILE={path}: {error.strerror}") from error
    if len(token) < 16:
        raise BadToken(f"{path} holds a token of {len(token)} characters; at least 16 are needed")
    return token
