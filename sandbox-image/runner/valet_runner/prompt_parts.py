"""What a prompt is made of when it is handed to OpenCode."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from valet_protocol.events.facts import Attachment


class TextInput(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="text", omit_defaults=True):
    """Text."""

    text: str
    synthetic: bool = False
    """Whether it is not the person's own."""


class FileInput(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="file"):
    """A file of the workspace or the home; OpenCode reads it when it gets the prompt."""

    mime: str
    url: str
    """`file://…`."""
    filename: str


InputPart = TextInput | FileInput


class AttachmentSource(Protocol):
    """Fetches what came with a prompt."""

    async def parts(self, attachments: list[Attachment], *, model: str | None = None) -> Sequence[InputPart]: ...


async def of_prompt(
    source: AttachmentSource, text: str, attachments: list[Attachment], *, model: str | None = None
) -> list[InputPart]:
    """A prompt's text and its files, for a model (`provider/model`)."""
    return [TextInput(text=text), *(await source.parts(attachments, model=model) if attachments else [])]
