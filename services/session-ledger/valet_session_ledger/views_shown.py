"""Pictures and channel replies among a message's parts, and sub-agents under the tool calls that started them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from valet_protocol.events.machine import ChannelReplied, ImageShown
from valet_protocol.requests import ImageView, MessageView, PartView

Record = Mapping[str, Any]
Call = tuple[str, str]
"""A tool call: its message and its part."""

_image = msgspec.json.Decoder(ImageShown)
_reply = msgspec.json.Decoder(ChannelReplied)

_END = (1 << 63) - 1
"""Above every sequence."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """What a sub-agent did for one tool call: its messages above a sequence and up to another one."""

    call: Call
    conversation: str
    above: int
    until: int


# -- pictures and channel replies ------------------------------------------------------------------------------


def images_sent(row: Record) -> list[str]:
    """The pictures that go with a row of `turn_parts`."""
    return _reply.decode(row["data"]).image_ids if row["kind"] == "channel_reply" else []


def image(session_id: str, row: Record) -> ImageView:
    """A picture of `turn_parts`. A fork's is asked of the fork, wherever it lies: who sees the fork may see no more."""
    shown = _image.decode(row["data"])
    url = _url(session_id, row["part_id"])
    return ImageView(image_id=shown.image_id, url=url, media_type=shown.media_type, bytes=shown.bytes)


def part(session_id: str, row: Record, images: Mapping[str, ImageView]) -> PartView:
    """A row of `turn_parts`. `images` are those that go with it, as far as they are known."""
    if row["kind"] == "image":
        return PartView(
            part_id=row["part_id"],
            kind="image",
            text=_image.decode(row["data"]).caption or None,
            images=[image(session_id, row)],
            seq=row["first_seq"],
        )
    said = _reply.decode(row["data"])
    sent = [images.get(key) or ImageView(image_id=key, url=_url(session_id, key)) for key in said.image_ids]
    return PartView(
        part_id=row["part_id"],
        kind="channel_reply",
        text=said.text,
        channel=said.channel,
        images=sent,
        seq=row["first_seq"],
    )


def placed(parts: list[PartView], new: PartView) -> list[PartView]:
    """The parts of a message with another one behind the last that the log had told of by then."""
    at = next((index + 1 for index in reversed(range(len(parts))) if parts[index].seq < new.seq), 0)
    return [*parts[:at], new, *parts[at:]]


def _url(session_id: str, image_id: str) -> str:
    """What a sandbox says becomes no other path: its ids have neither dots nor slashes."""
    return f"/api/sessions/{session_id}/images/{quote(image_id.replace('.', '_'), safe='')}"


# -- sub-agents ------------------------------------------------------------------------------------------------


def spans(calls: Sequence[Record]) -> list[Span]:
    """From rows of `calls_of`, in the order of the log. What a sub-agent does belongs to the latest call to it."""
    found: list[Span] = []
    later: dict[str, int] = {}
    first = {row["conversation"]: row["first_seq"] for row in reversed(calls)}
    for row in reversed(calls):
        conversation, seq = row["conversation"], row["first_seq"]
        above = 0 if seq == first[conversation] else seq
        call = (row["message_id"], row["part_id"])
        found.append(Span(call=call, conversation=conversation, above=above, until=later.get(conversation, _END)))
        later[conversation] = seq
    return found[::-1]


def nested(
    items: Sequence[MessageView], said: Mapping[Call, tuple[list[MessageView], int | None]]
) -> list[MessageView]:
    """Messages with what sub-agents said for their tool calls, and from where on there is more of it."""
    return [replace(item, parts=[_with_messages(item.id, part, said) for part in item.parts]) for item in items]


def _with_messages(
    message_id: str, part: PartView, said: Mapping[Call, tuple[list[MessageView], int | None]]
) -> PartView:
    messages, more = said.get((message_id, part.part_id), ([], None))
    if not messages and more is None:
        return part
    return replace(part, messages=nested(messages, said), more=more)
