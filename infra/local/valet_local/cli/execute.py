"""`valet exec`: a program in a session's sandbox, as if it ran here."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli import no_reader
from valet_local.cli.options import DataDir, SessionId, Token, Url

_NOT_FOUND = 127
_CANNOT_RUN = 126
_OURS = 125
"""Statuses that are not the program's own, as `env`, `docker exec` and shells have them."""

_STATUSES = {
    "command_not_found": _NOT_FOUND,
    "not_executable": _CANNOT_RUN,
    "cwd_missing": _CANNOT_RUN,
    "too_long": _CANNOT_RUN,
    "cannot_start": _CANNOT_RUN,
}
"""By the code of the refusal; any other is ours."""

if TYPE_CHECKING:
    from valet_local.cli.attaching import Attached
    from valet_local.cli.terminal import Terminal
    from valet_local.client.http import Client


def execute(
    data_dir: DataDir,
    session_id: SessionId,
    command: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARGUMENTS…", help="What to run.")],
    cwd: Annotated[str | None, typer.Option(help="Where, relative to the workspace.")] = None,
    terminal: Annotated[
        bool | None,
        typer.Option("--terminal/--no-terminal", "-t/-T", help="Give it a terminal; usual where this is one."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Only start it, and print its id.")] = False,
    tell_agent: Annotated[
        bool, typer.Option("--tell-agent", help="Show the agent the command and its output.")
    ] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Run a program in a session's sandbox; its exit status is this one's.

    It goes on while the connection is cut, and its output is taken up where it was; only what is typed at that very
    moment may be lost.

    Other exit statuses, as `env` and `docker exec` have them:

    127: there is no such program.

    126: it cannot be run, or not in that --cwd.

    125: Valet itself failed: no platform, session, sandbox or connection.

    141: whoever read the output closed it; the program is stopped then.
    """
    with_terminal = (sys.stdin.isatty() and sys.stdout.isatty()) if terminal is None else terminal

    async def executed(client: "Client", shown: "Terminal") -> int:
        from valet_local.cli import keystrokes
        from valet_local.cli.attaching import Attached
        from valet_local.cli.sandbox_access import NewProcess, Processes

        keep = not (with_terminal or detach)
        wanted = NewProcess(
            command=command[0],
            args=command[1:],
            cwd=cwd,
            label=" ".join(command)[:60],
            pty=keystrokes.size() if with_terminal else None,
            session_id=session_id if tell_agent else None,
            keep_output=keep,
        )
        async with Processes(client, session_id) as processes:
            process = await processes.start(wanted)
            if detach:
                shown.line(process.id)
                return 0
            attached = Attached(processes, process, tell=shown.tell)
            ours = keep and not tell_agent  # its output was kept for this one reader
            try:
                status = await (_in_terminal(attached) if with_terminal else _piped(attached))
            except OutputGone as error:
                await (processes.delete(process.id) if ours else processes.signal(process.id, "SIGHUP"))
                if not error.broken:
                    raise
                no_reader.silence()
                return no_reader.STATUS
            if ours:
                await processes.delete(process.id)
            return status

    # here, so that `valet --help` need not wait for all this
    from valet_protocol.errors import Refused

    from valet_local.cli.calling import call
    from valet_local.cli.errors import OutputGone
    from valet_local.errors import LocalError

    try:
        call(data_dir, url, token, executed)
    except (LocalError, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.code if isinstance(error, Refused) else ""
        raise typer.Exit(_STATUSES.get(code, _OURS)) from None


async def _in_terminal(attached: "Attached") -> int:
    import asyncio
    import contextlib
    import signal

    from valet_local.cli import keystrokes

    tasks: set[asyncio.Task[None]] = set()

    def resize() -> None:
        tasks.add(asyncio.ensure_future(attached.resize(keystrokes.size())))

    with contextlib.ExitStack() as stack:
        if sys.stdin.isatty():
            stack.enter_context(keystrokes.raw())
        stack.enter_context(keystrokes.on_signal(signal.SIGWINCH, resize))
        return await _joined(attached)


async def _piped(attached: "Attached") -> int:
    import asyncio
    import signal

    from valet_local.cli import keystrokes

    tasks: list[asyncio.Task[None]] = []

    def interrupt() -> None:
        # who presses Ctrl-C a second time means it
        tasks.append(asyncio.ensure_future(attached.signal("SIGKILL" if tasks else "SIGINT")))

    with keystrokes.on_signal(signal.SIGINT, interrupt):
        return await _joined(attached)


async def _joined(attached: "Attached") -> int:
    import asyncio

    from valet_local.cli import keystrokes

    async def write() -> None:
        async for piece in keystrokes.pieces():
            await attached.send(piece)
        await attached.close_input()

    async def give_up(writing: asyncio.Task[None]) -> None:
        await attached.takes_no_more.wait()
        writing.cancel()

    writing = asyncio.create_task(write())
    giving_up = asyncio.create_task(give_up(writing))
    try:
        return (await attached.follow()).status
    finally:
        writing.cancel()
        giving_up.cancel()
