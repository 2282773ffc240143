"""Errors of the one-machine platform. Every message says what to do next; none is shown with a stack trace.

LocalError
├── AlreadyRunning      another `valet up` holds this data directory
├── NotRunning          `valet down` (or a client) found no platform there
├── PortInUse           the port that was asked for is taken
├── BadAddress          one cannot listen on that address at all
├── DiskFull            too little room for the data directory
├── BadDataDir          the data directory cannot be used
├── ToolError           a program Valet needs cannot be had
│   ├── ToolMissing     it is not on this machine and not in a package
│   ├── FetchFailed     it could not be downloaded
│   └── BadDownload     what was downloaded is not what was asked for
├── NoIsolation         agents cannot be locked in on this machine
├── NatsTooOld          the NATS server is older than Valet can trust
├── DatabaseError       PostgreSQL could not be created or started
└── StartFailed         a process of the platform did not become ready
"""

from valet_local.invocation import typed


class LocalError(Exception):
    """Any error of this package; its text is meant for the person at the terminal."""


class AlreadyRunning(LocalError):
    def __init__(self, data_dir: object, pid: int | None) -> None:
        by = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{data_dir} is in use by {by}. Stop it with: {typed(f'down --data-dir {data_dir}')}\n"
            "or give this one a directory of its own with --data-dir"
        )
        self.pid = pid


class NotRunning(LocalError):
    def __init__(self, data_dir: object) -> None:
        super().__init__(f"nothing runs on {data_dir}. Start it with: {typed(f'up --data-dir {data_dir}')}")


class PortInUse(LocalError):
    def __init__(self, host: str, port: int, holder: str | None) -> None:
        by = f" by {holder}" if holder else ""
        super().__init__(f"port {port} on {host} is in use{by}. Choose another with --port, or --port 0 for a free one")


class BadAddress(LocalError):
    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host} port {port}: {reason}. Choose others with --host and --port")


class DiskFull(LocalError):
    def __init__(self, path: object, free_mb: int, needed_mb: int) -> None:
        super().__init__(
            f"only {free_mb} MB are free at {path}, and Valet needs {needed_mb} MB to start. "
            "Free some space or choose another disk with --data-dir"
        )


class BadDataDir(LocalError):
    pass


class ToolError(LocalError):
    pass


class ToolMissing(ToolError):
    pass


class FetchFailed(ToolError):
    pass


class BadDownload(ToolError):
    pass


class NatsTooOld(LocalError):
    def __init__(self, path: object, version: str, needed: str) -> None:
        super().__init__(
            f"{path} is NATS server {version}; Valet needs {needed} or newer, because older servers ignore "
            "parts of what it asks for without saying so. Unset NATS_BIN to use the one that comes with "
            "Valet"
        )


class NoIsolation(LocalError):
    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}. {remedy}")
        self.reason = reason
        self.remedy = remedy


class DatabaseError(LocalError):
    pass


class StartFailed(LocalError):
    pass
