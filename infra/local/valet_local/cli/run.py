"""`valet run`: one prompt, one session, shown as it happens."""

import re
from pathlib import Path
from typing import Annotated

import typer

from valet_local.cli.options import DataDir, Token, Url

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/\s]+@[^/\s:]+:")
"""A URL, or git's short form of one, `user@host:path`."""


def run(
    data_dir: DataDir,
    prompt: Annotated[str, typer.Argument(help="What the agent is to do.")],
    repo: Annotated[
        str | None, typer.Option(help="URL or path of a git repository; without one the workspace is empty.")
    ] = None,
    branch: Annotated[str | None, typer.Option(help="Branch to start from; else the repository's own.")] = None,
    model: Annotated[str | None, typer.Option(help="provider/model; else the default_model of valet.toml.")] = None,
    title: Annotated[str | None, typer.Option(help="A name for the session.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One event per line, with its sequence.")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="A valet.toml, if a platform has to be started.")
    ] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Start a session with a prompt and show it until its turn ends.

    Uses the platform that runs; if none does, one is started for the duration.

    Exit status: 0 when the turn completed, 1 when it failed, 130 when it was interrupted (Ctrl-C aborts it).
    """
    import asyncio  # here, so that `valet --help` need not wait for all this

    from valet_local.assembly import Options
    from valet_local.cli.connection import running_or_own
    from valet_local.cli.prompting import Prompting, Wish
    from valet_local.cli.terminal import Terminal
    from valet_local.cli.watch import view
    from valet_local.client.endpoint import Endpoint
    from valet_local.client.http import Client

    if not prompt.strip():
        raise typer.BadParameter("the prompt is empty; say what the agent is to do")
    terminal = Terminal()
    wish = Wish(prompt=prompt, repo=_absolute(repo), branch=branch, model=model, title=title)
    options = Options(data_dir=data_dir, port=0, config=config.absolute() if config else None, quiet=True)

    async def prompted(endpoint: Endpoint) -> int:
        async with Client(endpoint) as client:
            prompting = Prompting(client, terminal, view(terminal, as_json=as_json), wish, ask=not as_json)
            outcome = await prompting.run()
            # The transcript says it as well, but a pipe may have taken that away from the person's eyes.
            if outcome.words and terminal.rich is None:
                terminal.tell(f"{outcome.status}: {outcome.words}", "bad")
            return outcome.exit_code

    with running_or_own(data_dir, url, token, terminal, options=options) as endpoint:
        status = asyncio.run(prompted(endpoint))
    raise typer.Exit(status)


def _absolute(repo: str | None) -> str | None:
    """A repository as the API wants it: the platform's working directory is not the caller's."""
    if repo is None or _URL.match(repo):
        return repo
    return str(Path(repo).expanduser().absolute().resolve())
