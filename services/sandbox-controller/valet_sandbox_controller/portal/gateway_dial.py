"""Connecting to a sandbox's gateway, through a folder in which the sandbox may do what it likes."""

import asyncio
import os
import socket
import stat
from pathlib import Path

from valet_sandbox_controller import limits
from valet_sandbox_controller.errors import GatewayAway
from valet_sandbox_controller.portal.dial import Dialled
from valet_sandbox_controller.portal.splice import Held, as_transport
from valet_sandbox_controller.providers.storage import SOCKET


async def dial(folder: Path, name: str = SOCKET) -> Dialled:
    """Connect to the gateway whose socket lies in `folder`, or to its socket of that name. Raises `GatewayAway`.

    What is connected to is a socket of that very folder: a link the agent has put in its place would lead to sockets
    of the host (a database's, the container engine's), and people's connections with it.
    """
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        file = os.open(folder / name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISSOCK(os.fstat(file).st_mode):
                raise GatewayAway("what lies in its place is no socket")
            # by the descriptor, not by name once more: it could be another thing by then
            await asyncio.wait_for(loop.sock_connect(connection, f"/proc/self/fd/{file}"), limits.GATEWAY_DIAL)
        finally:
            os.close(file)
        connection.getpeername()  # the loop takes a full backlog (EAGAIN) for a connection that is on its way
        transport, held = await loop.create_unix_connection(Held, sock=connection)
    except (OSError, TimeoutError, GatewayAway) as error:
        connection.close()
        raise GatewayAway(str(error) or type(error).__name__) from error
    return Dialled(as_transport(transport), held)
