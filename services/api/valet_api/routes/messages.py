"""The conversation: prompts, messages, answers, stopping a turn."""

from typing import Annotated

from litestar import Router, get, post
from litestar.openapi.spec import Example
from litestar.params import Body, Parameter
from valet_protocol.errors import BadRequest
from valet_protocol.ids import derived_id, new_id
from valet_protocol.requests import (
    AbortTurn,
    Accepted,
    AnswerQuestion,
    Done,
    ListMessages,
    MessagePage,
    SubmitPrompt,
)

from valet_api import limits, models
from valet_api.attachments import Attachments
from valet_api.auth import signed_in
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.prompts import checked_content
from valet_api.routes.bodies import After, IdempotencyKey, NewAnswer, NewMessage, SessionId, json_only, text
from valet_api.routes.nesting import Nested
from valet_api.routes.sessions import Asking


@post(
    "/messages",
    operation_id="sendMessage",
    summary="Give the agent a prompt",
    guards=[json_only],
    responses=responses(400, 403, 404, 409, 413, 415, 422, 429),
    opt={"repeatable": True},
    status_code=202,
)
async def send_message(
    request: Asking,
    ledger: Ledger,
    model_list: models.ModelList,
    attached: Attachments,
    session_id: SessionId,
    data: Annotated[
        NewMessage,
        Body(
            examples=[
                Example(summary="A prompt", value={"content": "Fix the failing test."}),
                Example(summary="Into the running turn", value={"content": "Leave the API alone.", "mode": "steer"}),
                Example(
                    summary="Another model, and what to do without it",
                    value={"content": "Go on.", "model": "openai/gpt-5.5", "fallbacks": ["google/gemini-2.5-pro"]},
                ),
                Example(summary="A command line", value={"content": "git log --oneline -5", "kind": "shell"}),
                Example(summary="A review", value={"kind": "review"}),
            ]
        ),
    ],
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Once this is answered the prompt is in the log and is never lost. `seq` is its place; follow from there."""
    person = request.user
    content = checked_content(data)
    command = SubmitPrompt(
        session_id=session_id,
        user=person.user,
        prompt_id=derived_id("prompt", session_id, idempotency_key) if idempotency_key else new_id(),
        content=content,
        kind=data.kind,
        mode=data.mode,
        channel=data.channel or "web:default",
        model=models.checked_model(model_list, data.model) if data.model is not None else None,
        fallbacks=[models.checked_model(model_list, model) for model in data.fallbacks],
        variant=data.variant,
        attachments=await attached.named(session_id, data.attachments),
        author_name=person.display_name or person.name,
        author_email=person.email or "",
        idempotency_key=idempotency_key,
    )
    return await ledger.ask(command, Accepted)


@get("/messages", operation_id="listMessages", summary="Read the conversation", responses=responses(400, 404))
async def list_messages(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    limit: Annotated[int, Parameter(ge=1, le=limits.PAGE_MESSAGES)] = 100,
    after: After = 0,
    nested: Nested = False,
    conversation: Annotated[
        str | None,
        Parameter(
            description="Only the messages of this sub-agent, as the `conversation` of its tool call names it.",
            max_length=limits.ID_CHARACTERS,
        ),
    ] = None,
) -> MessagePage:
    """Messages in order, a page at a time; pictures and channel replies are parts of theirs.

    A sub-agent's messages stand between the others, with its conversation as `parent_session`, or, `nested`, under the
    tool call that started it.
    """
    query = ListMessages(
        session_id=session_id,
        user=request.user.user,
        limit=limit,
        after=after,
        nested=nested,
        conversation=text(conversation, "conversation") if conversation is not None else None,
    )
    return await ledger.ask(query, MessagePage)


@post(
    "/answer",
    operation_id="answerQuestion",
    summary="Answer what the agent asked",
    guards=[json_only],
    responses=responses(400, 403, 404, 409, 413, 415, 422),
    status_code=200,
)
async def answer_question(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    data: Annotated[
        NewAnswer,
        Body(
            examples=[
                Example(summary="The only open question", value={"answer": "Yes"}),
                Example(summary="A set of two", value={"question_id": "que_1", "answers": [["A"], ["B", "C"]]}),
            ]
        ),
    ],
    idempotency_key: IdempotencyKey = None,
) -> Done:
    """The first answer wins, from wherever it comes."""
    if (data.answers is None) == (data.answer is None):
        raise BadRequest(
            "bad_answer",
            'Send either "answers": [["…"]], a list for each question, or "answer": "…", a text; neither may be null.',
        )
    answers = data.answers if data.answers is not None else [[data.answer or ""]]
    if not answers:
        raise BadRequest("bad_answer", '"answers" is empty; it has a list for each question of the set.')
    for value in (data.question_id or "", *(label for labels in answers for label in labels)):
        text(value, "answers")
    command = AnswerQuestion(
        session_id=session_id, user=request.user.user, question_id=data.question_id, answers=answers
    )
    return await ledger.ask(command, Done)


@post(
    "/abort",
    operation_id="abortTurn",
    summary="Stop the running turn",
    responses=responses(403, 404, 409),
    status_code=202,
)
async def abort_turn(
    request: Asking, ledger: Ledger, session_id: SessionId, idempotency_key: IdempotencyKey = None
) -> Done:
    """The turn ends as `interrupted` within seconds; what the agent has done stays."""
    command = AbortTurn(session_id=session_id, user=request.user.user)
    return await ledger.ask(command, Done)


router = Router(
    "/api/sessions/{session_id:str}",
    guards=[signed_in],
    route_handlers=[send_message, list_messages, answer_question, abort_turn],
    tags=["messages"],
)
