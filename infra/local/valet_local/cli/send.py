"""`valet send`: a prompt for a session there is."""

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import AsJson, DataDir, SessionId, Token, Url
from valet_local.invocation import typed

if TYPE_CHECKING:
    from valet_protocol.events.facts import PromptKind

    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


_SLASH = re.compile(r"/[\w.:-]+(\s|$)")
"""A slash command's name; what goes on with a slash is a path."""


class Mode(StrEnum):
    """What happens while a turn runs."""

    queue = "queue"
    steer = "steer"
    collect = "collect"


def send(
    data_dir: DataDir,
    session_id: SessionId,
    text: Annotated[str, typer.Argument(help="What the agent is to do; /NAME … is one of its slash commands.")] = "",
    mode: Annotated[
        Mode, typer.Option(help="While a turn runs: wait for its end, go into it, or be collected with others.")
    ] = Mode.queue,
    attach: Annotated[list[Path] | None, typer.Option(help="A file for the agent; can be given again.")] = None,
    channel: Annotated[
        str | None, typer.Option(help="A conversation of its own in the same workspace, e.g. web:other.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="provider/model, for this prompt only.")] = None,
    fallback: Annotated[
        list[str] | None, typer.Option(help="provider/model to go on with if that one cannot; can be given again.")
    ] = None,
    shell: Annotated[bool, typer.Option("--shell", help="A command line; the agent sees its output.")] = False,
    review: Annotated[bool, typer.Option("--review", help="Have the session's changes reviewed.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Give a session a prompt. It is in the log when this returns; `valet follow` shows what comes of it."""
    if shell and review:
        raise typer.BadParameter("--shell and --review are two different things; give one of them")
    kind: PromptKind = "shell" if shell else "review" if review else "command" if _SLASH.match(text) else "prompt"
    if not text.strip() and kind != "review":
        raise typer.BadParameter("the prompt is empty; say what the agent is to do")
    for path in attach or ():
        if not path.is_file():
            raise typer.BadParameter(f"{path} is not a file")

    async def sent(client: "Client", terminal: "Terminal") -> None:
        import mimetypes

        import msgspec

        attachments: list[str] = []
        for path in attach or ():
            mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            attachments.append((await client.attach(session_id, path, mime)).attachment_id)
        accepted = await client.send_message(
            session_id,
            text,
            kind=kind,
            mode=mode.value,
            channel=channel,
            model=model,
            fallbacks=fallback,
            attachments=attachments,
        )
        if as_json:
            terminal.raw(msgspec.json.encode(accepted))
        else:
            terminal.line(f"{accepted.prompt_id}  {accepted.status}")
            terminal.tell(f"Follow it with: {typed(f'follow {session_id} --after {accepted.seq - 1}')}")

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, sent)
