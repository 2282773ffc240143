"""channel_reply: something said in a channel, into the log; the channel's service delivers it."""

import re

from valet_protocol import ids
from valet_protocol.errors import Unprocessable
from valet_protocol.events.machine import ChannelReplied
from valet_protocol.tools.channels import ChannelReply, ChannelReplySent

from valet_runner.tools.running import Answer
from valet_runner.tools.saying import Say, store

_SHAPE = re.compile(r"[a-z][a-z0-9_-]*:[^\s:][^\s]*")


class ChannelReplies:
    """Answers the tool."""

    def __init__(self, say: Say) -> None:
        self._say = say

    async def reply(self, request: ChannelReply) -> Answer:
        """The reply's id follows from the request: who delivers it does so once."""
        if not is_channel(request.channel):
            raise Unprocessable(
                "unknown_channel",
                f"channel: {request.channel!r} is not one; they look like `web:default` or `slack:C123:17.2`.",
            )
        for image_id in request.image_ids:
            if not ids.is_ulid(image_id):
                raise Unprocessable("unknown_image", f"image_ids: {image_id!r} is not one that show_image gave.")
        reply_id = ids.derived_id(request.session_id, request.request_id, "reply")
        said = ChannelReplied(
            turn_id=request.turn_id,
            reply_id=reply_id,
            channel=request.channel,
            text=request.text,
            image_ids=request.image_ids,
        )
        await store(self._say, said, once=request)
        return Answer(reply=ChannelReplySent(reply_id=reply_id, channel=request.channel))


def is_channel(name: str) -> bool:
    """Whether a name has the shape of a channel: `<kind>:<where>`."""
    return _SHAPE.fullmatch(name) is not None
