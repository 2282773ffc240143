"""What people are told when nothing was done, and the commands about people, against an API that says what a test
wants."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from valet_local.cli.testing import valet
from valet_local.client import bodies, endpoint
from valet_local.client.errors import BadEndpoint
from valet_local.client.testing import SESSION, VIEW, FakeApi
from valet_protocol.errors import Problem
from valet_protocol.requests import DiffView, Done, MessagePage, MessageView, PartView, StateView

AT = f"/api/sessions/{SESSION}"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        api.answers["GET", AT] = (200, VIEW)
        yield api


def problem(status: int, code: str, detail: str) -> tuple[int, Problem]:
    return status, Problem(title=code, status=status, detail=detail, code=code)


async def test_users_are_listed_added_removed_and_given_new_tokens(api: FakeApi) -> None:
    ada = bodies.User(id="U", name="ada", admin=False, email="ada@example.org")
    token = bodies.UserToken(id="U", name="ada", token="valet_secret")
    api.answers |= {
        ("GET", "/api/users"): (200, bodies.Users(items=[ada])),
        ("POST", "/api/users"): (201, token),
        ("DELETE", "/api/users/ada"): (200, bodies.UserName(id="U", name="ada")),
        ("POST", "/api/users/ada/token"): (201, token),
    }
    status, out, _ = await valet(api, "users", "list")
    assert (status, out.splitlines()[1].split()[:2]) == (0, ["ada", "U"])
    assert json.loads((await valet(api, "users", "list", "--json"))[1])[0]["email"] == "ada@example.org"
    assert (await valet(api, "users", "add", "ada"))[:2] == (0, "valet_secret\n")
    assert (await valet(api, "users", "token", "ada"))[:2] == (0, "valet_secret\n")
    status, out, err = await valet(api, "users", "remove", "ada")
    assert (status, out, "Their sessions stay" in err) == (0, "", True)


async def test_what_names_nothing_is_refused_with_words(api: FakeApi) -> None:
    api.answers |= {
        ("POST", f"{AT}/queue"): problem(404, "prompt_not_found", "No prompt 'nope' was given to this session."),
        ("GET", f"{AT}/participants"): (200, bodies.Participants(participants=[], links=[])),
        ("DELETE", f"{AT}/participants/nope"): (200, Done(seq=1)),
    }
    status, out, err = await valet(api, "queue", SESSION, "--order", "nope")
    assert (status, out, err) == (1, "", "error: No prompt 'nope' was given to this session.\n")
    status, out, err = await valet(api, "share", SESSION, "--revoke", "nope")
    assert (status, out, "'nope'" in err) == (1, "", True)


async def test_an_event_that_is_not_there_yet_is_said_to_be(api: FakeApi) -> None:
    diff = DiffView(base_commit=None, head_commit=None, branch=None, files=[], patch="", truncated=False, seq=3)
    api.answers["GET", f"{AT}/state"] = (200, StateView(at=9, session=VIEW, messages=[], next=None, diff=diff))
    for at, told in (("9", False), ("999999", True)):
        status, _, err = await valet(api, "state", SESSION, "--at", at)
        assert (status, "as it is now" in err) == (0, told)
    api.refuse_streams = True
    api.answers["GET", f"{AT}/events"] = problem(400, "bad_cursor", "99 is beyond the end of the log")
    status, _, err = await valet(api, "follow", SESSION, "--after", "99")
    assert (status, err) == (1, "error: There is no event 99 yet; the session's last one is 9. Give that, or less.\n")


async def test_what_is_no_address_is_said_to_be_none_before_a_token_is_asked_for(
    api: FakeApi,
) -> None:
    with pytest.raises(BadEndpoint, match="'foo' is no address"):
        endpoint.named("foo", None, {})
    status, _, err = await valet(api, "sessions", "--url", "foo")
    assert (status, "'foo' is no address" in err) == (1, True)


async def test_a_token_that_is_not_known_is_said_with_the_file_that_has_the_right_one(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("valet_local.cli.default_data_dir", lambda: tmp_path)
    api.answers["GET", "/api/sessions"] = problem(401, "wrong_token", "This token is not known here.")
    assert (await valet(api, "sessions"))[2] == "error: This token is not known here.\n"
    (tmp_path / "valet.json").touch()
    assert str(tmp_path / "valet.json") in (await valet(api, "sessions"))[2]


async def test_stopping_what_does_not_run_is_no_error(api: FakeApi, tmp_path: Path) -> None:
    assert await valet(api, "down", "--data-dir", str(tmp_path)) == (0, "Valet is not running.\n", "")


async def test_a_tool_that_was_interrupted_is_shown_so(api: FakeApi) -> None:
    diff = DiffView(base_commit=None, head_commit=None, branch=None, files=[], patch="", truncated=False, seq=3)
    tool = PartView(part_id="p", kind="tool", tool="bash", status="error", error="interrupted", seq=4)
    message = MessageView(
        id="m", role="assistant", turn_id="T", author=None, text="", parts=[tool], finish=None, model=None, cost=0,
        tokens=VIEW.tokens, error=None, parent_session=None, complete=True, created_at="", seq=4,
    )  # fmt: skip
    api.answers["GET", f"{AT}/diff"] = (200, diff)
    api.answers["GET", f"{AT}/messages"] = (200, MessagePage(items=[message], next=None))
    status, out, _ = await valet(api, "show", SESSION)
    assert (status, "interrupted" in out, "running" in out) == (0, True, False)
