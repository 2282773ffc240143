"""What a run writes down, and all that the checker gets: the history."""

from typing import Literal

import msgspec

FaultKind = Literal["kill", "pause", "cut", "freeze"]
ActKind = Literal[
    "prompt",
    "collect",
    "steer",
    "ask",
    "abort",
    "edit",
    "withdraw",
    "reorder",
    "revert",
    "unrevert",
    "shell",
    "note",
    "spawn",
    "fork",
    "terminate",
    "answer",
]


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the stream has it."""

    seq: int
    session_id: str
    id: str
    type: str
    """`<source>.<event>`, as the subject says."""
    turn: str | None = None
    epoch: int | None = None
    data: dict[str, object] = {}


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a client got it."""

    seq: int
    id: str
    type: str
    at: float
    """Seconds since the run began."""
    connection: int
    """Of the client's connections, counted from 0."""
    part: str = ""
    """Of a delta or a completed text: the part."""
    offset: int = 0
    text: str = ""


class ClientRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one client got of one session, as it came."""

    name: str
    session_id: str
    received: list[Received]
    connections: int


class ActRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a client made, and its last answer."""

    at: float
    session_id: str
    client: str
    kind: ActKind
    method: str
    path: str
    status: int | None
    """None when no answer came at all."""
    attempts: int
    about: str = ""
    """The question that was answered, the prompt that was changed."""
    answer: dict[str, object] = {}
    took: float = 0.0


class FaultRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, and how long its victim needed afterwards."""

    number: int
    kind: FaultKind
    target: str
    began: float
    ended: float
    """Of a pause or freeze, when it was over."""
    session_id: str = ""
    recovered: float | None = None
    """Seconds from its end to the first useful answer; none where that is not measured or never came."""
    alone: bool = True
    """Whether no other fault fell into it or its recovery."""
    missed: str = ""
    """Why it could not be carried out: there was no such process at that moment."""
    gave_up: bool = False
    """Whether its recovery was waited for in vain."""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session at the end, as the API says it."""

    session_id: str
    status: str
    detail: str
    at_rest: bool
    closing: str = ""
    """What became of its last prompt: a turn's status, or why there is none."""
    unrest: str = ""
    """What it was still waiting for."""
    patch: str = ""
    """Its diff."""
    truncated: bool = False
    prompts: dict[str, str] = {}
    """Prompt → status, where the API lists them."""
    source: str = ""
    """Of a fork: the session it was made from."""


class TerminalConnection(msgspec.Struct, kw_only=True):
    """What came of a process's output over one connection, as it came."""

    asked: int
    """The offset from which on it was asked for."""
    offset: int
    """What the sandbox said the first byte's is."""
    dropped: int
    """And how many it does not have any more."""
    running: bool
    """Whether the process ran when it was connected to."""
    text: str = ""
    ended: int | None = None
    """The offset behind the last byte, if the end was told."""
    refused: bool = False
    """Whether it was refused, although the process runs."""


class TerminalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a terminal that writes numbered lines, as one client saw it."""

    session_id: str
    process_id: str
    connections: list[TerminalConnection]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    stream: list[Stored]
    """The raw log at the end, of the sessions of this run."""
    tapped: list[Stored]
    """Deltas that the raw log had while it ran; those of completed messages are purged."""
    clients: list[ClientRecord]
    acts: list[ActRecord]
    faults: list[FaultRecord]
    sessions: list[SessionRecord]
    terminals: list[TerminalRecord] = []
    memories: list[str] = []
    """What is remembered at the end: the text of each memory."""
    tasks: list[str] = []
    """The title of each task on the board."""
    rebuild: str = ""
    """What `valet ledger rebuild --verify` said against the read models; empty when they are equal."""


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must not be."""

    rule: str
    session_id: str
    seq: int | None
    """Where in the log, if there is such a place."""
    what: str
    """What was expected and what was found."""
