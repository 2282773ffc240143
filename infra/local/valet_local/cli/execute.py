"""`valet exec`: a program in a session's sandbox, as if it ran here."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from valet_local.cli.options import DataDir, SessionId, Token, Url

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
            status = await (_in_terminal(attached) if with_terminal else _piped(attached))
            if keep and not tell_agent:
                await processes.delete(process.id)  # its output was kept for this one reader
            return status

    from valet_local.cli.calling import call  # here, so that `valet --help` need not wait for all this

    call(data_dir, url, token, executed)


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

    writing = asyncio.create_task(write())
    try:
        return (await attached.follow()).status
    finally:
        writing.cancel()
