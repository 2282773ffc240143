"""Claims about the cache of programs. The package is a small tarball; only the download is replaced."""

import io
import os
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest
from valet_local import npm, provision, tools
from valet_local.errors import BadDownload, FetchFailed
from valet_local.layout import layout
from valet_local.tools import Progress

PACKAGE = "opencode-test-x64"
BINARY = b"#!/bin/sh\necho 1.18.33\n"


def silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def tarball(path: Path, name: str = "package/bin/opencode") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(BINARY)
        archive.addfile(member, io.BytesIO(BINARY))
    return path


def fetched(package: str, version: str, directory: Path, progress: Progress) -> Path:
    return tarball(directory / f"{package}-{version}.tgz")


def ensure(tmp_path: Path, fetch: tools.Fetch, data: str = "data", package: str = PACKAGE) -> Path:
    return tools.ensure_opencode(tmp_path / data, tmp_path / "cache", fetch=fetch, progress=silent, package=package)


def test_it_is_fetched_once_and_runs(tmp_path: Path) -> None:
    path = ensure(tmp_path, fetched)
    assert tools.works(path) == "1.18.33"

    def unreachable(package: str, version: str, directory: Path, progress: Progress) -> Path:
        raise AssertionError("fetched again")

    assert ensure(tmp_path, unreachable) == path
    other = ensure(tmp_path, unreachable, data="another")
    assert os.path.samefile(other, path)


def test_a_data_directory_needs_no_cache_once_filled(tmp_path: Path) -> None:
    import shutil

    path = ensure(tmp_path, fetched)
    shutil.rmtree(tmp_path / "cache")
    assert ensure(tmp_path, fetched) == path
    assert not (tmp_path / "cache").exists()


def test_a_half_download_never_counts(tmp_path: Path) -> None:
    def broken(package: str, version: str, directory: Path, progress: Progress) -> Path:
        path = tarball(directory / "half.tgz")
        path.write_bytes(path.read_bytes()[:40])
        raise FetchFailed("the line went down")

    with pytest.raises(FetchFailed):
        ensure(tmp_path, broken)
    assert list((tmp_path / "cache").iterdir()) == []
    assert ensure(tmp_path, fetched).is_file()


def test_what_a_killed_process_had_begun_is_cleared_away(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    name = tools.cached_opencode(tmp_path / "cache", PACKAGE).parent.name
    for pid in (dead.pid, os.getpid()):
        (tmp_path / "cache" / f".{name}.{pid}.ab12").mkdir(parents=True)
    ensure(tmp_path, fetched)
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert left == {name, f".{name}.{os.getpid()}.ab12"}


def test_a_package_that_is_not_the_published_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDownload, match="not what was published"):
        ensure(tmp_path, fetched, package="opencode-linux-x64")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_package_without_the_program_is_refused(tmp_path: Path) -> None:
    def empty(package: str, version: str, directory: Path, progress: Progress) -> Path:
        return tarball(directory / "x.tgz", name="package/README.md")

    with pytest.raises(BadDownload, match="holds no package/bin/opencode"):
        ensure(tmp_path, empty)


def test_two_at_once_both_get_a_whole_one(tmp_path: Path) -> None:
    both_fetch = threading.Barrier(2, timeout=10)
    found: list[Path] = []

    def together(package: str, version: str, directory: Path, progress: Progress) -> Path:
        both_fetch.wait()
        return fetched(package, version, directory, progress)

    threads = [
        threading.Thread(target=lambda data=data: found.append(ensure(tmp_path, together, data)))
        for data in ("one", "two")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [path.read_bytes() for path in found] == [BINARY, BINARY]
    assert len(list((tmp_path / "cache").iterdir())) == 1


PAGE = ("package/package.json", "package/LICENSE", "package/lib/x.js", "package/css/x.css")


def page(path: Path, *names: str) -> Path:
    """A package of the terminal's page."""
    with tarfile.open(path, "w:gz") as archive:
        for name in names or (*PAGE, "package/lib/x.js.map", "package/src/x.ts"):
            archive.addfile(tarfile.TarInfo(name))
    return path


def ensure_page(tmp_path: Path, fetch: tools.Fetch, data: str = "data") -> Path:
    return tools.ensure_terminal_page(tmp_path / data, tmp_path / "cache", fetch=fetch, progress=silent)


def test_the_terminals_page_is_fetched_once_and_holds_what_a_browser_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def fetch(package: str, version: str, directory: Path, progress: Progress) -> Path:
        asked.append((package, version))
        return page(directory / "x.tgz")

    monkeypatch.setattr(tools, "verify", lambda tarball, integrity: None)
    place = ensure_page(tmp_path, fetch)
    packages = [("@xterm/xterm", "6.0.0"), ("@xterm/addon-fit", "0.11.0"), ("@xterm/addon-unicode11", "0.9.0")]
    assert asked == packages
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    own = {name.removeprefix("package/") for name in PAGE}
    assert files == {f"{part}/{name}" for part in ("xterm", "addon-fit", "addon-unicode11") for name in own}
    assert ensure_page(tmp_path, fetch) == place
    assert ensure_page(tmp_path, fetch, data="another").is_dir()
    assert asked == packages
    told = tools.Tools(opencode=place, git=place, rg=place, bwrap=None, xterm=place).environment()
    assert told["VALET_XTERM_DIR"] == str(place)


def test_without_a_network_the_terminals_page_of_an_earlier_start_will_do(tmp_path: Path) -> None:
    def unreachable(package: str, version: str, directory: Path, progress: Progress) -> Path:
        raise FetchFailed("no network")

    with pytest.raises(FetchFailed):
        ensure_page(tmp_path, unreachable)
    before = tmp_path / "data" / "xterm-6.0.0"
    before.mkdir(parents=True)
    assert ensure_page(tmp_path, unreachable) == before


def test_a_terminals_page_that_is_not_the_published_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(package: str, version: str, directory: Path, progress: Progress) -> Path:
        return page(directory / "x.tgz")

    with pytest.raises(BadDownload, match="not what was published"):
        ensure_page(tmp_path, fetch)
    assert list((tmp_path / "cache").iterdir()) == []

    def escaping(package: str, version: str, directory: Path, progress: Progress) -> Path:
        return page(directory / "x.tgz", *PAGE, "package/lib/../../../../x")

    monkeypatch.setattr(tools, "verify", lambda tarball, integrity: None)
    with pytest.raises(BadDownload, match="leads out"):
        ensure_page(tmp_path, escaping)
    assert not (tmp_path / "x").exists()


def test_a_start_does_without_a_terminals_page_that_cannot_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(package: str, version: str, directory: Path, progress: Progress) -> Path:
        raise FetchFailed("no network")

    monkeypatch.setattr(npm, "fetch_small", unreachable)
    monkeypatch.setenv("VALET_CACHE_DIR", str(tmp_path / "cache"))
    told: list[str] = []
    found = provision.ensure_tools(
        layout(tmp_path / "d"),
        progress=lambda stage, done, total: told.append(stage),
        environment={"VALET_OPENCODE_BIN": "/bin/true"},
    )
    assert found.xterm is None
    assert "VALET_XTERM_DIR" not in found.environment()
    assert "no network" in told[-1]


def test_npms_own_words_are_shown_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("npm", "node"):
        path = tmp_path / "bin" / name
        path.write_text("#!/bin/sh\necho ENOTFOUND the registry >&2\nexit 1\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "into").mkdir()
    with pytest.raises(FetchFailed, match="ENOTFOUND the registry"):
        npm.fetch("opencode-linux-x64", "1.18.33", tmp_path / "into", silent)


def test_an_old_processor_gets_the_baseline_build(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags : fpu sse2 avx\n")
    assert not tools._has_avx2(cpuinfo)
    cpuinfo.write_text("flags : fpu avx avx2\n")
    assert tools._has_avx2(cpuinfo)
