"""Which OpenCode session is the conversation: remembered in the home directory, so that a new sandbox continues it."""

import contextlib
import os
from pathlib import Path

from valet_runner import frames
from valet_runner.opencode_client import OpencodeClient

_FILE = Path(".valet") / "opencode-session"


async def resume(client: OpencodeClient, home: Path) -> frames.Session:
    """The conversation of earlier epochs, or a new one. Raises what the client raises."""
    path = home / _FILE
    with contextlib.suppress(FileNotFoundError):
        remembered = path.read_text().strip()
        session = await client.session(remembered) if remembered else None
        if session is not None:
            return session
    session = await client.create_session()
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(session.id)
    os.replace(new, path)
    return session
