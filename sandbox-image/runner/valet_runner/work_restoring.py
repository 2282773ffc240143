"""Putting saved work back into a new workspace and a new home."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_protocol.events.agent import WorkRef
from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import logs

from valet_runner import conversation_files, files_restoring, work_bundle, work_limits, workspace
from valet_runner.conversation import DEFAULT, Conversations
from valet_runner.errors import GitFailed, OpencodeFailed
from valet_runner.objects import Objects
from valet_runner.preambles import PreambleFile, Preambles
from valet_runner.work_bundle import Manifest
from valet_runner.work_errors import BadWork, ObjectMissing, ObjectsUnavailable, WorkError

_LOST_FILES = (
    "Note from the platform: this workspace was made anew because its sandbox was lost. Not put back: {}. "
    "Look at the workspace before you rely on it."
)
_log = logs.get(__name__)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was put back."""

    conversations: dict[str, str] = {}
    """OpenCode's session by channel; `Conversations` knows them already."""
    preambles: Preambles = {}
    """By channel: texts for the agent, ahead of the channel's next prompt. The conversation itself where it could not
    be put back, and what is missing in the workspace. `PreambleFile` knows them already."""
    head_commit: str | None = None
    """HEAD now; none in a workspace without commits."""


class Restorer:
    """Puts the work of one session back."""

    def __init__(self, spec: RunnerSpec, env: Mapping[str, str], objects: Objects) -> None:
        self._spec = spec
        self._env = env
        self._objects = objects

    async def restore(self, work: WorkRef) -> Restored | None:
        """See `Work.restore`."""
        if not workspace.is_unfinished(self._spec):
            return None
        valet = Path(self._spec.home) / ".valet"
        valet.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="restoring-", dir=valet))
        try:
            manifest = await self._fetch(work, folder)
            missing = "" if manifest is None else await self._put_files_back(manifest, folder)
            conversations, preambles = await self._put_conversations_back(manifest, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if manifest is None:
            missing = "the changes to its files, and what was said before"
        if missing:
            note = _LOST_FILES.format(missing)
            channels = preambles.keys() | conversations.keys() or {DEFAULT}
            preambles = {channel: [note, *preambles.get(channel, [])] for channel in channels}
        Conversations(Path(self._spec.home)).remember(conversations)
        PreambleFile(Path(self._spec.home)).replace(preambles)
        workspace.finished(self._spec)
        now = await workspace.where(self._spec, self._env)
        _log.info("work_restored", object=work.object, conversations=len(conversations), missing=missing)
        return Restored(conversations=conversations, preambles=preambles, head_commit=now.head)

    async def _fetch(self, work: WorkRef, folder: Path) -> Manifest | None:
        archive = folder / "work.tar.gz"
        until = time.monotonic() + work_limits.FETCH_TIMEOUT
        while True:
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()):
                    fetched = await self._objects.get(work.object, archive, limit=work_limits.WORK_BYTES)
                if fetched.sha256 != work.sha256:
                    raise BadWork(f"its SHA-256 is {fetched.sha256}, saved was {work.sha256}")
                return await asyncio.to_thread(work_bundle.unpack, archive, folder)
            except (ObjectMissing, WorkError) as error:
                _log.error("work_is_lost", object=work.object, error=str(error))
                return None
            except (ObjectsUnavailable, TimeoutError) as error:
                if time.monotonic() > until:
                    raise ObjectsUnavailable(f"{work.object}: {str(error) or type(error).__name__}") from error
                _log.warning("work_fetch_repeats", object=work.object, error=str(error))
                await asyncio.sleep(work_limits.RETRY_WAIT)

    async def _put_files_back(self, manifest: Manifest, folder: Path) -> str:
        try:
            return await files_restoring.put_back(self._spec, self._env, manifest, folder)
        except (GitFailed, OSError) as error:
            _log.error("files_not_put_back", error=str(error))
            return "the changes to its files"

    async def _put_conversations_back(
        self, manifest: Manifest | None, folder: Path
    ) -> tuple[dict[str, str], Preambles]:
        conversations: dict[str, str] = {}
        preambles = _told_already(manifest)
        until = time.monotonic() + work_limits.IMPORTS_TIMEOUT
        for saved in manifest.channels if manifest else []:
            file = folder / saved.file
            if not file.exists():
                continue
            try:
                if time.monotonic() > until:
                    raise OpencodeFailed("the time for this is over")
                await conversation_files.put_back(self._spec, file, saved.session)
                conversations[saved.channel] = saved.session
            except (OpencodeFailed, OSError) as error:
                _log.warning("conversation_not_imported", channel=saved.channel, error=str(error))
                earlier = preambles.get(saved.channel, [])
                notes = [text for text in earlier if not conversation_files.is_preamble(text)]
                told = conversation_files.preamble(file.read_bytes(), earlier)
                preambles[saved.channel] = [*notes, *([told] if told else [])]
        return conversations, {channel: texts for channel, texts in preambles.items() if texts}


def _told_already(manifest: Manifest | None) -> Preambles:
    if manifest is None:
        return {}
    said = {channel: [conversation_files.as_preamble(text)] for channel, text in manifest.said.items() if text}
    return said | manifest.preambles
