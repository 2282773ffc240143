"""Where everything of one installation lies, below its data directory."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import msgspec
import platformdirs

from valet_local import limits
from valet_local.errors import BadDataDir, DiskFull


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The data directory D and what is in it. Nothing is created by asking for a path."""

    data: Path
    run: Path
    """For unix sockets: `D/run`, or a private directory in the system's temporary one when D's path is too
    long.
    """

    @property
    def nats(self) -> Path:
        """JetStream's files, the server's configuration and the port it keeps."""
        return self.data / "nats"

    @property
    def postgres(self) -> Path:
        return self.data / "postgres"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def keys(self) -> Path:
        """Seeds, the HMAC secret, the sign-in token; mode 0700."""
        return self.data / "keys"

    @property
    def creds(self) -> Path:
        """The services' NATS credentials, made anew at every start."""
        return self.keys / "creds"

    @property
    def token(self) -> Path:
        return self.keys / "token"

    @property
    def tools(self) -> Path:
        return self.data / "tools"

    @property
    def cache(self) -> Path:
        return self.data / "cache"

    @property
    def lock(self) -> Path:
        return self.data / "valet.lock"

    @property
    def state(self) -> Path:
        """`valet.json`: there while the platform is ready."""
        return self.data / "valet.json"

    @property
    def processes(self) -> Path:
        """The pids of the platform's processes, so that the next start can end what a crash left."""
        return self.data / "processes.json"

    @property
    def sandboxes(self) -> Path:
        """One `{pid, start_time}` per running sandbox, written by the sandbox controller."""
        return self.run / "sandboxes"


def default_data_dir() -> Path:
    """`$VALET_DATA_DIR`, else the place the operating system has for it."""
    return Path(os.environ.get("VALET_DATA_DIR") or platformdirs.user_data_dir("valet", appauthor=False))


def cache_dir() -> Path:
    """What all installations of a user share: `$VALET_CACHE_DIR`, else the operating system's place for
    caches.
    """
    return Path(os.environ.get("VALET_CACHE_DIR") or platformdirs.user_cache_dir("valet", appauthor=False))


def layout(data_dir: Path) -> Layout:
    """The layout of a data directory, which need not exist."""
    data = data_dir.expanduser().absolute()
    return Layout(data=data, run=_run_dir(data))


def prepare(places: Layout) -> None:
    """Create the directories. Raises `BadDataDir` and `DiskFull`."""
    if len(os.fsencode(places.run)) > limits.UNIX_PATH_LONGEST:
        raise BadDataDir(
            f"{places.run} is too long for the sockets in it (a path may have {limits.UNIX_PATH_LONGEST} bytes);"
            " choose a shorter --data-dir, or a shorter TMPDIR"
        )
    try:
        places.data.mkdir(parents=True, exist_ok=True)
        for path in (places.keys, places.creds):
            path.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)
        places.run.mkdir(mode=0o700, exist_ok=True)
        if os.getuid() == 0:
            # The user whom PostgreSQL runs as must get through to its socket; each directory inside is
            # private.
            places.run.chmod(0o711)
        for path in (places.logs, places.tools, places.cache, places.nats, places.sandboxes):
            path.mkdir(mode=0o700, exist_ok=True)
        (places.run / "portal").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadDataDir(f"cannot write to {error.filename or places.data}: {reason}") from None
    if places.run.stat().st_uid != os.getuid():
        raise BadDataDir(f"{places.run} belongs to another user; remove it or choose a shorter --data-dir")
    free_mb = shutil.disk_usage(places.data).free >> 20
    if free_mb < limits.FREE_DISK_MB:
        raise DiskFull(places.data, free_mb, limits.FREE_DISK_MB)


def _run_dir(data: Path) -> Path:
    own = data / "run"
    if len(os.fsencode(own)) <= limits.UNIX_PATH_LONGEST:
        return own
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"valet-{os.getuid()}-{digest}"
