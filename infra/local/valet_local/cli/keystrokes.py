"""Standard input as it is typed or piped, for a program elsewhere; the terminal in raw mode meanwhile."""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Callable, Iterator

from valet_local.cli import limits
from valet_local.cli.sandbox_access import TerminalSize


def size() -> TerminalSize:
    """Of our terminal; the usual one where there is none."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return TerminalSize(rows=24, cols=80)
    return TerminalSize(rows=max(found.lines, 1), cols=max(found.columns, 1))


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Every key as it is pressed, Ctrl-C too: what it means is decided where it arrives."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def on_signal(number: signal.Signals, action: Callable[[], None]) -> Iterator[None]:
    """Do that for every such signal."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)


async def pieces() -> AsyncIterator[bytes]:
    """Standard input until its end.

    Read in a thread that nobody waits for: a file cannot be waited for otherwise, and a read from a terminal cannot
    be taken back when the program at the other end is over.
    """
    loop = asyncio.get_running_loop()
    read: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(limits.INPUT_PIECES)

    def reading() -> None:
        descriptor = sys.stdin.fileno()
        piece = b"-"
        while piece:
            room.acquire()
            try:
                piece = os.read(descriptor, limits.INPUT_BYTES)
            except OSError:  # a terminal that is gone, a directory: as good as the end
                piece = b""
            try:
                loop.call_soon_threadsafe(read.put_nowait, piece)
            except RuntimeError:  # the loop is closed, and nobody reads any more
                return

    threading.Thread(target=reading, daemon=True).start()
    while piece := await read.get():
        yield piece
        room.release()
