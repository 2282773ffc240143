"""What the sandbox controller and the portal are told: the common settings, `valet.toml`, where programs are."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_service import config_file
from valet_service.config_file import ConfigError, Isolation, ValetConfig
from valet_service.credentials import Key, key_from_seed
from valet_service.errors import BadSettings
from valet_service.settings import Settings

from valet_sandbox_controller import limits
from valet_sandbox_controller.providers.host import Programs


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the service needs beside the common settings."""

    valet: ValetConfig
    """The file in force, with the providers whose environment variable is set."""
    isolation: Isolation
    """`--isolation` (VALET_ISOLATION) goes before the file."""
    programs: Programs
    account: Key | None
    """Signs runner credentials; none for a broker without authentication (tests)."""
    secret: bytes
    """HMAC key of portal tokens."""
    frame_ancestors: tuple[str, ...] = ()
    """Origins whose pages may show a sandbox's in a frame: the platform's, where a web app has such pages."""


_ORIGIN = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def frame_ancestors(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The origins in VALET_FRAME_ANCESTORS, between spaces. Raises `BadSettings`."""
    origins = tuple(environ.get("VALET_FRAME_ANCESTORS", "").split())
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise BadSettings(f"VALET_FRAME_ANCESTORS={origin!r}: write origins such as https://valet.example.org")
    return origins


def load(settings: Settings, environ: Mapping[str, str] = os.environ) -> ControllerConfig:
    """Read the files the settings name. Raises `BadSettings`."""
    valet = load_valet(settings.config, environ)
    isolation = environ.get("VALET_ISOLATION") or valet.sandbox.isolation
    if isolation not in ("bwrap", "none"):
        raise BadSettings(f"VALET_ISOLATION={isolation!r}: write bwrap or none")
    seed = settings.keys_dir / "account.seed"
    if settings.nats_creds is not None and not seed.exists():
        raise BadSettings(f"{seed} is missing: it signs the runners' credentials; `valet up` makes it")
    return ControllerConfig(
        valet=valet,
        isolation=isolation,
        programs=Programs(
            opencode=environ.get("VALET_OPENCODE_BIN") or None,
            rg=environ.get("VALET_RG_BIN") or None,
            bwrap=environ.get("VALET_BWRAP_BIN") or None,
            xterm=environ.get("VALET_XTERM_DIR") or None,
        ),
        account=key_from_seed(seed.read_text()) if settings.nats_creds is not None else None,
        secret=read_secret(settings),
        frame_ancestors=frame_ancestors(environ),
    )


def load_valet(path: Path | None, environ: Mapping[str, str]) -> ValetConfig:
    """`valet.toml` and the environment's providers. Raises `BadSettings` with the line of what is wrong."""
    try:
        config = config_file.parse(path.read_text(), str(path)) if path and path.exists() else ValetConfig()
    except (ConfigError, OSError) as error:
        raise BadSettings(str(error)) from error
    return config_file.with_environment(config, environ)


def sweep_every(environ: Mapping[str, str]) -> float:
    """Seconds between two looks of the portal at superfluous saved work. Raises `BadSettings`."""
    text = environ.get("VALET_SWEEP_SECONDS") or str(limits.SWEEP_EVERY)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= limits.SWEEP_RAREST:
        raise BadSettings(f"VALET_SWEEP_SECONDS={text!r}: write seconds, from 1 to {limits.SWEEP_RAREST:.0f}")
    return seconds


def read_secret(settings: Settings) -> bytes:
    """The installation's HMAC key. Raises `BadSettings`."""
    path = settings.keys_dir / "secret"
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {error.strerror}; `valet up` makes it") from error
