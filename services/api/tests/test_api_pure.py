"""Claims about what is decided without any I/O: repositories, branches, models, cursors."""

from pathlib import Path

import msgspec
import pytest
from valet_api.model_files import ModelFiles
from valet_api.models import checked_model, chosen_model, listed
from valet_api.repos import checked_branch, checked_repo
from valet_api.routes.live import checked_cursor
from valet_protocol.errors import BadRequest, Unprocessable
from valet_service.config_file import ModelList as Known
from valet_service.config_file import ValetConfig, model_list_path, parse, with_environment


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
    assert checked_repo(repo, lambda path: path.startswith("/srv")) == repo


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
        checked_repo(repo, lambda path: path.startswith("/srv"))
    assert refusal.value.code in ("bad_repo", "repo_not_found")
    assert len(refusal.value.detail) < 3000


@pytest.mark.parametrize("repo", ["https://u:p@git.example.org/a", "https://token@git.example.org/a", "ssh://u:p@h/a"])
def test_credentials_in_an_address_are_refused_and_not_repeated(repo: str) -> None:
    with pytest.raises(Unprocessable) as refusal:
        checked_repo(repo, lambda _: True)
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
