"""`valet ps`: the processes in a session's sandbox."""

from typing import TYPE_CHECKING

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url
from valet_local.invocation import typed

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def ps(data_dir: DataDir, session_id: SessionId, as_json: AsJson = False, url: Url = None, token: Token = None) -> None:
    """List the processes in a session's sandbox: those that run, and those that ended lately."""

    async def listed(client: "Client", terminal: "Terminal") -> None:
        import time

        import msgspec

        from valet_local.cli import table_of_processes
        from valet_local.cli.sandbox_access import Processes

        async with Processes(client, session_id) as processes:
            found = await processes.list()
        if as_json:
            terminal.raw(msgspec.json.format(msgspec.json.encode(found)))
        elif found:
            terminal.write(table_of_processes.processes(found, time.time_ns() // 1_000_000))
        else:
            terminal.tell(f"No processes but the agent's own. Start one with: {typed(f'exec {session_id} -- bash')}")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, listed)
