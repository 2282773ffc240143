"""Claims about what is decided without any I/O: repositories, branches, models, cursors."""

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import msgspec
import pytest
from valet_api import booting, disk
from valet_api.imports import Reader
from valet_api.local_repos import LocalMachine
from valet_api.model_files import ModelFiles
from valet_api.models import checked_model, chosen_model, listed
from valet_api.pages import operations, welcome
from valet_api.repos import check_access, checked_branch, checked_repo
from valet_api.routes.live import checked_cursor
from valet_protocol.errors import BadRequest, Forbidden, Unavailable, Unprocessable
from valet_protocol.events.agent import Tokens
from valet_protocol.requests import BootStepView, SandboxView, SessionView
from valet_protocol.requests.base import SessionStatus
from valet_service.config_file import LocalRepos, ValetConfig, model_list_path, parse, with_environment
from valet_service.config_file import ModelList as Known


class Disk:
    """A machine with repositories in /srv, and directories that are none in /etc."""

    def __init__(self, *, everything: bool = True) -> None:
        self._everything = everything

    def open_to_them(self, path: str) -> bool:
        return self._everything

    def at(self, path: str) -> Literal["repository", "directory", "nothing"]:
        assert self._everything, "what is not open to them was looked at"
        return "repository" if path.startswith("/srv") else "directory" if path.startswith("/etc") else "nothing"


@pytest.mark.parametrize(
    "repo",
    [
        "https://git.example.org/team/app.git",
        "http://10.0.0.1:3000/a",
        "https://[::1]:8443/a.git",
        "ssh://git@git.example.org:2222/team/app.git",
        "git://git.example.org/app",
        "git@git.example.org:team/app.git",
        "git@git.example.org:~user/app.git",
        "file:///srv/app",
        "/srv/app",
        "/srv/with blank",
    ],
)
def test_repositories_git_can_fetch_are_taken(repo: str) -> None:
    assert checked_repo(repo, Disk()) == repo


@pytest.mark.parametrize(
    "repo",
    [
        "",
        "app",
        "./app",
        "~/app",
        "../app",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=id",
        "ext::sh -c id",
        "ssh://-oProxyCommand=id/app",
        "ssh://-x@git.example.org/app",
        "git@-oProxyCommand=id:app",
        "git@host:-x",
        "https://",
        "https:///app",
        "https://git.example.org",
        "https://git.example.org:port/app",
        "https://git.example.org/a b",
        "https://git.example.org/a\n",
        "https://[::1/app",
        "ftp://git.example.org/app",
        "javascript://git.example.org/app",
        "/no/such",
        "/srv\0/app",
        "file://relative",
        "file:///no/such",
        "C:\\app",
        "https://git.example.org/" + "a" * 3000,
    ],
)
def test_everything_else_is_refused_with_what_to_give(repo: str) -> None:
    with pytest.raises(Unprocessable) as refusal:
        checked_repo(repo, Disk())
    assert refusal.value.code in ("bad_repo", "repo_not_found")
    assert len(refusal.value.detail) < 3000


@pytest.mark.parametrize("repo", ["/etc", "file:///etc", "file:///etc/"])
def test_a_directory_that_is_no_repository_is_refused(repo: str) -> None:
    with pytest.raises(Unprocessable) as refusal:
        checked_repo(repo, Disk())
    assert refusal.value.code == "not_a_repository"


@pytest.mark.parametrize("repo", ["/srv/app", "/etc", "/no/such", "file:///srv/app", "file://host/srv/app"])
def test_what_is_not_open_to_somebody_is_refused_alike_whether_it_is_there_or_not(repo: str) -> None:
    with pytest.raises(Forbidden) as refusal:
        checked_repo(repo, Disk(everything=False))
    assert refusal.value.code == "local_repo_not_allowed"
    assert "/srv" not in refusal.value.detail


def test_who_may_have_which_directory_of_the_machine(tmp_path: Path) -> None:
    allowed, other = tmp_path / "repos", tmp_path / "secret"
    for place in (allowed / "app" / ".git", other / ".git", tmp_path / "repos-of-others"):
        place.mkdir(parents=True)
    (allowed / "way-out").symlink_to(other)
    rules: list[tuple[LocalRepos, bool, bool]] = [
        ("administrators", False, False),
        ("everyone", True, True),
        ((str(allowed),), True, False),
    ]
    for rule, inside, outside in rules:
        somebody, administrator = (LocalMachine(rule, administrator=admin) for admin in (False, True))
        assert somebody.open_to_them(str(allowed / "app")) is inside
        for path in (other, tmp_path / "repos-of-others", allowed / ".." / "secret", allowed / "way-out"):
            assert somebody.open_to_them(str(path)) is outside, path
        assert administrator.open_to_them(str(other))
    found = LocalMachine("everyone", administrator=False)
    assert [found.at(str(path)) for path in (other, allowed, tmp_path / "no")] == ["repository", "directory", "nothing"]


def test_an_import_says_which_repository_it_started_from() -> None:
    line = (
        b'{"specversion":"1.0","id":"a","source":"x","type":"fact.session_requested","seq":1,'
        b'"subject":"01JABCDEFGHJKMNPQRSTVWXYZ0","time":"2026-01-01T00:00:00Z","dataversion":1,'
        b'"data":{"owner":"u","repo":"/srv/secret","model":"a/b"}}\n'
    )
    reader = Reader()
    assert len(list(reader.feed(line))) == 1
    assert reader.repo == "/srv/secret"
    with pytest.raises(Forbidden):
        check_access(reader.repo, Disk(everything=False))


def test_the_disk_refuses_what_can_wait_first_and_says_so_when_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 0

    def usage(_: object) -> SimpleNamespace:
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    looked = disk.Disk(tmp_path, None)
    free = 600 << 20
    looked.require_room()
    assert looked.full() is None
    free = 400 << 20
    with pytest.raises(Unavailable, match="Only 400 MB are free") as refusal:
        looked.require_room()
    assert refusal.value.code == "disk_nearly_full"
    assert looked.full() is None, "what runs goes on"
    free = 3 << 20
    assert "disk is full (3 MB" in (looked.full() or "")


async def test_a_broker_that_cannot_write_makes_the_platform_not_ready_and_other_complaints_do_not(
    tmp_path: Path,
) -> None:
    said = ""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f'HTTP/1.0 503 x\r\nContent-Type: application/json\r\n\r\n{{"error":"{said}"}}'.encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    looked = disk.Disk(tmp_path, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hidden/healthz")
    assert await looked.broken() is None
    said = "JetStream stream 'A > SESSIONS' write error: no space left on device"
    assert "cannot write the log" in (await looked.broken() or "")
    said = "JetStream is not current"
    assert await looked.broken() is None
    server.close()
    await server.wait_closed()
    assert await looked.broken() is None, "a broker that does not answer is named by another question"


def test_the_pages_load_nothing_and_show_nothing_as_it_was_sent() -> None:
    document = {
        "info": {"title": "T", "description": "D"},
        "paths": {
            "/a/{b}": {"get": {"operationId": "o", "summary": "<script>", "tags": ["x"], "responses": {"200": {}}}}
        },
    }
    for page in (operations(document), welcome('http://h"><script>')):
        assert b"<script" not in page
        assert b"src=" not in page
        assert b"<link" not in page


@pytest.mark.parametrize("repo", ["https://u:p@git.example.org/a", "https://token@git.example.org/a", "ssh://u:p@h/a"])
def test_credentials_in_an_address_are_refused_and_not_repeated(repo: str) -> None:
    with pytest.raises(Unprocessable) as refusal:
        checked_repo(repo, Disk())
    assert refusal.value.code == "credentials_in_repo"
    assert repo not in refusal.value.detail


@pytest.mark.parametrize("branch", ["main", "feature/x", "v1.2", "a@b", "é", "a-"])
def test_branches_git_allows_are_taken(branch: str) -> None:
    assert checked_branch(branch) == branch


@pytest.mark.parametrize(
    "branch",
    [
        *(
            "",
            "-x",
            "a..b",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.",
        ),
        *("a.lock", "a.lock/b", "@", "a@{1}", "a\n", "a\x7f", "x" * 300),
    ],
)
def test_branches_git_refuses_are_refused(branch: str) -> None:
    with pytest.raises(Unprocessable):
        checked_branch(branch)


def test_of_a_provider_from_the_environment_any_model_is_taken() -> None:
    models = listed(with_environment(ValetConfig(), {"ANTHROPIC_API_KEY": "set"}))
    assert checked_model(models, "anthropic/anything") == "anthropic/anything"
    with pytest.raises(Unprocessable, match=r"anthropic/\*"):
        checked_model(models, "openai/anything")
    known = listed(with_environment(ValetConfig(), {"ANTHROPIC_API_KEY": "set"}), {"anthropic": ("opus",)})
    assert checked_model(known, "anthropic/opus") == "anthropic/opus"
    with pytest.raises(Unprocessable, match="anthropic/opus"):
        checked_model(known, "anthropic/anything")


def test_a_session_that_names_no_model_gets_the_file_s_or_the_first_provider_s() -> None:
    by_key = with_environment(ValetConfig(), {"ANTHROPIC_API_KEY": "set", "OPENAI_API_KEY": "set"})
    assert chosen_model(listed(by_key), None).startswith("anthropic/")
    providers = '[providers.local]\nbase_url = "http://127.0.0.1:1/v1"\nmodels = ["a", "b"]\n'
    assert chosen_model(listed(parse(providers)), None) == "local/a"
    assert chosen_model(listed(parse('default_model = "local/b"\n' + providers)), None) == "local/b"
    with pytest.raises(Unprocessable, match="default_model") as refusal:
        chosen_model(listed(ValetConfig()), None)
    assert refusal.value.code == "no_model"


def test_the_models_the_agent_knows_are_listed_once_their_file_is_there(tmp_path: Path) -> None:
    files = ModelFiles(with_environment(ValetConfig(), {"OPENAI_API_KEY": "set"}), tmp_path, {})
    assert files.current().items == []
    path = model_list_path(tmp_path, "openai")
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(Known(agent="1", models=("gpt",))))
    assert [item.id for item in files.current().items] == ["openai/gpt"]


def test_without_any_provider_the_refusal_says_how_to_configure_one() -> None:
    with pytest.raises(Unprocessable, match="ANTHROPIC_API_KEY"):
        checked_model(listed(ValetConfig()), "a/b")


def test_a_listed_model_may_have_slashes_in_its_name() -> None:
    config = parse('[providers.local]\nbase_url = "http://127.0.0.1:1/v1"\nmodels = ["team/model:7b"]\n')
    assert checked_model(listed(config), "local/team/model:7b") == "local/team/model:7b"


@pytest.mark.parametrize("text", ["-1", "", "1.0", "1e3", " 1", "１", "9" * 40, "0x1"])
def test_a_cursor_is_a_plain_number(text: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        checked_cursor(text)
    assert refusal.value.code == "bad_cursor"


def test_a_session_that_boots_says_what_it_waits_for() -> None:
    def words(*steps: BootStepView, status: SessionStatus = "booting", repo: str | None = "https://h/r") -> str:
        view = SessionView(
            id="s",
            status=status,
            status_detail="",
            owner="u",
            title="",
            repo=repo,
            branch=None,
            model="a/b",
            created_at="",
            updated_at="",
            epoch=1,
            cost=0,
            tokens=Tokens(),
            turns=0,
            sandbox=SandboxView(boot=list(steps)),
            seq=1,
        )
        return booting.told(view).status_detail

    over = {name: BootStepView(step=name, ms=1, outcome="ok") for name in ("environment", "git", "clone", "opencode")}
    begun = (over["environment"], over["git"])
    assert words(status="provisioning") == "Its sandbox is being made."
    assert words() == words(*over.values()) == "Its sandbox is starting."
    assert words(*begun) == "Its repository is being cloned."
    assert words(*begun, repo=None) == "Its workspace is being made ready."
    assert words(*begun, over["clone"]).startswith("Its agent is starting")
    slow = BootStepView(step="opencode", ms=1, outcome="failed", detail="no answer yet")
    assert words(*begun, over["clone"], slow) == "Its agent is slow to start: no answer yet"
    assert words(*over.values(), status="ready") == ""
