"""What of the programs of who runs Valet a sandbox is shown: real files, and one real sandbox."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from valet_sandbox_controller.providers.person_path import PersonPath, look
from valet_sandbox_controller.testing import LocalProvider, answer


class Machine:
    """A home and an /opt of its own."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.opt = root / "opt"
        root.chmod(0o755)

    def program(self, path: Path, text: str = "#!/bin/sh\necho $0\n") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def link(self, path: Path, target: Path | str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def look(self, *directories: Path | str, hidden: tuple[Path, ...] = ()) -> PersonPath:
        return look(
            ":".join(map(str, directories)),
            home=str(self.home),
            shown=["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"],
            hidden=[str(each) for each in hidden],
            left_out=["/venv/bin"],
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def shown(found: PersonPath) -> set[str]:
    return {bind.target for bind in found.binds}


def test_the_order_is_the_persons_and_what_is_shown_anyway_needs_nothing(machine: Machine) -> None:
    own = machine.program(machine.home / "tools" / "x").parent
    found = machine.look(own, "/usr/bin", "relative", "", "/nowhere/bin", "/venv/bin", "/usr/bin", own)
    assert found.directories == (str(own), "/usr/bin")
    assert shown(found) == {str(own)}
    assert not any(bind.writable for bind in found.binds)


def test_of_a_home_only_programs_and_their_libraries_are_shown(machine: Machine) -> None:
    local = machine.home / ".local"
    machine.program(local / "lib" / "code-server-4" / "bin" / "code-server")
    machine.link(local / "bin" / "code-server", "../lib/code-server-4/bin/code-server")
    for secret in (local / "share" / "keyrings", machine.home / ".config", machine.home / ".ssh"):
        machine.program(secret / "secret")
    found = machine.look(local / "bin")
    assert found.directories == (str(local / "bin"),)
    assert shown(found) == {str(local / "bin"), str(local / "lib")}


def test_a_link_to_what_is_no_program_shows_nothing(machine: Machine) -> None:
    papers = machine.home / "papers"
    machine.program(papers / "diary").chmod(0o600)
    machine.link(machine.home / "bin" / "papers", papers)
    machine.link(machine.home / "bin" / "gone", machine.home / "nothing")
    machine.link(machine.home / "bin" / "circle", "circle")
    machine.link(machine.home / "bin" / "diary", papers / "diary")
    (machine.home / "bin" / "closed").mkdir(0o000)
    assert shown(machine.look(machine.home / "bin")) == {str(machine.home / "bin")}


def test_node_of_nvm_comes_with_its_packages_and_nothing_else_of_nvm(machine: Machine) -> None:
    version = machine.home / ".nvm" / "versions" / "node" / "v24.1.0"
    machine.program(version / "bin" / "node")
    machine.program(version / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    machine.link(version / "bin" / "npm", "../lib/node_modules/npm/bin/npm-cli.js")
    assert shown(machine.look(version / "bin")) == {str(version / "bin"), str(version / "lib")}


def test_links_lead_to_the_programs_own_folders(machine: Machine) -> None:
    tool = machine.home / ".local" / "share" / "pipx" / "venvs" / "tool"
    python = machine.program(machine.home / ".python" / "bin" / "python3.12")
    (machine.home / ".python" / "lib").mkdir()
    machine.program(tool / "bin" / "tool", f"#!{tool / 'bin' / 'python'}\n")
    machine.link(tool / "bin" / "python", python)
    (tool / "lib").mkdir()
    (tool / "pyvenv.cfg").touch()
    machine.link(machine.home / "bin" / "tool", tool / "bin" / "tool")
    (machine.home / "lib").mkdir()  # beside ~/bin, but it is the home that it lies in
    expected = {machine.home / "bin", *(tool / each for each in ("bin", "lib", "pyvenv.cfg"))}
    expected |= {machine.home / ".python" / "bin", machine.home / ".python" / "lib"}
    assert shown(machine.look(machine.home / "bin")) == set(map(str, expected))


def test_a_program_of_opt_is_shown_whole_unless_only_its_owner_may_read_it(machine: Machine) -> None:
    public, private = machine.opt / "code-server", machine.opt / "vault"
    machine.program(public / "code-server")
    machine.program(public / "node" / "node")
    machine.link(machine.home / "bin" / "code-server", public / "code-server")
    machine.program(private / "bin" / "vault")
    (private / "data").mkdir()
    private.chmod(0o750)
    found = machine.look(machine.home / "bin", private / "bin")
    assert shown(found) == {str(machine.home / "bin"), str(public), str(private / "bin")}


def test_neither_a_home_nor_what_holds_the_platforms_keys_is_ever_shown(machine: Machine) -> None:
    keys = machine.opt / "valet" / "data" / "keys"
    machine.program(keys / "secret")
    machine.program(machine.opt / "valet" / "bin" / "valet")
    machine.program(machine.home / "script")
    machine.link(machine.opt / "valet" / "bin" / "trap", keys / "secret")
    found = machine.look(
        machine.home, machine.home.parent, "/", "/proc/self", keys, keys.parent, machine.opt / "valet" / "bin",
        hidden=(keys.parent,),
    )  # fmt: skip
    assert shown(found) == {str(machine.opt / "valet" / "bin")}
    assert found.directories == (str(machine.opt / "valet" / "bin"),)


def test_folders_of_version_managers_that_only_dispatch_are_left_out(machine: Machine) -> None:
    machine.program(machine.home / ".pyenv" / "shims" / "python")
    assert machine.look(machine.home / ".pyenv" / "shims") == PersonPath(directories=(), binds=())


async def test_what_the_person_finds_the_agent_finds_and_can_run(
    machine: Machine, make_provider: Callable[[str], LocalProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    local = machine.home / ".local"
    machine.program(local / "lib" / "tool-1" / "tool", "#!/bin/sh\necho the tool\n")
    machine.link(local / "bin" / "the-persons-tool", "../lib/tool-1/tool")
    (local / "share").mkdir()
    (local / "share" / "secret").write_text("s")
    monkeypatch.setenv("HOME", str(machine.home))
    monkeypatch.setenv("PATH", f"{local / 'bin'}:{os.environ['PATH']}")
    task = f"""
import os, shutil, subprocess
said = subprocess.run(['the-persons-tool'], capture_output=True, text=True).stdout.strip()
writable = attempt(lambda: open({str(local / "bin" / "x")!r}, 'w'))[0]
answer([said, shutil.which('python3') is not None, os.listdir({str(local)!r}), writable])
"""
    answered = await answer(make_provider("bwrap"), "S1", task, list[str | bool | list[str]])
    assert answered[:2] == ["the tool", True]
    assert sorted(answered[2]) == ["bin", "lib"]  # type: ignore[arg-type]
    assert answered[3] is False
