"""Pictures that the agent shows, and what it says in channels by itself. Pure."""

from collections.abc import Iterable

from valet_protocol.events import machine

from valet_local.cli.pieces import Span, one_line, printable
from valet_local.cli.transcript import Rendered, Transcript, lines

BELOW = Span("  │ ", "dim")
"""Before what a sub-agent says and does, below the call that started it."""


def image(url: str, media_type: str, size: int, caption: str) -> tuple[Span, ...]:
    """A picture in one line: what is to be seen, and where."""
    kind = f"  {media_type.removeprefix('image/')}, {size:,} bytes" if media_type else ""
    return (Span(f"▣ {one_line(caption, 400) or 'a picture'}", "strong"), Span(f"{kind}  {one_line(url, 200)}", "dim"))


def reply(channel: str, text: str, images: Iterable[str]) -> list[tuple[Span, ...]]:
    """What was said in a channel."""
    said = [(Span(f"  {line}"),) for line in printable(text).strip("\n").split("\n")]
    with_it = [(Span(f"  ▣ {one_line(url, 200)}", "dim"),) for url in images]
    return [(Span(f"→ {one_line(channel)}", "strong"), Span("  said there:", "dim")), *said, *with_it]


def image_shown(state: Transcript, data: machine.ImageShown) -> Rendered:
    return lines(state, "shown", image(f"/api/{data.object}", data.media_type, data.bytes, data.caption))


def channel_replied(state: Transcript, data: machine.ChannelReplied) -> Rendered:
    return lines(state, "shown", *reply(data.channel, data.text, (f"picture {key}" for key in data.image_ids)))


RENDERERS = {
    machine.ImageShown: image_shown,
    machine.ChannelReplied: channel_replied,
}
