"""What came with a prompt: fetched from the object store into the agent's home, as parts of a prompt for OpenCode."""

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from valet_protocol.events.facts import Attachment
from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import logs

from valet_runner import attachment_kinds, transcription, work_limits
from valet_runner.attachment_kinds import Ends
from valet_runner.errors import RunnerError
from valet_runner.objects import Objects
from valet_runner.prompt_parts import FileInput, InputPart, TextInput
from valet_runner.transcription import NotTranscribed
from valet_runner.work_errors import ObjectError, ObjectMissing, ObjectsUnavailable

_log = logs.get(__name__)


class NotFetched(RunnerError):
    """An attachment is not there; the message says why, for people."""


class Attachments:
    """Attachments of one session's prompts, kept in `.valet/attachments/<id>/<name>` of the agent's home."""

    def __init__(self, spec: RunnerSpec, objects: Objects, *, environ: Mapping[str, str] = os.environ) -> None:
        self._spec = spec
        self._objects = objects
        self._environ = environ
        self._folder = Path(spec.home) / ".valet" / "attachments"

    async def parts(self, attachments: list[Attachment], *, model: str | None = None) -> list[InputPart]:
        """All of a prompt's, in order, for a model (`provider/model`; none: one that takes everything). What cannot be
        had, or not in time, is named in a text; nothing raises."""
        until = time.monotonic() + work_limits.ATTACHMENTS_TIMEOUT
        parts: list[InputPart] = []
        for attachment in attachments:
            name = attachment_kinds.safe_name(attachment.name)
            try:
                async with asyncio.timeout(min(work_limits.ATTACHMENT_TIMEOUT, until - time.monotonic())):
                    path = await self._fetch(attachment, name)
                parts += await self._parts(attachment, path, until, model)
            except (NotFetched, ObjectError, OSError, TimeoutError) as error:
                reason = str(error) or "it took too long"
                _log.warning("attachment_not_there", attachment=attachment.attachment_id, reason=reason)
                parts.append(_note(f'The person attached a file, "{name}", but it could not be fetched: {reason}.'))
        return parts

    async def _fetch(self, attachment: Attachment, name: str) -> Path:
        if not attachment_kinds.is_id(attachment.attachment_id):
            raise NotFetched("its id is not one")
        path = self._folder / attachment.attachment_id / name
        if await asyncio.to_thread(_is_whole, path, attachment):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{name}.part")
        try:
            while True:
                try:
                    fetched = await self._objects.get(
                        self._object(attachment), part, limit=work_limits.ATTACHMENT_BYTES
                    )
                    break
                except ObjectsUnavailable as error:
                    _log.info("attachment_fetch_repeats", attachment=attachment.attachment_id, error=str(error))
                    await asyncio.sleep(work_limits.RETRY_WAIT)
            if fetched.sha256 != attachment.sha256:
                raise NotFetched("what is stored is not what was uploaded")
            part.replace(path)
        except ObjectMissing:
            raise NotFetched("it is no longer stored") from None
        finally:
            part.unlink(missing_ok=True)
        return path

    def _object(self, attachment: Attachment) -> str:
        return f"sessions/{self._spec.session_id}/attachments/{attachment.attachment_id}"

    async def _parts(self, attachment: Attachment, path: Path, until: float, model: str | None) -> list[InputPart]:
        kind, mime = attachment_kinds.look(attachment.mime, _ends(path))
        if model is not None and not attachment_kinds.takes(kind, self._spec.providers, model):
            # OpenCode would have the agent report an error to the person
            return [
                _note(
                    f'The person attached a file, "{path.name}" ({mime}). The model that you are ({model}) is not shown'
                    f" such files. It is stored at {path}: use tools on it where they can tell you what you need, and"
                    " tell the person that you have not seen it yourself."
                )
            ]
        match kind:
            case "text" | "image" | "document":
                # OpenCode reads it, and says to the agent where it lies
                return [FileInput(mime=mime, url=path.as_uri(), filename=path.name)]
            case "audio":
                return [await self._spoken(path, until)]
            case "other":
                # a file part of any other type fails the turn (measured)
                return [_note(f'The person attached a file, "{path.name}" ({mime}). It is stored at {path}.')]

    async def _spoken(self, path: Path, until: float) -> TextInput:
        try:
            async with asyncio.timeout(until - time.monotonic()):
                text = await transcription.transcribe(path, self._spec, self._environ)
        except (NotTranscribed, TimeoutError) as error:
            reason = str(error) or "it took too long"
            _log.info("audio_not_transcribed", file=path.name, reason=reason)
            return _note(
                f'The person attached a recording, "{path.name}", that could not be transcribed: {reason}. '
                f"It is stored at {path}."
            )
        return TextInput(text=f'Transcript of the attached recording "{path.name}" (stored at {path}):\n\n{text}')


def _note(text: str) -> TextInput:
    return TextInput(text=text, synthetic=True)


def _is_whole(path: Path, attachment: Attachment) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == attachment.sha256
    return False


def _ends(path: Path) -> Ends:
    with path.open("rb") as file:
        head = file.read(work_limits.LOOK_BYTES)
        size = path.stat().st_size
        file.seek(max(0, size - work_limits.LOOK_BYTES))
        return Ends(head=head, tail=file.read(work_limits.LOOK_BYTES), size=size)
