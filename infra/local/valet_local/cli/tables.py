"""Sessions, conversations and diffs as text. Pure."""

from collections.abc import Iterable, Sequence

import msgspec
from valet_protocol.codec import from_rfc3339
from valet_protocol.events.agent import FileChange, GitChanged, ToolUpdated
from valet_protocol.requests import (
    CommandView,
    DiffView,
    MessageView,
    PartView,
    PromptView,
    QuestionView,
    SessionView,
)

from valet_local.cli import render_shown, render_tools, tables_sandbox
from valet_local.cli.pieces import Piece, Span, Style, dollars, one_line, printable
from valet_local.client.bodies import Participants, User

_STATUS: dict[str, Style] = {"busy": "strong", "ready": "good", "failed": "bad", "lost": "bad"}

_PATCH_STYLES: tuple[tuple[str, Style], ...] = (
    ("+++", "strong"),
    ("---", "strong"),
    ("diff ", "strong"),
    ("@@", "hunk"),
    ("+", "added"),
    ("-", "removed"),
)
"""By how a line of a patch begins; the first that fits."""

Cell = Span
"""One field of a table."""


def sessions(views: Iterable[SessionView], now_ms: int) -> tuple[Piece, ...]:
    """A table, newest first as they come."""
    head = tuple(Cell(name, "dim") for name in ("ID", "STATUS", "TITLE", "REPO", "TURNS", "COST", "AGE"))
    rows = [
        (
            Cell(view.id),
            Cell(view.status, _STATUS.get(view.status, "dim")),
            Cell(one_line(view.title, 40) or "–"),
            Cell(_repo_name(view.repo)),
            Cell(str(view.turns)),
            Cell(dollars(view.cost)),
            Cell(age(now_ms - from_rfc3339(view.created_at))),
        )
        for view in views
    ]
    return table((head, *rows)) if rows else ()


def session(view: SessionView) -> tuple[Piece, ...]:
    """What is known of a session, one line per property."""
    tokens = view.tokens
    rows = [
        ("session", Cell(view.id, "strong")),
        ("status", Cell(view.status, _STATUS.get(view.status, "text"))),
        ("title", Cell(one_line(view.title) or "–")),
        ("repository", Cell(one_line(view.repo or "none, an empty workspace"))),
        ("model", Cell(view.model)),
        ("created", Cell(view.created_at)),
        ("turns", Cell(f"{view.turns}, {len(view.queued)} waiting")),
        ("cost", Cell(f"{dollars(view.cost)}, {tokens.input + tokens.cache_read} tokens in, {tokens.output} out")),
        ("last event", Cell(str(view.seq))),
    ]
    if view.sandbox is not None:
        rows += tables_sandbox.rows(view.sandbox)
    if view.branch:
        rows.insert(4, ("branch", Cell(one_line(view.branch))))
    if view.status_detail:
        rows.insert(2, ("why", Cell(printable(view.status_detail).strip(), "bad")))
    return table(tuple((Cell(name, "dim"), cell) for name, cell in rows))


def conversation(messages: Iterable[MessageView]) -> list[Piece]:
    """The messages of a session, a blank line before each."""
    pieces: list[Piece] = []
    for message in messages:
        lines = _message(message)
        if lines:
            pieces += (_line(), *(_line(*spans) for spans in lines))
    return pieces


def _message(message: MessageView) -> list[tuple[Span, ...]]:
    lines: list[tuple[Span, ...]] = []
    if message.reverted:
        lines.append((Span("taken back:", "dim"),))
    if message.role == "user":
        lines += ((Span(f"> {line}", "prompt"),) for line in printable(message.text).rstrip().split("\n"))
        lines += ((Span(f"  with {one_line(file.name)}", "dim"),) for file in message.attachments)
        if message.sender is not None:
            name = one_line(message.sender.title) or "a session"
            lines.append((Span(f"  from the agent of {name} ({message.sender.session_id})", "dim"),))
    for part in message.parts:
        lines += _part(part)
    if message.error is not None:
        lines.append((Span(f"✗ {one_line(message.error.message, 400)}", "bad"),))
    return lines


def questions(views: Iterable[QuestionView]) -> list[Piece]:
    """Questions and permissions that wait, with what can be answered."""
    pieces: list[Piece] = []
    for view in views:
        due = f", until {view.due_at}" if view.due_at else ""
        pieces.append(_line(Span(f"{view.kind} {view.question_id}{due}", "dim")))
        for question in view.questions:
            pieces.append(_line(Span(f"? {one_line(question.question, 400)}", "ask")))
            for number, option in enumerate(question.options, 1):
                about = f" — {one_line(option.description)}" if option.description else ""
                pieces.append(_line(Span(f"  {number}. {one_line(option.label)}"), Span(about, "dim")))
    return pieces


def prompts(views: Iterable[PromptView]) -> tuple[Piece, ...]:
    """Prompts that wait, the next one first."""
    head = tuple(Cell(name, "dim") for name in ("PROMPT", "MODE", "CHANNEL", "TEXT"))
    rows = [
        (Cell(view.prompt_id), Cell(view.mode), Cell(one_line(view.channel, 40)), Cell(one_line(view.content, 80)))
        for view in views
    ]
    return table((head, *rows))


def participants(found: Participants) -> tuple[Piece, ...]:
    """Who takes part, and by which links one may join."""
    head = tuple(Cell(name, "dim") for name in ("WHO", "ROLE", "ID", "HOW"))
    people = [
        (
            Cell(one_line(one.name, 40)),
            Cell(one.role),
            Cell(one.user, "dim"),
            Cell(f"by link {one.link_id}" if one.link_id else "", "dim"),
        )
        for one in found.participants
    ]
    links = [
        (
            Cell("whoever has the link", "dim"),
            Cell(link.role),
            Cell(link.link_id, "dim"),
            Cell(f"until {link.expires_at}" if link.expires_at else "until revoked", "dim"),
        )
        for link in found.links
    ]
    return table((head, *people, *links))


def users(found: Iterable[User]) -> tuple[Piece, ...]:
    """Who may sign in."""
    head = tuple(Cell(name, "dim") for name in ("NAME", "ID", "MAY", "SIGNS COMMITS AS"))
    rows = [
        (
            Cell(one_line(one.name, 63)),
            Cell(one.id, "dim"),
            Cell("administer" if one.admin else "use it"),
            Cell(" ".join(filter(None, (one_line(one.display_name or one.name, 40), one.email and f"<{one.email}>")))),
        )
        for one in found
    ]
    return table((head, *rows))


def command(view: CommandView) -> list[Piece]:
    """How a command went."""
    match view.status:
        case "completed":
            return [_line(Span("✓ done", "good")), *_changed_back(view.result.get("files"))]
        case "requested":
            return [_line(Span(f"It has not happened yet; it will, or time out at {view.due_at}.", "dim"))]
        case "failed" | "timed_out":
            return [_line(Span(f"✗ {one_line(view.error or view.status, 400)}", "bad"))]


def _changed_back(files: object) -> list[Piece]:
    try:
        changes = msgspec.convert(files, list[FileChange])
    except msgspec.ValidationError:
        return []  # the result of another command, or of a later version
    return [_line(Span(f"  {one_line(change.path)}  changed back", "dim")) for change in changes]


def diff(view: DiffView | GitChanged) -> list[Piece]:
    """A patch in colours."""
    pieces: list[Piece] = []
    for line in printable(view.patch).rstrip("\n").split("\n") if view.patch else []:
        pieces.append(_line(Span(line, _patch_style(line))))
    if view.truncated:
        pieces.append(_line(Span("… the rest is left out: the diff is very long", "dim")))
    return pieces


def _patch_style(line: str) -> Style:
    for start, style in _PATCH_STYLES:
        if line.startswith(start):
            return style
    return "text"


def facts(rows: Iterable[tuple[str, str]]) -> tuple[Piece, ...]:
    """Two columns: what, and its value."""
    return table(tuple((Cell(name, "dim"), Cell(value)) for name, value in rows))


def age(milliseconds: int) -> str:
    """How long ago, roughly: `40 s`, `12 min`, `3 h`, `5 d`."""
    seconds = max(0, milliseconds // 1000)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _repo_name(repo: str | None) -> str:
    """The end of a URL or path: what tells repositories apart."""
    return one_line(repo.rstrip("/").rpartition("/")[2].removesuffix(".git"), 30) if repo else "–"


def _part(part: PartView) -> list[tuple[Span, ...]]:
    match part.kind:
        case "tool":
            return [*render_tools.lines(_call(part)), *_sub_agent(part)]
        case "image":
            return [render_shown.image(item.url, item.media_type, item.bytes, part.text or "") for item in part.images]
        case "channel_reply":
            return render_shown.reply(part.channel or "", part.text or "", [item.url for item in part.images])
        case "text" | "reasoning":
            style: Style = "reasoning" if part.kind == "reasoning" else "text"
            rows = printable(part.text or "").strip("\n").split("\n")
            return [(Span(line, style),) for line in rows] if part.text else []


def _sub_agent(part: PartView) -> list[tuple[Span, ...]]:
    """What a sub-agent said and did, below the call that started it."""
    rows = [line for message in part.messages for line in _message(message)]
    if part.more is not None:
        rows.append((Span(f"… what it said after event {part.more} is left out", "dim"),))
    return [(render_shown.BELOW, *row) for row in rows]


def _call(part: PartView) -> ToolUpdated:
    return ToolUpdated(
        message_id="",
        part_id=part.part_id,
        call_id=part.call_id or "",
        tool=part.tool or "tool",
        status=part.status if part.status in ("pending", "running", "completed", "error") else "completed",
        input=part.input or {},
        output=part.output,
        title=part.title,
        error=part.error,
        started_ms=part.started_ms,
        ended_ms=part.ended_ms,
    )


def _line(*spans: Span) -> Piece:
    return Piece(spans=(*spans, Span("\n")))


def table(rows: Sequence[Sequence[Cell]]) -> tuple[Piece, ...]:
    """Columns as wide as their widest cell; nothing is cut, so that a pipe gets everything."""
    widths = [max(len(row[column].text) for row in rows) for column in range(len(rows[0]))]
    pieces: list[Piece] = []
    for row in rows:
        spans = [Span(cell.text.ljust(width + 2), cell.style) for cell, width in zip(row, widths, strict=True)]
        spans[-1] = Span(row[-1].text, row[-1].style)
        pieces.append(_line(*spans))
    return tuple(pieces)
