"""TCP ports on this machine: a free one, and who has a taken one."""

import errno
import socket

from valet_local.errors import BadAddress, PortInUse


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody has at this moment."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now. Raises `BadAddress` where it never could."""
    with socket.socket(_family(host)) as probe:
        # As servers do: a port of connections that just ended counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise BadAddress(host, port, error.strerror or str(error)) from None
        return True


def choose(port: int, host: str = "127.0.0.1") -> int:
    """The port itself, or a free one for 0. Raises `PortInUse` naming the process that has it, where that can
    be seen.
    """
    if port == 0:
        try:
            return free_port(host)
        except OSError as error:
            raise BadAddress(host, port, error.strerror or str(error)) from None
    if not is_free(port, host):
        raise PortInUse(host, port, _holder(port))
    return port


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _holder(port: int) -> str | None:
    import psutil  # only when something is wrong: it would stay in memory

    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            if connection.pid is None:
                return None
            try:
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
            except psutil.Error:
                return f"process {connection.pid}"
    return None
