"""The set-up step of `docker compose up`: `python -m valet_local.compose`.

It runs before everything else, every time, and ends. It reads the same variables as a service, and

* makes the installation's secrets and fresh credentials in the data volume (`keys.ensure`),
* writes what the two stock servers are told into the volume they share with it ($VALET_SERVERS_DIR),
* asks the agent, where it is installed, which models it knows (`env_models`),
* refuses a wrong `valet.toml` with the line and the reason, before any service starts on it.
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_service.config_file import ConfigError

from valet_local import config, env_models, keys, nats, postgres
from valet_local.errors import BadDataDir, LocalError
from valet_local.files import read_if_there, write_atomically
from valet_local.journal import Journal
from valet_local.layout import Layout, layout, prepare

NATS_PORT = 4222
NATS_MONITOR_PORT = 8222
"""The health page, for the container's own health check; nobody else gets to it."""

NATS_STORE = Path("/data/jetstream")
"""Inside the NATS container; a volume of its own is mounted at /data."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What the stock servers find in the volume they share with the set-up step."""

    nats_config: Path
    postgres_password: Path


def servers(directory: Path) -> Written:
    """The names of those files."""
    return Written(nats_config=directory / "nats.conf", postgres_password=directory / "postgres-password")


def set_up(places: Layout, directory: Path) -> Written:
    """Put everything in place; what is there stays. Raises `LocalError`s.

    `directory` is read by the servers' own users: whoever may enter the volume may read it. It holds nothing that
    opens anything but the database, and only the two servers mount it.
    """
    prepare(places)
    secret = keys.ensure(places)
    written = servers(directory)
    try:
        text = nats.configuration(
            secret.trust, store=NATS_STORE, port=NATS_PORT, host="0.0.0.0", monitor=NATS_MONITOR_PORT
        )
        write_atomically(written.nats_config, text.encode(), mode=0o644)
        password = _password(places)
        write_atomically(written.postgres_password, password.encode(), mode=0o644)
    except OSError as error:
        raise BadDataDir(f"cannot write to {directory}: {error.strerror or error}") from None
    return written


def pgpass(places: Layout) -> Path:
    """PostgreSQL's password in the form its clients read: `?passfile=…` of VALET_DATABASE_URL names this file."""
    return places.keys / "pgpass"


def _password(places: Layout) -> str:
    path = pgpass(places)
    kept = (read_if_there(path) or b"").decode().strip()
    if kept:
        return kept.rpartition(":")[2]
    password = secrets.token_urlsafe(32)
    write_atomically(path, f"*:*:*:{postgres.DATABASE}:{password}\n".encode())
    return password


def main(environment: Mapping[str, str] = os.environ) -> int:
    """The whole step; the exit status."""
    places = layout(Path(environment["VALET_DATA_DIR"]))
    try:
        found = config.load(places.data, environment=environment)
        set_up(places, Path(environment["VALET_SERVERS_DIR"]))
    except (LocalError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    opencode = environment.get("VALET_OPENCODE_BIN")
    if opencode:
        journal = Journal(places.logs / "setup.log", quiet=False)
        asyncio.run(env_models.refresh(places.data, found.config, Path(opencode), environment, journal))
    print(f"Valet is set up. The sign-in token: docker compose exec api cat {places.token}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
