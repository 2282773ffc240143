"""`valet abort`: stop the running turn."""

from typing import TYPE_CHECKING

from valet_local.cli.options import DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def abort(data_dir: DataDir, session_id: SessionId, url: Url = None, token: Token = None) -> None:
    """Stop the running turn. What the agent has done stays; prompts that wait go on waiting their turn."""

    async def aborted(client: "Client", terminal: "Terminal") -> None:
        done = await client.abort(session_id)
        terminal.tell(f"The turn is being stopped (event {done.seq}).")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, aborted)
