"""show_image: a picture into the object store and the conversation."""

import asyncio
import base64
import binascii
import hashlib
import os
import stat
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from valet_protocol import ids
from valet_protocol.errors import BadRequest, NotFound, Refused, TooLarge, Unavailable, Unprocessable
from valet_protocol.events.machine import ImageShown
from valet_protocol.sandbox_spec import RunnerSpec
from valet_protocol.tools.other import ImageStored, ShowImage

from valet_runner import attachment_kinds, work_limits
from valet_runner.attachment_kinds import Ends
from valet_runner.objects import Objects
from valet_runner.tools import limits
from valet_runner.tools.running import Answer, Image
from valet_runner.tools.saying import Say, store
from valet_runner.work_errors import ObjectError, ObjectMissing, ObjectsUnavailable

T = TypeVar("T")


_NOT_SEEN = "People see the picture now; this session's model takes no pictures, so you do not."


class Images:
    """Answers the tool."""

    def __init__(self, spec: RunnerSpec, objects: Objects, say: Say) -> None:
        self._objects = objects
        self._say = say
        self._workspace = Path(spec.workspace)
        self._to_model = sees(spec)

    async def show(self, request: ShowImage) -> Answer:
        """The object's name follows from the request: a repetition shows what is there already, whatever has become of
        the file."""
        image_id = ids.derived_id(request.session_id, request.request_id, "image")
        name = f"sessions/{request.session_id}/images/{image_id}"
        content = await self._stored(name)
        new = content is None
        if content is None:
            content = await asyncio.to_thread(self._content, request)
        media_type = image_type(content)
        stored = ImageStored(
            image_id=image_id,
            object=name,
            media_type=media_type,
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        if new:
            await self._put(name, content)
        shown = ImageShown(
            turn_id=request.turn_id,
            image_id=image_id,
            object=stored.object,
            media_type=media_type,
            bytes=stored.bytes,
            sha256=stored.sha256,
            caption=request.caption or "",
        )
        await store(self._say, shown, once=request)
        if not self._to_model:
            return Answer(reply=stored, note=_NOT_SEEN)
        return Answer(reply=stored, image=Image(media_type=media_type, content=content))

    def _content(self, request: ShowImage) -> bytes:
        if (request.path is None) == (request.data is None):
            raise BadRequest("bad_field", "path: give either path or data.")
        if request.path is not None:
            return read_file(self._workspace, request.path)
        try:
            content = base64.b64decode(request.data or "", validate=True)
        except binascii.Error as error:
            raise BadRequest("bad_field", f"data: this is not base64: {error}.") from error
        if len(content) > limits.IMAGE_BYTES:
            raise too_large("data")
        return content

    async def _stored(self, name: str) -> bytes | None:
        with tempfile.NamedTemporaryFile(prefix="valet-image-") as file:
            path = Path(file.name)
            try:
                await _patiently(lambda: self._objects.get(name, path, limit=limits.IMAGE_BYTES))
            except ObjectMissing:
                return None
            return await asyncio.to_thread(path.read_bytes)

    async def _put(self, name: str, content: bytes) -> None:
        with tempfile.NamedTemporaryFile(prefix="valet-image-") as file:
            path = Path(file.name)
            await asyncio.to_thread(path.write_bytes, content)
            await _patiently(lambda: self._objects.put(name, path))


def sees(spec: RunnerSpec) -> bool:
    """Whether the session's model takes pictures. One that does not would be told by OpenCode to report an error to
    people in the place of the picture (1.18.33). Of built-in providers' models OpenCode knows it itself. Pure."""
    return attachment_kinds.takes("image", spec.providers, spec.model)


def read_file(workspace: Path, named: str) -> bytes:
    """A file's content. Raises `Refused` for what is not a file below the workspace, or is too large."""
    path = inside(workspace, named)
    try:
        # never waits for a pipe's writer, and follows no link that was put there since
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unprocessable("not_a_file", f"path: {named} is not a file.")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(limits.IMAGE_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NotFound("file_not_found", f"path: {named} cannot be read: {error.strerror}.") from error
    if len(content) > limits.IMAGE_BYTES:
        raise too_large("path")
    return content


def inside(workspace: Path, named: str) -> Path:
    """The real path of a file below the workspace. Raises `Refused` for one that is elsewhere."""
    if "\0" in named:
        raise BadRequest("bad_field", "path: a path has no zero characters.")
    root = workspace.resolve()
    path = (root / named).resolve()
    if not path.is_relative_to(root):
        raise Unprocessable("outside_workspace", f"path: {named} is not below {root}; copy the file there first.")
    return path


def image_type(content: bytes) -> str:
    """The media type, by content. Raises `Unprocessable` for what is no whole picture."""
    ends = Ends(head=content[: work_limits.LOOK_BYTES], tail=content[-work_limits.LOOK_BYTES :], size=len(content))
    kind, media_type = attachment_kinds.look("", ends)
    if kind != "image":
        raise Unprocessable("not_an_image", "This is no whole PNG, JPEG, GIF or WebP picture.")
    return media_type


def too_large(field: str) -> Refused:
    """The refusal of a picture that is."""
    return TooLarge("image_too_large", f"{field}: a picture may have {limits.IMAGE_BYTES >> 20} MB; make it smaller.")


async def _patiently(action: Callable[[], Awaitable[T]]) -> T:
    """Again and again while the object store is away; the call's time-out ends it. Raises `ObjectMissing`, and
    `Unavailable` for any other refusal."""
    while True:
        try:
            return await action()
        except ObjectsUnavailable:
            await asyncio.sleep(work_limits.RETRY_WAIT)
        except ObjectMissing:
            raise
        except ObjectError as error:
            raise Unavailable("not_stored", f"The picture could not be stored: {error}.") from error
