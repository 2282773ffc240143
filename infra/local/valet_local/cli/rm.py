"""`valet rm`: end a session for good."""

from typing import TYPE_CHECKING

from valet_local.cli.options import DataDir, SessionId, Token, Url

if TYPE_CHECKING:
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def rm(data_dir: DataDir, session_id: SessionId, url: Url = None, token: Token = None) -> None:
    """End a session: its sandbox and its workspace are removed, its history stays readable."""

    async def ended(client: "Client", terminal: "Terminal") -> None:
        done = await client.terminate(session_id)
        terminal.tell(f"The session was ended (event {done.seq}); its history stays: valet show {session_id}")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, ended)
