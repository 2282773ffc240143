"""What a service is told: environment variables, read once, typed."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_protocol import subjects

from valet_service.errors import BadSettings


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings every service has. A service adds its own in its `config.py`."""

    nats_url: str
    """e.g. `nats://127.0.0.1:4222`."""
    nats_creds: str | None
    """Path of the service's credentials file; none for a broker without authentication (tests)."""
    database_url: str
    """libpq connection string or URL."""
    data_dir: Path
    run_dir: Path
    """Short directory for unix sockets (their paths may have 107 bytes)."""
    keys_dir: Path
    """`account.seed` (signs runner credentials) and `secret` (32 bytes, HMAC)."""
    config: Path | None
    """`valet.toml` in force."""
    log_level: str
    shards: tuple[int, ...]
    """Shards of the log this process reads."""


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read `VALET_*`. Raises `BadSettings` naming the variable and what is wrong with it."""

    def need(name: str) -> str:
        value = environ.get(name, "")
        if not value:
            raise BadSettings(f"{name} is not set; `valet up` sets it, or see docs/operations.md")
        return value

    data_dir = Path(environ.get("VALET_DATA_DIR", "/var/lib/valet"))
    config = environ.get("VALET_CONFIG")
    return Settings(
        nats_url=need("VALET_NATS_URL"),
        nats_creds=environ.get("VALET_NATS_CREDS") or None,
        database_url=environ.get("VALET_DATABASE_URL", ""),
        data_dir=data_dir,
        run_dir=Path(environ.get("VALET_RUN_DIR", data_dir / "run")),
        keys_dir=Path(environ.get("VALET_KEYS_DIR", data_dir / "keys")),
        config=Path(config) if config else None,
        log_level=environ.get("VALET_LOG_LEVEL", "info"),
        shards=parse_shards(environ.get("VALET_SHARDS", f"0-{subjects.SHARDS - 1}")),
    )


def parse_shards(text: str) -> tuple[int, ...]:
    """`"0-3,8"` → `(0, 1, 2, 3, 8)`. Raises `BadSettings`."""
    numbers: set[int] = set()
    try:
        for item in text.split(","):
            first, dash, last = item.partition("-")
            # a range far beyond the last shard is refused below, not counted out
            numbers.update(range(int(first), min(int(last if dash else first), subjects.SHARDS) + 1))
    except ValueError as error:
        raise BadSettings(f"VALET_SHARDS={text!r}: write numbers and ranges, e.g. 0-7,12") from error
    if not numbers or min(numbers) < 0 or max(numbers) >= subjects.SHARDS:
        raise BadSettings(f"VALET_SHARDS={text!r}: shards go from 0 to {subjects.SHARDS - 1}")
    return tuple(sorted(numbers))
