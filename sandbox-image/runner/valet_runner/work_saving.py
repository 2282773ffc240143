"""Saving the session's work as one object: what differs from the base commit, commits, conversations."""

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from valet_protocol.events.agent import WorkRef, WorkSaved
from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import logs

from valet_runner import snapshot_files, work_bundle, work_limits, work_refs
from valet_runner.conversation_files import Exporter
from valet_runner.errors import OpencodeRefused, OpencodeUnavailable
from valet_runner.objects import Objects
from valet_runner.opencode_client import OpencodeClient
from valet_runner.preambles import PreambleFile
from valet_runner.snapshots import Snapshot, Snapshots
from valet_runner.work_bundle import COMMITS, PATCH, Manifest, SavedConversation
from valet_runner.work_errors import ObjectsUnavailable, WorkTooLarge
from valet_runner.work_limits import Bounds

_log = logs.get(__name__)


class Saver:
    """Saves the work of one session. The time is the caller's to bound."""

    def __init__(
        self, spec: RunnerSpec, env: Mapping[str, str], objects: Objects, base_commit: str | None, snapshots: Snapshots
    ) -> None:
        self._spec = spec
        self._env = env
        self._objects = objects
        self._base = base_commit
        self._snapshots = snapshots
        self._exporter = Exporter()
        self._patched: tuple[str, str] | None = None
        self._folder = Path(spec.home) / ".valet" / "saving"
        self._preambles = PreambleFile(Path(spec.home))

    async def save(
        self, turn_id: str, conversations: Mapping[str, str], client: OpencodeClient | None, now: Snapshot | None
    ) -> WorkSaved | None:
        """Store the files of a snapshot and the conversations (OpenCode's session by channel); none when there is
        nothing of either, or too much. Raises `GitFailed`, `ObjectError`, `OSError`."""
        channels = await self._export(conversations, client)
        if now is None and not channels and not self._preambles.known():
            return None
        for bounds in (work_limits.FULL, work_limits.LEAN):
            if now and bounds is work_limits.LEAN:
                now = await self._snapshots.take(bounds)
            try:
                return await self._save_within(turn_id, channels, now, bounds)
            except WorkTooLarge as error:
                _log.warning("work_too_large", turn=turn_id, error=str(error))
        return None

    async def _save_within(
        self, turn_id: str, channels: Mapping[str, tuple[str, Path]], now: Snapshot | None, bounds: Bounds
    ) -> WorkSaved:
        object_name = f"sessions/{self._spec.session_id}/saved/{turn_id}"
        saved = [
            SavedConversation(channel=channel, session=session, file=work_bundle.conversation_file(number))
            for number, (channel, (session, _)) in enumerate(channels.items())
        ]
        members = {entry.file: channels[entry.channel][1] for entry in saved}
        left_out: list[str] = []
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="work-", dir=self._folder))
        try:
            manifest = Manifest(
                session=self._spec.session_id, turn=turn_id, channels=saved, preambles=self._preambles.known()
            )
            if now and self._base:
                left_out = _names(now)
                refs = await work_refs.local(self._spec, self._env)
                manifest = msgspec.structs.replace(
                    manifest,
                    base_commit=self._base,
                    tree=now.tree,
                    head_commit=refs.head,
                    branch=refs.branch,
                    refs=refs.commits,
                    left_out=left_out,
                )
                members[PATCH] = await self._patch(self._base, now.tree)
                known = bounds is work_limits.LEAN
                if await work_refs.write_bundle(
                    self._spec, self._env, refs, self._base, folder / COMMITS, without_remotes=known
                ):
                    members[COMMITS] = folder / COMMITS
            archive = folder / "work.tar.gz"
            packed = await asyncio.to_thread(work_bundle.pack, manifest, members, archive)
            work = WorkRef(
                object=object_name, bytes=packed.bytes, sha256=packed.sha256, base_commit=manifest.base_commit
            )
            await self._put(object_name, archive)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return WorkSaved(turn_id=turn_id, work=work, left_out=left_out)

    async def _patch(self, base: str, tree: str) -> Path:
        """The patch; the last one if nothing has changed since."""
        patch = self._folder / PATCH
        if self._patched != (base, tree):
            self._patched = None
            await self._snapshots.write_patch(base, tree, patch)
            self._patched = (base, tree)
        return patch

    async def _put(self, name: str, archive: Path) -> None:
        for attempt in range(work_limits.PUT_ATTEMPTS):
            try:
                await self._objects.put(name, archive)
                return
            except ObjectsUnavailable:
                if attempt + 1 == work_limits.PUT_ATTEMPTS:
                    raise
                await asyncio.sleep(work_limits.RETRY_WAIT_SHORT)

    async def _export(
        self, conversations: Mapping[str, str], client: OpencodeClient | None
    ) -> dict[str, tuple[str, Path]]:
        """OpenCode's session and its export by channel. An export that fails leaves the last one there was."""
        found: dict[str, tuple[str, Path]] = {}
        folder = self._folder / "conversations"
        folder.mkdir(parents=True, exist_ok=True)
        for channel, session in conversations.items():
            target = folder / f"{hashlib.sha256(session.encode()).hexdigest()[:16]}.json"
            if client:
                try:
                    await self._exporter.write(client, session, target)
                except (OpencodeUnavailable, OpencodeRefused, OSError) as error:
                    _log.warning("conversation_not_exported", channel=channel, error=str(error))
            if target.exists():
                found[channel] = (session, target)
        return found


def _names(snapshot: Snapshot) -> list[str]:
    names = [snapshot_files.name(seen.path) for seen in snapshot.left_out]
    if len(names) <= work_limits.LEFT_OUT_NAMES:
        return names
    more = len(names) - work_limits.LEFT_OUT_NAMES
    return [*names[: work_limits.LEFT_OUT_NAMES], f"… and {more} more"]
