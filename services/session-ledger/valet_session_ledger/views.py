"""From rows of the read models to the views of `valet_protocol.requests`. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
from valet_protocol.codec import rfc3339
from valet_protocol.events.agent import AgentError, FileChange, Question, TodoItem, Tokens
from valet_protocol.requests import (
    DiffView,
    MessageView,
    PartView,
    PromptView,
    QuestionView,
    SessionView,
    TurnView,
)

Record = Mapping[str, Any]

_object = msgspec.json.Decoder(dict[str, object])
_tokens = msgspec.json.Decoder(Tokens)
_error = msgspec.json.Decoder(AgentError)
_files = msgspec.json.Decoder(list[FileChange])
_questions = msgspec.json.Decoder(list[Question])
_answers = msgspec.json.Decoder(list[list[str]])
_todos = msgspec.json.Decoder(list[TodoItem])


def session(
    row: Record,
    *,
    active_turn: TurnView | None,
    last_turn: TurnView | None,
    queued: list[PromptView],
    questions: list[QuestionView],
    todos: list[TodoItem],
) -> SessionView:
    """A row of `sessions` with the sums of its usage, and what belongs to it."""
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
        seq=row["seq"],
    )


def turn(row: Record) -> TurnView:
    """A row of `turns` with the sums of its usage, which count when its runner did not end it."""
    return TurnView(
        turn_id=row["turn_id"],
        prompt_id=row["prompt_id"] or "",
        status=row["status"],
        error=None if row["error"] is None else _error.decode(row["error"]),
        cost=row["used_cost"] if row["cost"] is None else row["cost"],
        tokens=_used(row) if row["tokens"] is None else _tokens.decode(row["tokens"]),
        started_at=_time(row["started_ms"]),
        ended_at=_time(row["ended_ms"]),
        first_token_ms=row["first_token_ms"],
        seq=row["seq"],
    )


def prompt(row: Record) -> PromptView:
    """A row of `prompts`."""
    return PromptView(
        prompt_id=row["prompt_id"],
        content=row["content"],
        author=row["author"],
        mode=row["mode"],
        seq=row["first_seq"],
    )


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
        seq=row["first_seq"],
    )


def message(row: Record, parts: list[PartView]) -> MessageView:
    """A row of `messages`. While it is not complete its text is that of the parts that are."""
    text = row["text"]
    if text is None:
        text = "\n\n".join(item.text for item in parts if item.kind == "text" and item.text)
    return MessageView(
        id=row["message_id"],
        role=row["role"],
        turn_id=row["turn_id"],
        author=row["author"],
        text=text,
        parts=parts,
        finish=row["finish"],
        model=row["model"],
        cost=row["cost"] or 0.0,
        tokens=Tokens() if row["tokens"] is None else _tokens.decode(row["tokens"]),
        error=None if row["error"] is None else _error.decode(row["error"]),
        parent_session=row["parent_session"],
        complete=row["complete"],
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


def no_diff() -> DiffView:
    """The diff of a session that has changed nothing yet."""
    return DiffView(base_commit=None, head_commit=None, branch=None, files=[], patch="", truncated=False, seq=0)


def todos(items: str | None) -> list[TodoItem]:
    """The to-do list of a session, empty when there is none."""
    return [] if items is None else _todos.decode(items)


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
