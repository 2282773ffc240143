"""Claims about snapshots and saved work, with real git; the portal's object store is a stand-in."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from valet_runner import git_state, work_limits
from valet_runner.snapshots import Snapshots
from valet_runner.testing_work import Place, Sandbox, git, ravage, size
from valet_runner.work_limits import Bounds


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with Place(tmp_path) as place:
        yield place


@pytest_asyncio.fixture
async def first(place: Place) -> Sandbox:
    return await place.sandbox("first").boot()


@pytest.mark.asyncio
async def test_a_turns_diff_is_its_own(first: Sandbox) -> None:
    await first.turn(lambda folder: (folder / "hello.txt").write_text("first turn\n"))
    (first.folder / "kept.txt").write_text("between turns, by an editor\n")

    def act(folder: Path) -> None:
        (folder / "old name.txt").rename(folder / "moved.txt")
        (folder / "new.txt").write_text("new\n")
        git(folder, "add", "new.txt")
        git(folder, "commit", "--quiet", "-m", "Committed within the turn")

    changed, saved = await first.turn(act)
    assert changed
    assert saved
    assert changed.turn_id == saved.turn_id
    assert sorted((file.path, file.status, file.additions) for file in changed.files) == [
        ("moved.txt", "renamed", 0),
        ("new.txt", "added", 1),
    ]
    assert "+new" in changed.patch
    assert not changed.truncated
    unchanged, saved = await first.turn(lambda folder: folder / "nothing")
    assert unchanged is None
    assert saved


@pytest.mark.asyncio
async def test_index_and_objects_of_the_repository_are_not_touched(first: Sandbox) -> None:
    (first.folder / "new.txt").write_text("new\n")
    (first.folder / "hello.txt").write_text("staged\n")
    git(first.folder, "add", "hello.txt")
    (first.folder / "hello.txt").write_text("and changed again\n")
    inside = first.folder / ".git"
    before = {path: path.stat().st_mtime_ns for path in inside.rglob("*") if path.is_file()}
    changed, saved = await first.turn(lambda folder: (folder / "kept.txt").write_text("turn\n"))
    assert changed
    assert saved
    assert {path: path.stat().st_mtime_ns for path in inside.rglob("*") if path.is_file()} == before


@pytest.mark.asyncio
async def test_nothing_that_the_workspace_configures_is_run(first: Sandbox, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {ran}\ncat\n')
    program.chmod(0o755)
    for key in ("filter.f.clean", "filter.f.smudge", "filter.f.process", "core.fsmonitor", "diff.external"):
        git(first.folder, "config", key, str(program))
        git(first.folder, "config", "--file", str(Path(first.spec.home) / ".gitconfig"), key, str(program))
    git(first.folder, "config", "diff.d.textconv", str(program))
    git(first.folder, "config", "diff.d.command", str(program))
    hooks = first.folder / ".git" / "hooks"
    for name in ("post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"):
        (hooks / name).write_bytes(program.read_bytes())
        (hooks / name).chmod(0o755)
    (first.folder / ".gitattributes").write_text("* filter=f diff=d\n")
    changed, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("turn\n"))
    assert changed
    assert saved
    assert await first.work.changes()
    assert await git_state.changes(first.spec, first.env, first.base)
    assert not ran.exists(), ran.read_text()


@pytest.mark.asyncio
async def test_a_large_file_is_left_out_named_and_not_read(first: Sandbox, place: Place) -> None:
    def act(folder: Path) -> None:
        for name in ("model.bin", "picture.png"):
            with (folder / name).open("wb") as file:
                file.truncate(200 << 20)
        (folder / "small.txt").write_text("small\n")

    changed, saved = await first.turn(act)
    assert changed
    assert [file.path for file in changed.files] == ["small.txt"]
    assert saved
    assert sorted(saved.left_out) == ["model.bin", "picture.png"]
    assert saved.work.bytes < 10_000
    assert size(Path(first.spec.home)) < 1 << 20
    # people see in the session's changes that it is there
    everything = await first.work.changes()
    assert everything
    assert {file.path: file.status for file in everything.files} == {
        "small.txt": "added",
        "model.bin": "added",
        "picture.png": "modified",
    }
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    assert await second.work.restore(saved.work)
    assert (second.folder / "small.txt").exists()
    assert (second.folder / "picture.png").stat().st_size < 10_000


@pytest.mark.asyncio
async def test_repositories_within_the_workspace_do_no_harm(first: Sandbox, place: Place) -> None:
    git(first.folder, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(place.origin), "module")

    def act(folder: Path) -> None:
        (folder / "module" / "hello.txt").write_text("changed in the submodule\n")
        git(folder, "init", "--quiet", "nested")
        (folder / "nested" / "file").write_text("nested\n")
        (folder / "hello.txt").write_text("turn\n")
        os.mkfifo(folder / "pipe")

    changed, saved = await first.turn(act)
    assert changed
    assert [file.path for file in changed.files] == ["hello.txt"]
    assert saved
    assert saved.left_out == ["nested/"]
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    ((note,),) = restored.preambles.values()
    assert "inside submodules" in note
    assert (second.folder / "hello.txt").read_text() == "turn\n"
    assert (second.folder / ".gitmodules").exists()


@pytest.mark.asyncio
async def test_a_conflict_is_saved_with_its_marks(first: Sandbox, place: Place) -> None:
    def act(folder: Path) -> None:
        git(folder, "checkout", "--quiet", "-b", "other")
        (folder / "hello.txt").write_text("theirs\n")
        git(folder, "commit", "--quiet", "-am", "Theirs")
        git(folder, "checkout", "--quiet", "main")
        (folder / "hello.txt").write_text("ours\n")
        git(folder, "commit", "--quiet", "-am", "Ours")
        subprocess.run(["git", "merge", "other"], cwd=folder, capture_output=True, check=False, timeout=20)

    changed, saved = await first.turn(act)
    assert changed
    assert "<<<<<<<" in changed.patch
    assert saved
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    assert await second.work.restore(saved.work)
    assert "<<<<<<<" in (second.folder / "hello.txt").read_text()
    assert git(second.folder, "log", "--format=%s", "-1", "other") == "Theirs"


@pytest.mark.asyncio
async def test_files_outside_a_sparse_checkout_are_not_taken_for_deleted(first: Sandbox) -> None:
    git(first.folder, "sparse-checkout", "set", "--no-cone", "/hello.txt")
    assert not (first.folder / "kept.txt").exists()
    changed, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("turn\n"))
    assert changed
    assert [file.path for file in changed.files] == ["hello.txt"]
    assert saved


@pytest.mark.asyncio
async def test_an_index_that_is_split_is_read_all_the_same(first: Sandbox) -> None:
    git(first.folder, "update-index", "--split-index")
    changed, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("turn\n"))
    assert changed
    assert [file.path for file in changed.files] == ["hello.txt"]
    assert saved


@pytest.mark.asyncio
async def test_without_a_repository_nothing_is_said_of_files(first: Sandbox) -> None:
    shutil.rmtree(first.folder / ".git")
    assert await first.turn(lambda folder: (folder / "hello.txt").write_text("turn\n")) == (None, None)
    assert await first.work.changes() is None


@pytest.mark.asyncio
async def test_a_store_that_is_away_costs_only_the_saving(first: Sandbox, place: Place) -> None:
    place.store.failures = [503] * work_limits.PUT_ATTEMPTS
    changed, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("turn\n"))
    assert changed
    assert saved is None
    place.store.failures = [503]
    assert (await first.turn(lambda _: None))[1]  # it was only restarting
    place.store.failures = [413]
    assert (await first.turn(lambda _: None))[1] is None
    assert not list((Path(first.spec.home) / ".valet" / "saving").glob("work-*"))


@pytest.mark.asyncio
async def test_work_that_is_too_large_is_saved_without_its_larger_files(
    first: Sandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_limits, "WORK_BYTES", 50_000)
    monkeypatch.setattr(work_limits, "LEAN", Bounds(file_bytes=10_000, total_bytes=20_000, files=100))

    def act(folder: Path) -> None:
        (folder / "noise.bin").write_bytes(os.urandom(60_000))
        (folder / "small.txt").write_text("small\n")

    _, saved = await first.turn(act)
    assert saved
    assert saved.left_out == ["noise.bin"]
    assert 0 < saved.work.bytes <= 50_000
    # commits cannot be left out: then the work saved last stays the newest
    git(first.folder, "add", ".")
    git(first.folder, "commit", "--quiet", "-m", "Noise")
    before = dict(place.store.stored)
    assert (await first.turn(lambda _: None))[1] is None
    assert place.store.stored == before


@pytest.mark.asyncio
async def test_snapshots_do_not_grow_for_ever(first: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(first.spec.home) / ".valet" / "snapshots.git"
    await first.turn(lambda folder: (folder / "noise").write_bytes(os.urandom(2 << 20)))
    monkeypatch.setattr(work_limits, "OBJECTS_KIB", 1024)
    changed, saved = await first.turn(lambda folder: (folder / "noise").unlink())
    assert changed
    assert saved
    assert (await first.turn(lambda _: None))[1]
    assert size(own) < 1 << 20


@pytest.mark.asyncio
async def test_many_files_are_saved_up_to_a_number(
    first: Sandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_limits, "PACKED_FROM", 10)
    monkeypatch.setattr(work_limits, "LEFT_OUT_NAMES", 5)

    def act(folder: Path) -> None:
        (folder / "run.bat").write_bytes(b"echo\r\necho two\r\n")
        for number in range(60):
            (folder / "deep" / f"{number}.txt").write_text(f"{number}\n")

    monkeypatch.setattr(Snapshots.take, "__defaults__", (Bounds(file_bytes=100, total_bytes=10_000, files=41),))
    changed, saved = await first.turn(act)
    assert changed
    assert len(changed.files) == 41
    assert "+echo two" in changed.patch
    assert saved
    assert len(saved.left_out) == 6
    assert saved.left_out[5] == "… and 15 more"
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    assert await second.work.restore(saved.work)
    assert len(list((second.folder / "deep").glob("*.txt"))) == 40
    assert (second.folder / "run.bat").read_bytes() == b"echo\r\necho two\r\n"


@pytest.mark.asyncio
async def test_a_snapshot_comes_out_the_same_whatever_is_staged(first: Sandbox) -> None:
    snapshots = Snapshots(first.spec, first.env)
    ravage(first.folder)
    before = await snapshots.take()
    git(first.folder, "add", "--all")
    staged = await snapshots.take()
    git(first.folder, "commit", "--quiet", "-m", "All")
    assert before.tree == staged.tree == (await snapshots.take()).tree
    assert before.tree == git(first.folder, "rev-parse", "HEAD^{tree}")
