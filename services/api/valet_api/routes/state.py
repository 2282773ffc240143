"""Looking closer: turns, what was changed, a review's findings, and the session as it was."""

from typing import Annotated

from litestar import Response, Router, get
from litestar.params import Parameter
from nats.aio.client import Client
from valet_protocol.requests import DiffView, GetDiff, GetReview, GetState, ListTurns, ReviewView, StateView, TurnPage

from valet_api import limits
from valet_api.auth import signed_in
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.routes.bodies import After, SessionId, text
from valet_api.routes.live import within_log
from valet_api.routes.nesting import Nested
from valet_api.routes.sessions import Asking

Turn = Annotated[str | None, Parameter(description="A turn's id.", max_length=limits.ID_CHARACTERS)]

_PATCHES = ("text/x-diff", "text/x-patch", "text/plain")


@get("/turns", operation_id="listTurns", summary="List the turns", responses=responses(400, 404))
async def list_turns(
    request: Asking,
    ledger: Ledger,
    session_id: SessionId,
    limit: Annotated[int, Parameter(ge=1, le=limits.PAGE_TURNS)] = 100,
    after: After = 0,
) -> TurnPage:
    """Turns in order, a page at a time."""
    query = ListTurns(session_id=session_id, user=request.user.user, limit=limit, after=after)
    return await ledger.ask(query, TurnPage)


@get("/diff", operation_id="getDiff", summary="What the session changed", responses=responses(404))
async def get_diff(request: Asking, ledger: Ledger, session_id: SessionId, turn: Turn = None) -> Response[DiffView]:
    """The workspace against the session's base, as of the end of the last turn; with `turn` what that one changed.

    With `Accept: text/x-diff` the patch alone, fit for `git apply`.
    """
    query = GetDiff(session_id=session_id, user=request.user.user, turn_id=_given(turn))
    view = await ledger.ask(query, DiffView)
    accepted = request.headers.get("accept", "")
    if any(kind in accepted for kind in _PATCHES):
        return Response(view.patch, media_type="text/x-diff; charset=utf-8")  # type: ignore[arg-type]
    return Response(view)


@get("/review", operation_id="getReview", summary="The findings of a review", responses=responses(404))
async def get_review(request: Asking, ledger: Ledger, session_id: SessionId, turn: Turn = None) -> ReviewView:
    """Of the latest one, or of `turn`. A review is a prompt of `kind` `review`."""
    query = GetReview(session_id=session_id, user=request.user.user, turn_id=_given(turn))
    return await ledger.ask(query, ReviewView)


@get("/state", operation_id="getState", summary="The session as it was", responses=responses(400, 404, 422))
async def get_state(
    request: Asking,
    ledger: Ledger,
    nc: Client,
    session_id: SessionId,
    at: Annotated[int, Parameter(ge=1, lt=1 << 53, description="Sequence: the state right after this event.")],
    limit: Annotated[int, Parameter(ge=1, le=limits.PAGE_MESSAGES)] = 100,
    after: After = 0,
    nested: Nested = False,
) -> StateView:
    """Everything as of one event: the session and its sandbox, its messages a page at a time, what it had changed.

    `at` of the answer is the session's own event that this is, the last one up to the sequence asked for.
    """
    query = GetState(session_id=session_id, user=request.user.user, at=at, limit=limit, after=after, nested=nested)
    view = await ledger.ask(query, StateView, timeout=limits.STATE_TIMEOUT)
    await within_log(nc, at, view.at, "bad_sequence")
    return view


def _given(turn: str | None) -> str | None:
    return text(turn, "turn") if turn is not None else None


router = Router(
    "/api/sessions/{session_id:str}",
    guards=[signed_in],
    route_handlers=[list_turns, get_diff, get_review, get_state],
    tags=["state"],
)
