"""How many are connected to a port of this sandbox, as the kernel lists it."""

from pathlib import Path

_ESTABLISHED = "01"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def count(table: str, port: int) -> int:
    """Connections to a local port, from the text of `/proc/net/tcp`. Pure."""
    found = 0
    for line in table.splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        found += state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port
    return found


def to(port: int) -> int | None:
    """Connections to a port of this sandbox; none where the kernel does not list them (macOS)."""
    tables = [Path(table) for table in _TABLES if Path(table).exists()]  # a kernel may be without IPv6
    return sum(count(table.read_text(), port) for table in tables) if tables else None
