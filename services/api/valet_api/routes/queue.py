"""Prompts that wait, and what became of those that did."""

from typing import Annotated

from litestar import Router, delete, get, patch, post
from litestar.openapi.spec import Example
from litestar.params import Body, Parameter
from valet_protocol.errors import Unprocessable
from valet_protocol.requests import Done, EditPrompt, ListPrompts, PromptPage, ReorderQueue, WithdrawPrompt

from valet_api import limits
from valet_api.auth import signed_in
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.routes.bodies import After, IdempotencyKey, NewOrder, PromptChange, SessionId, json_only, text
from valet_api.routes.sessions import Asking

PromptId = Annotated[str, Parameter(description="The prompt's id, as it was given when it was accepted.")]


@get("/prompts", operation_id="listPrompts", summary="List the prompts", responses=responses(400, 404))
async def list_prompts(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    limit: Annotated[int, Parameter(ge=1, le=limits.PAGE_PROMPTS)] = 100,
    after: After = 0,
) -> PromptPage:
    """Every prompt that was ever accepted, and what became of it."""
    query = ListPrompts(session_id=session_id, user=request.user.user, limit=limit, after=after)
    return await ledger.ask(query, PromptPage)


@patch(
    "/prompts/{prompt_id:str}",
    operation_id="editPrompt",
    summary="Give a waiting prompt another text",
    guards=[json_only],
    responses=responses(400, 403, 404, 409, 413, 415, 422),
)
async def edit_prompt(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    prompt_id: PromptId,
    data: Annotated[PromptChange, Body(examples=[Example(summary="Another text", value={"content": "Fix both."})])],
) -> Done:
    """One that waits no more is refused with `not_waiting`."""
    if not data.content.strip():
        raise Unprocessable("empty_prompt", "The prompt would be empty; withdraw it instead (DELETE).")
    content = text(data.content, "content")
    command = EditPrompt(
        session_id=session_id, user=request.user.user, prompt_id=text(prompt_id, "prompt_id"), content=content
    )
    return await ledger.ask(command, Done)


@delete(
    "/prompts/{prompt_id:str}",
    operation_id="withdrawPrompt",
    summary="Take a waiting prompt back",
    responses=responses(403, 404, 409),
    status_code=200,
)
async def withdraw_prompt(request: Asking, ledger: Ledger, session_id: SessionId, prompt_id: PromptId) -> Done:
    """It never becomes a turn. One that waits no more is refused with `not_waiting`."""
    command = WithdrawPrompt(session_id=session_id, user=request.user.user, prompt_id=text(prompt_id, "prompt_id"))
    return await ledger.ask(command, Done)


@post(
    "/queue",
    operation_id="reorderQueue",
    summary="Reorder the waiting prompts",
    guards=[json_only],
    responses=responses(400, 403, 404, 409, 413, 415, 422),
    status_code=200,
)
async def reorder_queue(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    data: Annotated[
        NewOrder,
        Body(examples=[Example(summary="This one first", value={"prompt_ids": ["01K9XQ5V7R8B3T6D2M4N0P1S9Z"]})]),
    ],
    idempotency_key: IdempotencyKey = None,
) -> Done:
    """Those not named keep their order behind the named ones; a prompt that waits no more is passed over. With one that
    was never given to the session nothing is changed."""
    for prompt_id in data.prompt_ids:
        text(prompt_id, "prompt_ids")
    command = ReorderQueue(session_id=session_id, user=request.user.user, prompt_ids=data.prompt_ids)
    return await ledger.ask(command, Done)


router = Router(
    "/api/sessions/{session_id:str}",
    guards=[signed_in],
    route_handlers=[list_prompts, edit_prompt, withdraw_prompt, reorder_queue],
    tags=["queue"],
)
