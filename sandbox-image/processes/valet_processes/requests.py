"""What clients ask for, and whether it can be used. Pure."""

import base64
import binascii
import re
import signal
from typing import Literal, TypeVar, cast

import msgspec
from valet_protocol.errors import BadRequest, TooLarge, Unprocessable
from valet_protocol.events.machine import ProcessInfo

from valet_processes import limits

_TAG = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{limits.NAME_CHARS - 1}}}")
_RESERVED = ("proc_", "pty_")

T = TypeVar("T")


class Size(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a terminal, in characters."""

    rows: int
    cols: int


class Create(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Start a program. No shell is involved: for one, ask for `sh` with `-c`."""

    command: str = ""
    args: list[str] = []
    argv: list[str] = []
    """Program and arguments in one list, instead of `command` and `args`."""
    cwd: str | None = None
    """Relative to the workspace; the workspace itself where there is none."""
    env: dict[str, str] = {}
    """Added to the environment every process begins with."""
    tag: str | None = None
    label: str = ""
    pty: Size | None = None
    """Its terminal's size; none for no terminal, with standard output and error apart."""
    session_id: str | None = None
    keep_output: bool = False
    """Whether all of its output is kept, on disk, until its record goes; it is where there is a `session_id`, too."""


class Label(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Show a process under another name."""

    label: str


class Signal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="signal"):
    """Send a signal to all of a process's group."""

    signal: str | int
    """Its name or its number: `SIGINT`, `INT`, `2`."""


class Resize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resize"):
    """Tell a terminal its new size."""

    rows: int
    cols: int


class CloseStdin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="close_stdin"):
    """Nothing more will be written to it; in a terminal, what Ctrl-D does."""


Control = Resize | Signal | CloseStdin
"""A text frame of a connected client."""


class SignalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`Signal` by HTTP."""

    signal: str | int


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Write to a process."""

    data: str | None = None
    data_base64: str | None = None
    """Where it is not text."""
    close: bool = False
    """Whether nothing more will come."""


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which processes to list; what is not given does not matter."""

    status: Literal["running", "exited"] | None = None
    tag: str | None = None
    pty: bool | None = None
    session_id: str | None = None

    def fits(self, process: ProcessInfo) -> bool:
        """Whether it is one of them."""
        return all(
            wanted is None or wanted == found
            for wanted, found in (
                (self.status, process.status),
                (self.tag, process.tag),
                (self.pty, process.pty),
                (self.session_id, process.session_id),
            )
        )


def decode(body: bytes | str, kind: type[T]) -> T:
    """A request's JSON. Raises `BadRequest`, `Unprocessable`."""
    if not body:
        raise BadRequest("bad_json", "The body is empty; it is to be one JSON object")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Unprocessable("bad_value", f"{error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest("bad_json", f"The body is to be one JSON object: {error}") from error


def creation(body: bytes) -> Create:
    """A request for a process, its program in `command` and `args` however it was named. Raises `BadRequest`,
    `Unprocessable`."""
    request = decode(body, Create)
    if not request.argv:
        return request
    if request.command or request.args:
        raise Unprocessable("bad_value", "give either argv, or command and args")
    return msgspec.structs.replace(request, command=request.argv[0], args=request.argv[1:], argv=[])


def control(frame: str) -> Control:
    """A text frame of a connected client. Raises `BadRequest`, `Unprocessable`."""
    return cast(Control, decode(frame, cast(type[object], Control)))


def decode_query(query: dict[str, str], kind: type[T]) -> T:
    """A request's query. Raises `Unprocessable`."""
    try:
        return msgspec.convert(query, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Unprocessable("bad_query", f"{error}") from error


def check(request: Create, *, session_id: str = "") -> None:
    """Whether it can be tried in the sandbox of a session. Raises `Unprocessable`."""
    if not request.command:
        raise Unprocessable(
            "bad_value", "command is empty; name a program, with its arguments in args, or both in argv"
        )
    texts = [request.command, *request.args, request.cwd or "", *request.env, *request.env.values()]
    if any("\0" in text for text in texts):
        raise Unprocessable("bad_value", "command, args, cwd and env cannot hold NUL characters")
    if sum(len(text.encode()) for text in (request.command, *request.args)) > limits.ARGS_BYTES:
        raise Unprocessable(
            "too_long", f"command and args have at most {limits.ARGS_BYTES} bytes together; use a file or the input"
        )
    for name in request.env:
        if not name or "=" in name:
            raise Unprocessable("bad_value", f"{name!r} cannot be the name of an environment variable")
    if request.tag is not None and (not _TAG.fullmatch(request.tag) or request.tag.startswith(_RESERVED)):
        raise Unprocessable(
            "bad_tag",
            f"A tag is 1 to {limits.NAME_CHARS} letters, digits, dots, underscores and hyphens, begins with a letter "
            "or digit, and not with proc_ or pty_",
        )
    if request.session_id is not None and not 0 < len(request.session_id) <= limits.SESSION_CHARS:
        raise Unprocessable("bad_value", f"session_id has 1 to {limits.SESSION_CHARS} characters")
    if request.session_id is not None and session_id and request.session_id != session_id:
        raise Unprocessable(
            "other_session",
            f"session_id is {request.session_id}, but this is the sandbox of session {session_id}; name that one to"
            " show the output to its agent, or leave session_id out",
        )
    check_label(request.label)
    if request.pty:
        check_size(request.pty)


def check_label(label: str) -> None:
    """Whether it fits into a list. Raises `Unprocessable`."""
    if len(label) > limits.LABEL_CHARS:
        raise Unprocessable("bad_value", f"A label has at most {limits.LABEL_CHARS} characters")


def check_size(size: Size | Resize) -> None:
    """Whether a terminal can have it. Raises `Unprocessable`."""
    if not (0 < size.rows <= limits.TERMINAL_MAX and 0 < size.cols <= limits.TERMINAL_MAX):
        raise Unprocessable("bad_size", f"rows and cols are between 1 and {limits.TERMINAL_MAX}")


def input_bytes(request: Input) -> bytes:
    """What is to be written. Raises `Unprocessable`, `TooLarge`."""
    if (request.data is None) == (request.data_base64 is None):
        if request.close and request.data is None:
            return b""
        raise Unprocessable("bad_value", "give either data (text) or data_base64 (bytes)")
    if request.data is not None:
        data = request.data.encode()
    else:
        try:
            data = base64.b64decode(request.data_base64 or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise Unprocessable("bad_value", f"data_base64 is not base64: {error}") from error
    check_input(data)
    return data


def check_input(data: bytes) -> None:
    """Whether it is little enough at once. Raises `TooLarge`."""
    if len(data) > limits.INPUT_BYTES:
        raise TooLarge("input_too_large", f"At most {limits.INPUT_BYTES} bytes at once; send it in pieces")


def signal_number(signal_: str | int) -> signal.Signals:
    """A signal by its number or its name, as `kill` takes it: `9`, `KILL`, `SIGKILL`. Raises `Unprocessable`."""
    try:
        text = str(signal_)
        if text.isascii() and text.isdigit():
            return signal.Signals(int(text))
        return signal.Signals["SIG" + text.upper().removeprefix("SIG")]
    except (KeyError, ValueError):
        raise Unprocessable(
            "bad_signal", f"{signal_!r} is no signal; they are named SIGINT, SIGTERM, SIGKILL, …"
        ) from None


def offset_in(text: str | None, *, end: int) -> int:
    """An `offset` of a query; `end` stands for the end of the output so far. Raises `Unprocessable`."""
    if text is None:
        return 0
    if text == "end":
        return end
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Unprocessable("bad_offset", "offset is a number of bytes, or the word end")
    offset = int(text)
    if offset > end:
        raise Unprocessable(
            "offset_ahead", f"There are only {end} bytes of output; an offset beyond them is not this process's"
        )
    return offset
