"""Pictures that agents show in the conversation."""

from typing import Annotated

from litestar import Router, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter
from litestar.response import Stream
from valet_protocol.errors import NotFound
from valet_protocol.requests import FindImage, GetSession, ImagePlace, SessionView

from valet_api.attachments import ANYTHING
from valet_api.auth import signed_in
from valet_api.images import Images
from valet_api.ledger import Ledger
from valet_api.problems import responses
from valet_api.routes.bodies import SessionId
from valet_api.routes.sessions import Asking


@get(
    "/images/{image_id:str}",
    operation_id="getImage",
    summary="Look at a picture",
    responses={
        **responses(404),
        200: ResponseSpec(bytes, description="The picture.", media_type="image/*", generate_examples=False),
    },
)
async def get_image(
    request: Asking,
    ledger: Ledger,
    images: Images,
    session_id: SessionId,
    image_id: Annotated[str, Parameter(description="As `agent.image_shown` says.")],
) -> Stream:
    """PNG, JPEG, GIF or WebP; whatever else it turns out to be comes as a download. A fork has those of its source."""
    user = request.user.user
    await ledger.ask(GetSession(session_id=session_id, user=user), SessionView)
    try:
        image = await images.open(session_id, image_id)
    except NotFound:
        query = FindImage(session_id=session_id, user=user, image_id=image_id)
        place = await ledger.ask(query, ImagePlace)
        image = await images.open(place.session_id, image_id)
    headers = {
        "Content-Length": str(image.size),
        "Content-Disposition": "attachment" if image.media_type == ANYTHING else "inline",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return Stream(image.content, media_type=image.media_type, headers=headers)


router = Router("/api/sessions/{session_id:str}", guards=[signed_in], route_handlers=[get_image], tags=["sandbox"])
