"""Claims about saved work, with real git; the portal's object store is a stand-in. Conversations have a file of their
own."""

import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from valet_protocol.events.agent import TurnChanged, WorkSaved
from valet_protocol.ids import new_id
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner import git_environment, git_state, work_bundle, work_limits, workspace
from valet_runner.errors import CloneFailed
from valet_runner.objects import Objects
from valet_runner.snapshots import Snapshots
from valet_runner.testing import search_path
from valet_runner.testing_objects import ObjectServer
from valet_runner.work import Work
from valet_runner.work_errors import BadWork, ObjectMissing, ObjectRefused, ObjectsUnavailable, WorkTooLarge
from valet_runner.work_limits import Bounds

State = dict[bytes, tuple[int, bytes]]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(errors="replace").strip()


def state(folder: Path) -> State:
    """Every file with its mode and content, `.git` and what is ignored apart."""
    found: State = {}
    for top, folders, files in os.walk(os.fsencode(folder)):
        folders[:] = [name for name in folders if name not in (b".git", b"ignored", b"nested")]
        for name in files + [name for name in folders if os.path.islink(os.path.join(top, name))]:
            path = os.path.join(top, name)
            mode = os.lstat(path).st_mode
            link = stat.S_ISLNK(mode)
            content = os.readlink(path) if link else Path(os.fsdecode(path)).read_bytes()
            kind = stat.S_IFMT(mode) | (0 if link else mode & 0o100)
            found[os.path.relpath(path, os.fsencode(folder))] = (kind, content)
    return found


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    path = tmp_path / "origin"
    (path / "deep" / "er").mkdir(parents=True)
    (path / "hello.txt").write_text("hello\n")
    (path / "kept.txt").write_text("kept\n")
    (path / "gone.txt").write_text("gone\n")
    (path / "old name.txt").write_text("moved\n" * 50)
    (path / "tool.sh").write_text("#!/bin/sh\n")
    (path / "picture.png").write_bytes(bytes(range(256)) * 20)
    (path / "deep" / "er" / "file").write_text("deep\n")
    (path / "becomes-a-folder").write_text("file\n")
    (path / "link").symlink_to("hello.txt")
    (path / ".gitignore").write_text("ignored/\n")
    (path / ".gitattributes").write_text("*.bat text eol=crlf\n")
    (path / "run.bat").write_bytes(b"echo\r\n")
    git(path, "init", "--quiet", "-b", "main")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "-m", "First")
    return path


@pytest.fixture
def make_spec(tmp_path: Path, origin: Path) -> Callable[..., RunnerSpec]:
    """Specs of one session in one sandbox after the other; everything else differs."""
    session_id = new_id()

    def make(name: str, **changes: object) -> RunnerSpec:
        spec = RunnerSpec(
            session_id=session_id,
            epoch=1,
            nats_creds="",
            portal_socket="",
            portal_token="",
            workspace=str(tmp_path / name / "workspace"),
            home=str(tmp_path / name / "home"),
            repo=str(origin),
            branch=None,
            model="scripted/scripted-1",
            providers=[],
            opencode="/nonexistent/opencode",
            path=search_path(),
        )
        Path(spec.home).mkdir(parents=True)
        git_environment.write_config(Path(spec.home))
        return msgspec.structs.replace(spec, **changes)

    return make


@pytest.fixture
def spec(make_spec: Callable[..., RunnerSpec]) -> RunnerSpec:
    return make_spec("first")


@pytest_asyncio.fixture
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ObjectServer]:
    path = Path("/tmp") / f"vrw-{os.getpid()}-{new_id()[-8:]}.sock"  # pytest's own folders are too long for a socket
    async with ObjectServer(path) as server:
        yield server
    path.unlink(missing_ok=True)


class Sandbox:
    """A workspace and the work of it."""

    def __init__(self, spec: RunnerSpec, store: ObjectServer) -> None:
        self.spec = spec
        self.env = git_environment.environment(spec, relay_port=None)
        self.folder = Path(spec.workspace)
        self.objects = Objects(str(store.path), store.token)
        self.base: str | None = None
        self.work = Work(spec, self.env, self.objects, None)

    async def boot(self, *, base: str | None = None, restores: bool = False) -> "Sandbox":
        prepared = await workspace.prepare(self.spec, self.env, base_commit=base, restores=restores)
        self.base = prepared.base
        self.work = Work(self.spec, self.env, self.objects, self.base)
        return self

    async def turn(self, act: Callable[[Path], object]) -> tuple[TurnChanged | None, WorkSaved | None]:
        turn_id = new_id()
        await self.work.begin(turn_id)
        act(self.folder)
        said = await self.work.end(turn_id, {}, None)
        changed = next((data for data in said if isinstance(data, TurnChanged)), None)
        saved = next((data for data in said if isinstance(data, WorkSaved)), None)
        return changed, saved


@pytest_asyncio.fixture
async def first(spec: RunnerSpec, store: ObjectServer) -> Sandbox:
    return await Sandbox(spec, store).boot()


@pytest.fixture
def another(make_spec: Callable[..., RunnerSpec], store: ObjectServer) -> Callable[..., Sandbox]:
    return lambda name="second", **changes: Sandbox(make_spec(name, **changes), store)


@pytest.fixture(autouse=True)
def other_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def ravage(folder: Path) -> None:
    """Everything an agent may do to files."""
    (folder / "hello.txt").write_text("hello\nagain, without a line end")
    (folder / "gone.txt").unlink()
    (folder / "old name.txt").rename(folder / "neuer Name – ü.txt")
    (folder / "tool.sh").chmod(0o755)
    (folder / "picture.png").write_bytes(bytes(reversed(range(256))) * 30)
    (folder / "becomes-a-folder").unlink()
    (folder / "becomes-a-folder").mkdir()
    (folder / "becomes-a-folder" / "inside").write_text("in a folder\n")
    shutil.rmtree(folder / "deep")
    (folder / "deep").write_text("now a file\n")
    (folder / "link").unlink()
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "dangling").symlink_to("nowhere at all")
    (folder / 'new\nline and "quotes"\tand tab').write_text("odd\n")
    (folder / os.fsdecode(b"latin-\xe9")).write_bytes(b"bytes in the name\0\xff")
    (folder / "empty").touch()
    (folder / "script").write_text("#!/bin/sh\n")
    (folder / "script").chmod(0o755)
    (folder / "run.bat").write_bytes(b"echo\r\necho two\r\n")
    (folder / "-x").write_text("looks like an option\n")
    (folder / ":(top)x").write_text("looks like magic\n")
    (folder / "ignored").mkdir()
    (folder / "ignored" / "cache").write_text("not saved\n")


@pytest.mark.asyncio
async def test_files_are_put_back_elsewhere_exactly_as_they_were(
    first: Sandbox, another: Callable[..., Sandbox]
) -> None:
    _, saved = await first.turn(ravage)
    assert saved
    assert saved.work.base_commit == first.base
    wanted = state(first.folder)
    shutil.rmtree(Path(first.spec.home).parent)

    second = await another().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert restored.preamble == {}
    assert state(second.folder) == wanted
    assert restored.head_commit == first.base
    assert git(second.folder, "diff", "--cached", "--name-only") == ""
    # and it is the base of what comes next
    changed, again = await second.turn(lambda folder: (folder / "kept.txt").write_text("changed\n"))
    assert changed
    assert [file.path for file in changed.files] == ["kept.txt"]
    assert again


@pytest.mark.asyncio
async def test_commits_branches_and_the_stash_are_put_back(first: Sandbox, another: Callable[..., Sandbox]) -> None:
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

    second = await another().boot(base=saved.work.base_commit, restores=True)
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
async def test_a_detached_head_is_put_back_detached(first: Sandbox, another: Callable[..., Sandbox]) -> None:
    def act(folder: Path) -> None:
        git(folder, "checkout", "--quiet", "--detach")
        (folder / "hello.txt").write_text("nowhere\n")
        git(folder, "commit", "--quiet", "-am", "On no branch")

    _, saved = await first.turn(act)
    assert saved
    second = await another().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert restored.head_commit == git(first.folder, "rev-parse", "HEAD")
    assert (await workspace.where(second.spec, second.env)).branch is None


@pytest.mark.asyncio
async def test_an_empty_workspace_is_put_back_too(
    make_spec: Callable[..., RunnerSpec], store: ObjectServer, another: Callable[..., Sandbox]
) -> None:
    first = await Sandbox(make_spec("first", repo=None), store).boot()
    (first.folder / "a.txt").write_text("a\n")

    def act(folder: Path) -> None:
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "Mine")
        (folder / "b.txt").write_text("b\n")

    _, saved = await first.turn(act)
    assert saved
    second = await another(repo=None).boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert state(second.folder) == {b"a.txt": (0o100000, b"a\n"), b"b.txt": (0o100000, b"b\n")}
    assert git(second.folder, "log", "-1", "--format=%s") == "Mine"


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
async def test_a_large_file_is_left_out_named_and_not_read(first: Sandbox, another: Callable[..., Sandbox]) -> None:
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
    second = await another().boot(base=saved.work.base_commit, restores=True)
    assert await second.work.restore(saved.work)
    assert (second.folder / "small.txt").exists()
    assert (second.folder / "picture.png").stat().st_size < 10_000


@pytest.mark.asyncio
async def test_repositories_within_the_workspace_do_no_harm(
    first: Sandbox, another: Callable[..., Sandbox], origin: Path
) -> None:
    git(first.folder, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(origin), "module")

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
    second = await another().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert restored.preamble == {}
    assert (second.folder / "hello.txt").read_text() == "turn\n"
    assert (second.folder / ".gitmodules").exists()


@pytest.mark.asyncio
async def test_a_conflict_is_saved_with_its_marks(first: Sandbox, another: Callable[..., Sandbox]) -> None:
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
    second = await another().boot(base=saved.work.base_commit, restores=True)
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
async def test_a_store_that_is_away_costs_only_the_saving(first: Sandbox, store: ObjectServer) -> None:
    store.failures = [503] * work_limits.PUT_ATTEMPTS
    changed, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("turn\n"))
    assert changed
    assert saved is None
    store.failures = [503]
    assert (await first.turn(lambda _: None))[1]  # it was only restarting
    store.failures = [413]
    assert (await first.turn(lambda _: None))[1] is None
    assert not list((Path(first.spec.home) / ".valet" / "saving").glob("work-*"))


@pytest.mark.asyncio
async def test_work_that_is_too_large_is_saved_without_its_larger_files(
    first: Sandbox, store: ObjectServer, monkeypatch: pytest.MonkeyPatch
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
    before = dict(store.stored)
    assert (await first.turn(lambda _: None))[1] is None
    assert store.stored == before


@pytest.mark.asyncio
async def test_a_runner_that_died_while_it_put_work_back_begins_anew(
    first: Sandbox, another: Callable[..., Sandbox]
) -> None:
    _, saved = await first.turn(ravage)
    assert saved
    second = await another().boot(base=saved.work.base_commit, restores=True)
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
async def test_a_clone_that_was_cut_short_is_thrown_away(
    spec: RunnerSpec, another: Callable[..., Sandbox], store: ObjectServer
) -> None:
    broken = Sandbox(msgspec.structs.replace(spec, repo="/nonexistent/repository"), store)
    with pytest.raises(CloneFailed):
        await broken.boot()
    (broken.folder / ".git").mkdir()
    (broken.folder / "half").write_text("half\n")
    whole = await Sandbox(spec, store).boot()
    assert sorted(path.name for path in whole.folder.iterdir() if path.name == "half") == []
    assert (whole.folder / "hello.txt").exists()


@pytest.mark.asyncio
async def test_a_new_clone_stands_on_the_sessions_base(
    first: Sandbox, another: Callable[..., Sandbox], origin: Path
) -> None:
    base = first.base
    (origin / "hello.txt").write_text("the world went on\n")
    git(origin, "commit", "--quiet", "-am", "Later")
    second = await another().boot(base=base)
    assert second.base == base == git(second.folder, "rev-parse", "main")
    assert (second.folder / "hello.txt").read_text() == "hello\n"
    assert git(second.folder, "symbolic-ref", "--short", "HEAD") == "main"


@pytest.mark.asyncio
async def test_work_whose_base_is_gone_is_put_back_as_far_as_it_goes(
    first: Sandbox, another: Callable[..., Sandbox], origin: Path
) -> None:
    _, saved = await first.turn(lambda folder: (folder / "kept.txt").write_text("changed\n"))
    assert saved
    git(origin, "checkout", "--quiet", "--orphan", "rewritten")
    (origin / "hello.txt").write_text("rewritten\n")
    git(origin, "commit", "--quiet", "-am", "History was rewritten")
    git(origin, "branch", "-D", "main")
    git(origin, "reflog", "expire", "--expire=now", "--all")
    git(origin, "gc", "--quiet", "--prune=now")
    second = await another().boot(base=saved.work.base_commit, restores=True)
    assert second.base == git(origin, "rev-parse", "HEAD")
    restored = await second.work.restore(saved.work)
    assert restored
    assert (second.folder / "kept.txt").read_text() == "changed\n"
    assert (second.folder / "hello.txt").read_text() == "rewritten\n"


@pytest.mark.asyncio
async def test_a_patch_that_does_not_apply_is_kept_and_the_agent_told(
    first: Sandbox, another: Callable[..., Sandbox], store: ObjectServer, tmp_path: Path
) -> None:
    _, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("changed\n"))
    assert saved
    archive, folder = tmp_path / "a.tar.gz", tmp_path / "unpacked"
    folder.mkdir()
    archive.write_bytes(store.stored[saved.work.object])
    manifest = work_bundle.unpack(archive, folder)
    patch = folder / work_bundle.PATCH
    patch.write_text(patch.read_text().replace("-hello", "-something else"))
    packed = work_bundle.pack(manifest, {work_bundle.PATCH: patch}, archive)
    store.stored[saved.work.object] = archive.read_bytes()
    second = await another().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(msgspec.structs.replace(saved.work, sha256=packed.sha256))
    assert restored
    kept = Path(second.spec.home) / ".valet" / "work.patch"
    assert kept.read_text() == (tmp_path / "unpacked" / work_bundle.PATCH).read_text()
    assert str(kept) in restored.preamble["web:default"]
    assert (second.folder / "hello.txt").read_text() == "hello\n"


@pytest.mark.asyncio
@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
async def test_work_that_is_lost_is_said_to_be(
    first: Sandbox, another: Callable[..., Sandbox], store: ObjectServer, damage: str
) -> None:
    _, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("changed\n"))
    assert saved
    name = saved.work.object
    if damage == "missing":
        del store.stored[name]
    else:
        store.stored[name] = store.stored[name][:100] if damage == "cut" else b"something else"
    second = await another().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert "Not put back" in restored.preamble["web:default"]
    assert (second.folder / "hello.txt").read_text() == "hello\n"


@pytest.mark.asyncio
async def test_a_session_does_not_go_on_while_its_work_cannot_be_fetched(
    first: Sandbox, another: Callable[..., Sandbox], store: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_limits, "RETRY_WAIT", 0.01)
    _, saved = await first.turn(lambda folder: (folder / "hello.txt").write_text("changed\n"))
    assert saved
    second = await another().boot(base=saved.work.base_commit, restores=True)
    store.failures = [503, 502]
    store.cut_after = None
    monkeypatch.setattr(work_limits, "FETCH_TIMEOUT", 0.0)
    with pytest.raises(ObjectsUnavailable):
        await second.work.restore(saved.work)
    assert workspace.is_unfinished(second.spec)
    monkeypatch.setattr(work_limits, "FETCH_TIMEOUT", 20.0)
    assert await second.work.restore(saved.work)
    assert (second.folder / "hello.txt").read_text() == "changed\n"


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
async def test_a_snapshot_comes_out_the_same_whatever_is_staged(first: Sandbox) -> None:
    snapshots = Snapshots(first.spec, first.env)
    ravage(first.folder)
    before = await snapshots.take()
    git(first.folder, "add", "--all")
    staged = await snapshots.take()
    git(first.folder, "commit", "--quiet", "-m", "All")
    assert before.tree == staged.tree == (await snapshots.take()).tree
    assert before.tree == git(first.folder, "rev-parse", "HEAD^{tree}")


@pytest.mark.asyncio
async def test_objects_are_put_and_got_with_the_token(store: ObjectServer, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    content = os.urandom(3_000_000)
    source.write_bytes(content)
    objects = Objects(str(store.path), store.token)
    await objects.put("sessions/s/work/t", source)
    fetched = await objects.get("sessions/s/work/t", target, limit=len(content))
    assert target.read_bytes() == content
    assert fetched.bytes == len(content)
    with pytest.raises(ObjectMissing):
        await objects.get("sessions/s/work/none", target, limit=10)
    with pytest.raises(ObjectRefused, match="larger than 10"):
        await objects.get("sessions/s/work/t", target, limit=10)
    with pytest.raises(ObjectRefused, match="407"):
        await Objects(str(store.path), "wrong").put("sessions/s/work/t", source)
    store.cut_after = 1000
    with pytest.raises(ObjectsUnavailable):
        await objects.get("sessions/s/work/t", target, limit=len(content))
    with pytest.raises(ObjectsUnavailable):
        await Objects("/nonexistent/portal.sock", store.token).get("sessions/s/work/t", target, limit=1)


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
