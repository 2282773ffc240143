"""Claims about limits and refusals that need no sandbox."""

from pathlib import Path

import pytest
from valet_sandbox_controller.errors import ProviderFailed, RepositoryUnusable
from valet_sandbox_controller.provider import Limits
from valet_sandbox_controller.providers.cgroups import Setting, settings
from valet_sandbox_controller.providers.storage import Storage, exit_code, first_process
from valet_sandbox_controller.repositories import host_path, inspect

LIMITS = Limits(memory_mb=512, cpus=1.5, pids=100)


def test_the_same_limits_are_said_in_the_words_of_either_version() -> None:
    assert Setting("memory", "memory.max", str(512 << 20)) in settings(LIMITS, 2)
    assert Setting("cpu", "cpu.max", "150000 100000") in settings(LIMITS, 2)
    assert Setting("memory", "memory.limit_in_bytes", str(512 << 20)) in settings(LIMITS, 1)
    assert Setting("cpu", "cpu.cfs_quota_us", "150000") in settings(LIMITS, 1)


def test_a_full_disk_is_named_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("valet_sandbox_controller.limits.FREE_DISK_BYTES", 1 << 62)
    with pytest.raises(ProviderFailed, match="is full") as caught:
        Storage(tmp_path, tmp_path / "run").prepare("S1")
    assert not caught.value.retryable
    assert not Storage(tmp_path, tmp_path / "run").of("S1").gateway.exists()


def test_a_status_file_cut_short_still_gives_what_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "status"
    file.write_text('{ "child-pid": 12, "net-namespace": 4026532185 }\n{ "exit-co')
    assert (first_process(str(file)), exit_code(str(file))) == (12, None)
    file.write_text('{ "child-pid": 12 }\n{ "exit-code": 3 }\n')
    assert exit_code(str(file)) == 3
    assert exit_code(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("repo", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:///a%20b", "/a b"),
        ("https://example.org/a.git", None),
        ("git@example.org:a/b", None),
        (None, None),
    ],
)
def test_paths_of_the_host_are_told_from_urls(repo: str | None, path: str | None) -> None:
    assert host_path(repo) == (None if path is None else Path(path))


def test_a_directory_inside_a_repository_is_refused_naming_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "inner").mkdir()
    with pytest.raises(RepositoryUnusable, match=f"lies inside the repository {tmp_path}"):
        inspect(tmp_path / "inner")


def test_a_bare_repository_is_taken(tmp_path: Path) -> None:
    for name in ("objects", "refs"):
        (tmp_path / name).mkdir()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    assert inspect(tmp_path).path == tmp_path
