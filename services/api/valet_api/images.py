"""Pictures that agents show: content of an agent's making, so what it is is looked at and not believed."""

from collections.abc import AsyncIterator

import msgspec
from valet_protocol.errors import NotFound, Unavailable
from valet_service.object_store import ObjectNotFound, ObjectStore, ObjectStoreUnavailable, is_name

from valet_api import streams
from valet_api.attachments import ANYTHING

_KINDS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A picture, about to be sent."""

    media_type: str
    """Of a picture that browsers show; else `application/octet-stream`."""
    size: int
    """Bytes."""
    content: AsyncIterator[bytes]


def media_type(beginning: bytes) -> str:
    """What a file is, by its first bytes. SVG is none of these: it is a document that can hold scripts. Pure."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _KINDS if beginning.startswith(start)), ANYTHING)


class Images:
    """The pictures in the object store; the runner puts them there."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def open(self, session_id: str, image_id: str) -> Image:
        """A picture that lies with a session. Raises `NotFound` and `Unavailable`."""
        name = f"sessions/{session_id}/images/{image_id}"
        try:
            if not is_name(name):
                raise ObjectNotFound(name)
            size = (await self._objects.stat(name)).bytes
            first, content = await streams.opened(self._objects.get(name))
        except ObjectNotFound as error:
            raise NotFound("image_not_found", f"This session has no image {image_id[:40]!r}.") from error
        except ObjectStoreUnavailable as error:
            raise Unavailable("images_unavailable", "Images cannot be reached at the moment; try again.") from error
        return Image(media_type=media_type(first), size=size, content=content)
