"""Claims about work that is put back into a new sandbox, with real git; the portal's object store is a stand-in.
Conversations have a file of their own."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from valet_runner import work_bundle, work_limits, workspace
from valet_runner.errors import CloneFailed
from valet_runner.testing_work import Place, Sandbox, git, ravage, state
from valet_runner.work_errors import ObjectsUnavailable


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with Place(tmp_path) as place:
        yield place


@pytest_asyncio.fixture
async def first(place: Place) -> Sandbox:
    return await place.sandbox("first").boot()


@pytest.mark.asyncio
async def test_files_are_put_back_elsewhere_exactly_as_they_were(first: Sandbox, place: Place) -> None:
    _, saved = await first.turn(ravage)
    assert saved
    assert saved.work.base_commit == first.base
    wanted = state(first.folder)
    shutil.rmtree(Path(first.spec.home).parent)

    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert restored.preambles == {}
    assert state(second.folder) == wanted
    assert restored.head_commit == first.base
    assert git(second.folder, "diff", "--cached", "--name-only") == ""
    # and it is the base of what comes next
    changed, again = await second.turn(lambda folder: (folder / "kept.txt").write_text("changed\n"))
    assert changed
    assert [file.path for file in changed.files] == ["kept.txt"]
    assert again


@pytest.mark.asyncio
async def test_commits_branches_and_the_stash_are_put_back(first: Sandbox, place: Place) -> None:
    def act(folder: Path) -> None:
        (folder / "kept.txt").write_text("stashed\n")
        git(folder, "stash", "push", "--quiet")
        git(folder, "checkout", "--quiet", "-b", "side")
        (folder / "side.txt").write_text("side\n")
        git(folder, "add", "side.txt")
        git(folder, "commit", "--quiet", "-m", "On the side")
        git(folder, "checkout", "--quiet", "-b", "feature/one", "main")
        (folder / "hello.txt").write_text("committed\n")
        git(folder, "commit", "--quiet", "-am", "Second")
        (folder / "hello.txt").write_text("and not committed\n")

    _, saved = await first.turn(act)
    assert saved
    names = ("HEAD", "main", "side", "feature/one", "refs/stash^{tree}")
    wanted = git(first.folder, "rev-parse", *names)

    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert restored.head_commit == git(first.folder, "rev-parse", "HEAD")
    assert git(second.folder, "rev-parse", *names) == wanted
    assert git(second.folder, "symbolic-ref", "--short", "HEAD") == "feature/one"
    assert git(second.folder, "status", "--porcelain") == "M hello.txt"
    assert git(second.folder, "log", "-1", "--format=%s") == "Second"
    assert "stashed" in git(second.folder, "stash", "show", "-p")
    assert state(second.folder) == state(first.folder)


@pytest.mark.asyncio
async def test_a_detached_head_is_put_back_detached(first: Sandbox, place: Place) -> None:
    def act(folder: Path) -> None:
        git(folder, "checkout", "--quiet", "--detach")
        (folder / "hello.txt").write_text("nowhere\n")
        git(folder, "commit", "--quiet", "-am", "On no branch")

    _, saved = await first.turn(act)
    assert saved
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert restored.head_commit == git(first.folder, "rev-parse", "HEAD")
    assert (await workspace.where(second.spec, second.env)).branch is None


@pytest.mark.asyncio
async def test_an_empty_workspace_is_put_back_too(place: Place) -> None:
    first = await place.sandbox("first", repo=None).boot()
    (first.folder / "a.txt").write_text("a\n")

    def act(folder: Path) -> None:
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "Mine")
        (folder / "b.txt").write_text("b\n")

    _, saved = await first.turn(act)
    assert saved
    second = await place.sandbox(repo=None).boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert state(second.folder) == {b"a.txt": (0o100000, b"a\n"), b"b.txt": (0o100000, b"b\n")}
    assert git(second.folder, "log", "-1", "--format=%s") == "Mine"


@pytest.mark.asyncio
async def test_a_runner_that_died_while_it_put_work_back_begins_anew(first: Sandbox, place: Place) -> None:
    _, saved = await first.turn(ravage)
    assert saved
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    (second.folder / "half.txt").write_text("left by the one that died\n")
    shutil.rmtree(second.folder / ".git" / "objects")
    await second.boot(base=saved.work.base_commit, restores=True)
    assert await second.work.restore(saved.work)
    assert state(second.folder) == state(first.folder)
    # and once it is there, nobody touches it again
    (second.folder / "hello.txt").write_text("later\n")
    await second.boot(base=saved.work.base_commit, restores=True)
    assert await second.work.restore(saved.work) is None
    assert (second.folder / "hello.txt").read_text() == "later\n"


@pytest.mark.asyncio
async def test_a_clone_that_was_cut_short_is_thrown_away(place: Place) -> None:
    broken = place.sandbox("first", repo="/nonexistent/repository")
    with pytest.raises(CloneFailed):
        await broken.boot()
    (broken.folder / ".git").mkdir()
    (broken.folder / "half").write_text("half\n")
    whole = await Sandbox(msgspec.structs.replace(broken.spec, repo=str(place.origin)), place.store).boot()
    assert sorted(path.name for path in whole.folder.iterdir() if path.name == "half") == []
    assert (whole.folder / "hello.txt").exists()


@pytest.mark.asyncio
async def test_a_new_clone_stands_on_the_sessions_base(first: Sandbox, place: Place) -> None:
    base = first.base
    (place.origin / "hello.txt").write_text("the world went on\n")
    git(place.origin, "commit", "--quiet", "-am", "Later")
    second = await place.sandbox().boot(base=base)
    assert second.base == base == git(second.folder, "rev-parse", "main")
    assert (second.folder / "hello.txt").read_text() == "hello\n"
    assert git(second.folder, "symbolic-ref", "--short", "HEAD") == "main"


@pytest.mark.asyncio
async def test_work_whose_base_is_gone_is_put_back_as_far_as_it_goes(first: Sandbox, place: Place) -> None:
    _, saved = await first.turn(lambda folder: (folder / "kept.txt").write_text("changed\n"))
    assert saved
    git(place.origin, "checkout", "--quiet", "--orphan", "rewritten")
    (place.origin / "hello.txt").write_text("rewritten\n")
    git(place.origin, "commit", "--quiet", "-am", "History was rewritten")
    git(place.origin, "branch", "-D", "main")
    git(place.origin, "reflog", "expire", "--expire=now", "--all")
    git(place.origin, "gc", "--quiet", "--prune=now")
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    assert second.base == git(place.origin, "rev-parse", "HEAD")
    restored = await second.work.restore(saved.work)
    assert restored
    assert (second.folder / "kept.txt").read_text() == "changed\n"
    assert (second.folder / "hello.txt").read_text() == "rewritten\n"


@pytest.mark.asyncio
@pytest.mark.parametrize(("right", "wrong"), [("-hello", "-something else"), ("+changed", "+not what was saved")])
async def test_a_patch_that_does_not_give_what_was_saved_is_kept_and_the_agent_told(
    first: Sandbox, place: Place, tmp_path: Path, right: str, wrong: str
) -> None:
    _, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("changed\n"))
    assert saved
    archive, folder = tmp_path / "a.tar.gz", tmp_path / "unpacked"
    folder.mkdir()
    archive.write_bytes(place.store.stored[saved.work.object])
    manifest = work_bundle.unpack(archive, folder)
    patch = folder / work_bundle.PATCH
    patch.write_text(patch.read_text().replace(right, wrong))
    packed = work_bundle.pack(manifest, {work_bundle.PATCH: patch}, archive)
    place.store.stored[saved.work.object] = archive.read_bytes()
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(msgspec.structs.replace(saved.work, sha256=packed.sha256))
    assert restored
    kept = Path(second.spec.home) / ".valet" / "work.patch"
    assert kept.read_text() == (tmp_path / "unpacked" / work_bundle.PATCH).read_text()
    assert str(kept) in restored.preambles["web:default"][0]
    assert (second.folder / "hello.txt").read_text() == "hello\n"


@pytest.mark.asyncio
@pytest.mark.parametrize("damage", ["missing", "cut", "other", "swapped"])
async def test_work_that_is_lost_is_said_to_be(first: Sandbox, place: Place, damage: str) -> None:
    _, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("changed\n"))
    assert saved
    name = saved.work.object
    if damage == "missing":
        del place.store.stored[name]
    elif damage == "swapped":
        _, later = await first.turn(lambda folder: (folder / "hello.txt").write_text("of another turn\n"))
        assert later
        place.store.stored[name] = place.store.stored[later.work.object]
    else:
        place.store.stored[name] = place.store.stored[name][:100] if damage == "cut" else b"something else"
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert "Not put back" in restored.preambles["web:default"][0]
    assert (second.folder / "hello.txt").read_text() == "hello\n"


@pytest.mark.asyncio
async def test_a_session_does_not_go_on_while_its_work_cannot_be_fetched(
    first: Sandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_limits, "RETRY_WAIT", 0.01)
    _, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("changed\n"))
    assert saved
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    place.store.failures = [503, 502]
    place.store.cut_after = None
    monkeypatch.setattr(work_limits, "FETCH_TIMEOUT", 0.0)
    with pytest.raises(ObjectsUnavailable):
        await second.work.restore(saved.work)
    assert workspace.is_unfinished(second.spec)
    monkeypatch.setattr(work_limits, "FETCH_TIMEOUT", 20.0)
    assert await second.work.restore(saved.work)
    assert (second.folder / "hello.txt").read_text() == "changed\n"
