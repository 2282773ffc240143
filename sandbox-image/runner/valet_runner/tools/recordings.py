"""transcribe_audio: with the speech recognition of the sandbox, where it has one."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from valet_protocol.errors import NotFound, Unprocessable
from valet_protocol.sandbox_spec import RunnerSpec
from valet_protocol.tools.other import TranscribeAudio, Transcript

from valet_runner import transcription
from valet_runner.tools.images import inside
from valet_runner.tools.running import Answer
from valet_runner.transcription import NotTranscribed


class Recordings:
    """Answers the tool."""

    def __init__(self, spec: RunnerSpec, *, environ: Mapping[str, str] = os.environ) -> None:
        self._spec = spec
        self._environ = environ

    async def text(self, request: TranscribeAudio) -> Answer:
        """What is said in it."""
        path = await asyncio.to_thread(inside, Path(self._spec.workspace), request.path)
        if not await asyncio.to_thread(path.is_file):
            raise NotFound("file_not_found", f"path: there is no file {request.path}.")
        try:
            return Answer(reply=Transcript(text=await transcription.transcribe(path, self._spec, self._environ)))
        except NotTranscribed as error:
            raise Unprocessable("not_transcribed", f"{error}.") from error
