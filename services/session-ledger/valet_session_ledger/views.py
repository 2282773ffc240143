"""From rows of the read models to the views of `valet_protocol.requests`. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
from valet_protocol.codec import rfc3339
from valet_protocol.events.agent import AgentError, FileChange, Finding, Question, TodoItem, Tokens, WorkRef
from valet_protocol.events.facts import Attachment, Role, Sender, SessionPolicy
from valet_protocol.requests import (
    CommandView,
    DiffView,
    MessageView,
    ParticipantView,
    PartView,
    PromptView,
    QuestionView,
    ReviewView,
    SessionView,
    ShareLinkView,
    TurnView,
)

from valet_session_ledger.state import DEFAULT_CHANNEL

Record = Mapping[str, Any]

_object = msgspec.json.Decoder(dict[str, object])
_tokens = msgspec.json.Decoder(Tokens)
_error = msgspec.json.Decoder(AgentError)
_files = msgspec.json.Decoder(list[FileChange])
_questions = msgspec.json.Decoder(list[Question])
_answers = msgspec.json.Decoder(list[list[str]])
_attachments = msgspec.json.Decoder(list[Attachment])
_findings = msgspec.json.Decoder(list[Finding])
_policy = msgspec.json.Decoder(SessionPolicy)
_work = msgspec.json.Decoder(WorkRef)
_todos = msgspec.json.Decoder(list[TodoItem])
_sender = msgspec.json.Decoder(Sender)
_ids = msgspec.json.Decoder(list[str])


def session(
    row: Record,
    *,
    active_turn: TurnView | None,
    last_turn: TurnView | None,
    queued: list[PromptView],
    questions: list[QuestionView],
    todos: list[TodoItem],
    commands: list[CommandView],
    role: Role,
) -> SessionView:
    """A row of `sessions` with the sums of its usage, what belongs to it, and the role of whoever asks."""
    return SessionView(
        id=row["session_id"],
        status=row["status"],
        status_detail=row["status_detail"],
        owner=row["owner"],
        title=row["title"],
        repo=row["repo"],
        branch=row["branch"],
        model=row["model"],
        created_at=rfc3339(row["created_ms"]),
        updated_at=rfc3339(row["updated_ms"]),
        epoch=row["epoch"],
        cost=row["cost"],
        tokens=_used(row),
        turns=row["turns"],
        active_turn=active_turn,
        last_turn=last_turn,
        queued=queued,
        questions=questions,
        todos=todos,
        commands=commands,
        policy=SessionPolicy() if row["policy"] is None else _policy.decode(row["policy"]),
        role=role,
        source_session=row["source_session"],
        work=None if row["work"] is None else _work.decode(row["work"]),
        parent=row["parent"],
        ancestors=[] if row["ancestors"] is None else _ids.decode(row["ancestors"]),
        children=row["children"],
        orchestrator=row["orchestrator"],
        completed=row["completed"],
        seq=row["seq"],
    )


def turn(row: Record, *, active: str | None, prompt_ids: list[str], switched: list[str]) -> TurnView:
    """A row of `turns` with the sums of its usage, which count when its runner did not end it.

    `active` is the session's present turn. Another one that never ended is one an import broke off in.
    """
    ended = row["status"] not in ("dispatched", "running") or row["turn_id"] == active
    first = row["model"]
    return TurnView(
        turn_id=row["turn_id"],
        prompt_id=row["prompt_id"] or "",
        status=row["status"] if ended else "interrupted",
        error=error(row),
        cost=row["used_cost"] if row["cost"] is None else row["cost"],
        tokens=_used(row) if row["tokens"] is None else _tokens.decode(row["tokens"]),
        started_at=_time(row["started_ms"]),
        ended_at=_time(row["ended_ms"]),
        first_token_ms=row["first_token_ms"],
        kind=row["kind"] or "prompt",
        channel=row["channel"] or DEFAULT_CHANNEL,
        prompt_ids=prompt_ids,
        models=[*([first] if first else []), *switched],
        seq=row["first_seq"],
    )


def prompt(row: Record, *, active: str | None) -> PromptView:
    """A row of `prompts`. `active` is the session's present turn."""
    done = row["status"] == "dispatched" and row["turn_id"] != active
    return PromptView(
        prompt_id=row["prompt_id"],
        content=row["content"] or "",
        author=row["author"] or "",
        mode=row["mode"] or "queue",
        kind=row["kind"] or "prompt",
        channel=row["channel"] or DEFAULT_CHANNEL,
        model=row["model"] or "",
        attachments=_attached(row),
        status="done" if done else row["status"],
        turn_id=row["turn_id"],
        sender=_sent(row),
        seq=row["first_seq"],
    )


def _sent(prompt: Record) -> Sender | None:
    return None if prompt["sender"] is None else _sender.decode(prompt["sender"])


def _attached(prompt: Record) -> list[Attachment]:
    return [] if prompt["attachments"] is None else _attachments.decode(prompt["attachments"])


def question(row: Record) -> QuestionView:
    """A row of `questions`."""
    return QuestionView(
        question_id=row["question_id"],
        kind=row["kind"] or "question",
        status=row["status"],
        questions=[] if row["questions"] is None else _questions.decode(row["questions"]),
        due_at=_time(row["due_ms"]),
        answers=None if row["answers"] is None else _answers.decode(row["answers"]),
        answered_by=row["answered_by"],
        seq=row["first_seq"],
    )


def part(row: Record) -> PartView:
    """A row of `parts`."""
    return PartView(
        part_id=row["part_id"],
        kind=row["kind"],
        text=row["text"],
        tool=row["tool"],
        call_id=row["call_id"],
        status=row["status"],
        input=None if row["input"] is None else _object.decode(row["input"]),
        output=row["output"],
        title=row["title"],
        error=row["error"],
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        conversation=row["conversation"],
        seq=row["first_seq"],
    )


def message(
    row: Record, parts: list[PartView], *, prompt: Record | None, channel: str | None, reverted: bool
) -> MessageView:
    """A row of `messages`. A person's has what it does not say from its `prompt`; another one's text is, while it is
    not complete, that of the parts that are."""
    text, author = row["text"], row["author"]
    if text is None and prompt is not None:
        text = prompt["content"]
    if text is None:
        text = "\n\n".join(item.text for item in parts if item.kind == "text" and item.text)
    if author is None and prompt is not None:
        author = prompt["author"]
    return MessageView(
        id=row["message_id"],
        role=row["role"],
        turn_id=row["turn_id"],
        author=author,
        text=text,
        parts=parts,
        finish=row["finish"],
        model=row["model"],
        cost=row["cost"] or 0.0,
        tokens=Tokens() if row["tokens"] is None else _tokens.decode(row["tokens"]),
        error=error(row),
        parent_session=row["parent_session"],
        complete=row["complete"],
        channel=channel or DEFAULT_CHANNEL,
        attachments=[] if prompt is None else _attached(prompt),
        sender=None if prompt is None else _sent(prompt),
        reverted=reverted,
        created_at=rfc3339(row["created_ms"]),
        seq=row["first_seq"],
    )


def diff(row: Record) -> DiffView:
    """A row of `diffs`."""
    return DiffView(
        base_commit=row["base_commit"],
        head_commit=row["head_commit"],
        branch=row["branch"],
        files=_files.decode(row["files"]),
        patch=row["patch"],
        truncated=row["truncated"],
        seq=row["seq"],
    )


def turn_diff(row: Record) -> DiffView:
    """A row of `turn_diffs`."""
    return DiffView(
        base_commit=None,
        head_commit=None,
        branch=None,
        files=_files.decode(row["files"]),
        patch=row["patch"],
        truncated=row["truncated"],
        seq=row["seq"],
    )


def no_diff() -> DiffView:
    """The diff of a session that has changed nothing yet."""
    return DiffView(base_commit=None, head_commit=None, branch=None, files=[], patch="", truncated=False, seq=0)


def command(row: Record) -> CommandView:
    """A row of `commands`."""
    return CommandView(
        request_id=row["request_id"],
        command=row["command"],
        status=row["status"],
        result={} if row["result"] is None else _object.decode(row["result"]),
        error=row["error"],
        due_at=rfc3339(row["due_ms"]),
        seq=row["first_seq"],
    )


def review(row: Record) -> ReviewView:
    """A row of `reviews`."""
    return ReviewView(
        turn_id=row["turn_id"], summary=row["summary"], findings=_findings.decode(row["findings"]), seq=row["seq"]
    )


def participant(row: Record) -> ParticipantView:
    """A row of `participants`."""
    return ParticipantView(user=row["user_id"], role=row["role"], link_id=row["link_id"])


def link(row: Record) -> ShareLinkView:
    """A row of `links`."""
    return ShareLinkView(
        link_id=row["link_id"],
        role=row["role"],
        expires_at=_time(row["expires_ms"]),
        created_by=row["created_by"] or "",
    )


def todos(items: str | None) -> list[TodoItem]:
    """The to-do list of a session, empty when there is none."""
    return [] if items is None else _todos.decode(items)


def error(row: Record) -> AgentError | None:
    """The error in a row of `turns` or `messages`."""
    return None if row["error"] is None else _error.decode(row["error"])


def _used(row: Record) -> Tokens:
    return Tokens(
        input=row["input"],
        output=row["output"],
        reasoning=row["reasoning"],
        cache_read=row["cache_read"],
        cache_write=row["cache_write"],
    )


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else rfc3339(time_ms)
