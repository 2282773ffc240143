"""Channels: where people talk with the agent besides the session's page, e.g. a Slack thread."""

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import Tool


class ChannelView(Reply, frozen=True, kw_only=True):
    """A channel of this session."""

    channel: str
    """e.g. `web:default`, `slack:C123:17.2`."""
    title: str = ""
    """In words."""
    last_used_at: str | None = None
    """RFC 3339."""


class ChannelList(Reply, frozen=True, kw_only=True):
    """The channels from which this session was spoken to."""

    items: list[ChannelView]


class ListChannels(Tool, frozen=True, kw_only=True):
    """List the channels from which people have spoken to this session, the one used last first."""

    name = method = "list_channels"
    category = "channels"
    route = "GET /api/channels"
    reply = ChannelList


class ChannelReplySent(Reply, frozen=True, kw_only=True):
    """It is in the session's log and cannot be lost; the channel's service delivers it."""

    reply_id: str
    """Made from this call's `request_id`."""
    channel: str


class ChannelReply(Tool, frozen=True, kw_only=True):
    """Say something in a channel on your own.

    Your answer to a prompt goes back to where the prompt came from by itself; use this to say something while you are
    still at work, or in another channel.
    """

    name = method = "channel_reply"
    category = "channels"
    route = "POST /api/channel-reply"
    reply = ChannelReplySent
    served_by = "runner"

    channel: limits.Name
    """`<kind>:<where>`, as list_channels and the prompts name it, e.g. `slack:C123:17.2`."""
    text: limits.Text
    """What to say, in Markdown."""
    image_ids: list[limits.Id] = []
    """Pictures to go with it, as show_image named them."""
