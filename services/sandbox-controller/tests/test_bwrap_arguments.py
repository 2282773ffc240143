"""Claims about the command line of a sandbox, without starting one."""

import msgspec
from valet_sandbox_controller.providers.bwrap import ISOLATION, Bind, Box, Symlink, arguments, probe, without_covered

BOX = Box(
    bwrap="/usr/bin/bwrap",
    hostname="sandbox",
    symlinks=(Symlink("usr/bin", "/bin"),),
    binds=(Bind("/usr", "/usr"), Bind("/d/workspace", "/workspace", writable=True)),
    environment=(("HOME", "/home/agent"),),
    directory="/workspace",
    tmp_bytes=4096,
    command=("python", "-m", "valet_runner"),
    info_fd=7,
    block_fd=8,
)


def _after(line: list[str], option: str) -> list[str]:
    return [line[at + 1] for at, word in enumerate(line) if word == option]


def test_a_sandbox_outlives_its_controller() -> None:
    assert "--die-with-parent" not in arguments(BOX)


def test_every_namespace_is_its_own_and_no_capability_is_kept() -> None:
    line = arguments(BOX)
    assert {"--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--clearenv"} <= set(line)
    assert _after(line, "--cap-drop") == ["ALL"]
    assert "--share-net" not in line
    assert "--cap-add" not in line


def test_kernel_settings_are_read_only_after_proc_is_mounted() -> None:
    line = arguments(BOX)
    proc = line.index("--proc")
    covered = line.index("/proc/sys")
    assert line[covered - 1] == "--ro-bind"
    assert covered > proc


def test_only_what_is_said_to_be_writable_is() -> None:
    line = arguments(BOX)
    assert _after(line, "--bind") == ["/d/workspace"]
    assert "/usr" in _after(line, "--ro-bind")


def test_what_is_not_bound_cannot_be_written_either() -> None:
    line = arguments(BOX)
    remounted = line.index("--remount-ro")
    assert line[remounted + 1] == "/"
    assert remounted > max(
        at for at, word in enumerate(line) if word in ("--bind", "--ro-bind", "--symlink", "--tmpfs")
    )


def test_the_command_comes_last_behind_a_separator() -> None:
    assert arguments(BOX)[-4:] == ["--", "python", "-m", "valet_runner"]


def test_descriptors_that_are_not_given_are_not_named() -> None:
    line = arguments(msgspec.structs.replace(BOX, info_fd=None, block_fd=None))
    assert not {"--info-fd", "--block-fd", "--json-status-fd"} & set(line)


def test_the_probe_uses_the_isolation_of_a_sandbox() -> None:
    assert set(ISOLATION) <= set(probe("bwrap"))


def test_a_path_inside_one_already_shown_is_not_bound_again() -> None:
    binds = without_covered(
        [Bind("/usr", "/usr"), Bind("/usr/lib/python3", "/usr/lib/python3"), Bind("/usr2", "/usr2")]
    )
    assert [bind.source for bind in binds] == ["/usr", "/usr2"]


def test_a_bind_to_another_place_is_kept() -> None:
    binds = without_covered([Bind("/usr", "/usr"), Bind("/usr/bin/rg", "/run/valet/bin/rg")])
    assert len(binds) == 2
