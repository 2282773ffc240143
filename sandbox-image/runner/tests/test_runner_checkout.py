"""Claims about submodules and Git LFS, with real git; git-lfs and the portal's object store are stand-ins."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from valet_runner import workspace
from valet_runner.testing_work import Place, Sandbox, git


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with Place(tmp_path) as place:
        yield place


def library(folder: Path) -> Path:
    folder.mkdir()
    (folder / "lib.txt").write_text("one\n")
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Library")
    return folder


def with_submodule(origin: Path, library: Path) -> None:
    git(origin, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "libs/one")
    git(origin, "commit", "--quiet", "-m", "With a library")


async def prepared(sandbox: Sandbox) -> str:
    return (await workspace.prepare(sandbox.spec, sandbox.env)).detail


@pytest.mark.asyncio
async def test_submodules_are_checked_out_and_those_of_submodules_too(place: Place) -> None:
    inner, outer = library(place.folder / "inner"), library(place.folder / "outer")
    with_submodule(outer, inner)
    with_submodule(place.origin, outer)
    sandbox = place.sandbox("first")
    assert await prepared(sandbox) == "1 submodule checked out"
    assert (sandbox.folder / "libs" / "one" / "libs" / "one" / "lib.txt").read_text() == "one\n"
    assert await prepared(sandbox) == ""  # an earlier epoch's is left as it is


@pytest.mark.asyncio
async def test_a_submodule_that_cannot_be_had_is_named_and_fails_nothing(place: Place) -> None:
    gone = library(place.folder / "gone")
    with_submodule(place.origin, gone)
    shutil.rmtree(gone)
    sandbox = place.sandbox("first")
    detail = await prepared(sandbox)
    assert "could not all be checked out" in detail
    assert "libs/one" in detail
    assert (sandbox.folder / "hello.txt").exists()
    assert not workspace.is_unfinished(sandbox.spec)


@pytest.mark.asyncio
async def test_work_with_changed_submodules_is_saved_and_put_back_without_what_is_inside_them(place: Place) -> None:
    with_submodule(place.origin, library(place.folder / "library"))
    first = await place.sandbox("first").boot()

    def act(folder: Path) -> None:
        inside = folder / "libs" / "one"
        (inside / "lib.txt").write_text("two\n")
        git(inside, "commit", "--quiet", "-am", "Not pushed")
        (inside / "loose.txt").write_text("loose\n")
        (folder / "kept.txt").write_text("changed\n")

    changed, saved = await first.turn(act)
    assert changed
    assert [file.path for file in changed.files] == ["kept.txt"]
    assert saved
    second = await place.sandbox().boot(base=saved.work.base_commit, restores=True)
    restored = await second.work.restore(saved.work)
    assert restored
    assert (second.folder / "kept.txt").read_text() == "changed\n"
    assert (second.folder / "libs" / "one" / "lib.txt").read_text() == "one\n"
    (notes,) = restored.preambles.values()
    assert "inside submodules" in notes[0]
    # a commit that names what is nowhere else
    _, saved = await second.turn(
        lambda folder: (
            git(folder / "libs" / "one", "commit", "--quiet", "--allow-empty", "-m", "Nowhere else"),
            git(folder, "commit", "--quiet", "-am", "Names it"),
        )
    )
    assert saved
    third = await place.sandbox("third").boot(base=saved.work.base_commit, restores=True)
    assert await third.work.restore(saved.work)
    assert git(third.folder, "log", "-1", "--format=%s") == "Names it"
    assert (third.folder / "kept.txt").read_text() == "changed\n"


@pytest.mark.asyncio
async def test_files_in_git_lfs_are_fetched_where_that_is_installed_and_else_it_is_said(place: Place) -> None:
    (place.origin / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    git(place.origin, "commit", "--quiet", "-am", "Large files")
    without = place.sandbox("without")
    if shutil.which("git-lfs", path=without.spec.path) is None:
        assert "git-lfs is not installed here" in await prepared(without)
    programs = place.folder / "programs"
    programs.mkdir()
    asked = place.folder / "asked"
    (programs / "git-lfs").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (programs / "git-lfs").chmod(0o755)
    sandbox = place.sandbox("with", path=f"{programs}:{without.spec.path}")
    assert await prepared(sandbox) == "files of Git LFS fetched"
    assert asked.read_text().splitlines() == ["install --local --skip-repo", "pull"]
