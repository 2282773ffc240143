"""Claims about the object store as the runner sees it, and about the archive that saved work is."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from valet_runner import work_bundle, work_limits
from valet_runner.objects import Objects
from valet_runner.testing_work import Place, Sandbox
from valet_runner.work_errors import BadWork, ObjectMissing, ObjectRefused, ObjectsUnavailable, WorkTooLarge


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with Place(tmp_path) as place:
        yield place


@pytest_asyncio.fixture
async def first(place: Place) -> Sandbox:
    return await place.sandbox("first").boot()


@pytest.mark.asyncio
async def test_objects_are_put_and_got_with_the_token(place: Place, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    content = os.urandom(3_000_000)
    source.write_bytes(content)
    objects = Objects(str(place.store.path), place.store.token)
    await objects.put("sessions/s/saved/t", source)
    fetched = await objects.get("sessions/s/saved/t", target, limit=len(content))
    assert target.read_bytes() == content
    assert fetched.bytes == len(content)
    with pytest.raises(ObjectMissing):
        await objects.get("sessions/s/saved/none", target, limit=10)
    with pytest.raises(ObjectRefused, match="larger than 10"):
        await objects.get("sessions/s/saved/t", target, limit=10)
    with pytest.raises(ObjectRefused, match="407"):
        await Objects(str(place.store.path), "wrong").put("sessions/s/saved/t", source)
    place.store.cut_after = 1000
    with pytest.raises(ObjectsUnavailable):
        await objects.get("sessions/s/saved/t", target, limit=len(content))
    with pytest.raises(ObjectRefused, match="no portal"):
        await Objects("", place.store.token).put("sessions/s/saved/t", source)
    with pytest.raises(ObjectsUnavailable):
        await Objects("/nonexistent/portal.sock", place.store.token).get("sessions/s/saved/t", target, limit=1)


def test_an_archive_of_another_make_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = work_bundle.Manifest(session="s", turn="t")
    archive = tmp_path / "a.tar.gz"
    work_bundle.pack(msgspec.structs.replace(manifest, version=99), {}, archive)
    with pytest.raises(BadWork, match="99"):
        work_bundle.unpack(archive, tmp_path)
    outside = tmp_path / "outside"
    outside.write_text("content")
    work_bundle.pack(manifest, {"../escaped": outside, "conversations/0.json": outside}, archive)
    folder = tmp_path / "folder"
    folder.mkdir()
    work_bundle.unpack(archive, folder)
    assert list(folder.iterdir()) == []
    assert not (tmp_path / "escaped").exists()
    archive.write_bytes(b"no archive")
    with pytest.raises(BadWork):
        work_bundle.unpack(archive, folder)
    monkeypatch.setattr(work_limits, "WORK_RAW_BYTES", 3)
    with pytest.raises(WorkTooLarge):
        work_bundle.pack(manifest, {"work.patch": outside}, archive)
