"""ttyd's wire protocol, as its own clients speak it (subprotocol `tty`). Pure.

The first message of a client is a JSON object. Every other message begins with one character that says what it is.
"""

import msgspec

from valet_gateway import limits

SUBPROTOCOL = "tty"


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Of a terminal, in characters."""

    columns: int = limits.TERMINAL_COLS
    rows: int = limits.TERMINAL_ROWS

    def sane(self) -> "Size":
        """Within what a screen can be."""
        return Size(
            columns=min(max(self.columns, 1), limits.TERMINAL_SIDE_MAX),
            rows=min(max(self.rows, 1), limits.TERMINAL_SIDE_MAX),
        )


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    marked: bool = False


class Input(msgspec.Struct, frozen=True):
    """Keys."""

    data: bytes


class Pause(msgspec.Struct, frozen=True):
    """Send no output until told, or go on."""

    paused: bool


Said = Input | Size | Pause | None


def hello(message: bytes) -> Size | None:
    """The size in a client's first message; none if it is no such message. Its token is not looked at: who comes was
    judged before the WebSocket was accepted."""
    try:
        return msgspec.json.decode(message, type=Size).sane()
    except msgspec.MsgspecError:
        return None


def wants_mark(message: bytes) -> bool:
    """Whether a client's first message asks to be told where the recent output ends that comes first (`history_ends`).
    Our page does, ttyd's own clients do not."""
    try:
        return msgspec.json.decode(message, type=_Wishes).marked
    except msgspec.MsgspecError:
        return False


def said(message: bytes) -> Said:
    """What a client says; none for what is not understood, which is left out."""
    match message[:1]:
        case b"0":
            return Input(message[1:])
        case b"1":
            return hello(message[1:])
        case b"2":
            return Pause(True)
        case b"3":
            return Pause(False)
        case b"{":
            return hello(message)
        case _:
            return None


def output(data: bytes) -> bytes:
    """Output of the terminal."""
    return b"0" + data


def history_ends() -> bytes:
    """All output so far was there before the client came. Of ours; sent only to clients that ask."""
    return b"h"


def title(text: str) -> bytes:
    """The window's title."""
    return b"1" + text.encode()


def preferences() -> bytes:
    """Wishes for the client's terminal: none, it is the person's."""
    return b"2{}"
