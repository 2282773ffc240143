"""Requests: typed answers, refusals in the API's own words, repeated while the API restarts."""

import msgspec
import pytest
from valet_local.client.bodies import NewSession
from valet_local.client.endpoint import Endpoint, named
from valet_local.client.errors import BadAnswer, BadEndpoint, NotReachable
from valet_local.client.http import Client
from valet_local.client.testing import SESSION, VIEW, FakeApi
from valet_protocol.errors import Conflict, NotFound, Problem
from valet_protocol.requests import Accepted, Done, SessionPage


async def test_a_session_is_created_with_what_was_said_and_nothing_else():
    async with FakeApi() as api, Client(api.endpoint) as client:
        api.answers["POST", "/api/sessions"] = (201, VIEW)
        view = await client.create_session(repo="/a/repo")
    assert view == VIEW
    assert api.seen[0].body == b'{"repo":"/a/repo"}'
    assert msgspec.json.decode(api.seen[0].body, type=NewSession).branch is None
    assert api.seen[0].headers["authorization"] == "Bearer secret"


async def test_a_write_whose_answer_was_lost_is_repeated_with_the_same_key():
    async with FakeApi() as api, Client(api.endpoint) as client:
        api.answers["POST", f"/api/sessions/{SESSION}/messages"] = (
            202,
            Accepted(prompt_id="p", seq=3, status="queued"),
        )
        api.hang_up, api.restarting = 1, 1
        accepted = await client.send_message(SESSION, "do it")
    assert accepted.seq == 3
    keys = [seen.headers["idempotency-key"] for seen in api.seen]
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_two_writes_have_two_keys():
    async with FakeApi() as api, Client(api.endpoint) as client:
        api.answers["POST", f"/api/sessions/{SESSION}/abort"] = (202, Done(seq=3))
        await client.abort(SESSION)
        await client.abort(SESSION)
    assert len({seen.headers["idempotency-key"] for seen in api.seen}) == 2


async def test_a_refusal_keeps_its_code_and_its_words():
    problem = Problem(title="Conflict", status=409, detail="nothing runs", code="nothing_running")
    async with FakeApi() as api, Client(api.endpoint) as client:
        api.answers["POST", f"/api/sessions/{SESSION}/abort"] = (409, problem)
        with pytest.raises(Conflict, match="nothing runs") as caught:
            await client.abort(SESSION)
    assert caught.value.code == "nothing_running"


async def test_every_page_of_sessions_is_read():
    other = "01ARZ3NDEKTSV4RRFFQ69G5FAW"
    async with FakeApi() as api, Client(api.endpoint) as client:
        api.answers["GET", "/api/sessions"] = (200, SessionPage(items=[VIEW], next=SESSION))

        def turn_the_page(_: object) -> None:
            if len(api.seen) == 2:
                api.answers["GET", "/api/sessions"] = (
                    200,
                    SessionPage(items=[msgspec.structs.replace(VIEW, id=other)], next=None),
                )

        api.on_request = turn_the_page
        assert [view.id async for view in client.sessions()] == [SESSION, other]


async def test_an_id_that_is_none_is_refused_without_asking():
    async with FakeApi() as api, Client(api.endpoint) as client:
        with pytest.raises(NotFound, match="valet sessions"):
            await client.session("../users")
    assert api.seen == []


async def test_nobody_there_is_said_after_the_patience():
    async with FakeApi() as api:
        endpoint = api.endpoint
    async with Client(endpoint, patience=0.2) as client:
        with pytest.raises(NotReachable, match="valet up"):
            await client.session(SESSION)


async def test_another_program_at_the_address_is_recognised():
    async with FakeApi() as api, Client(api.endpoint) as client:
        api.answers["GET", f"/api/sessions/{SESSION}"] = (200, ["hello"])
        with pytest.raises(BadAnswer, match="does not answer like Valet"):
            await client.session(SESSION)


def test_an_address_is_taken_from_flags_before_the_environment():
    environment = {"VALET_URL": "http://env:1", "VALET_TOKEN": "e"}
    assert named("http://flag:2/api", None, environment) == Endpoint(url="http://flag:2", token="e")
    assert named(None, None, environment) == Endpoint(url="http://env:1", token="e")
    assert named(None, None, {}) is None


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [("http://x", None, "needs a token"), (None, "t", "needs the address"), ("x:1", "t", "not an http or https URL")],
)
def test_half_an_address_is_refused(url: str | None, token: str | None, words: str):
    with pytest.raises(BadEndpoint, match=words):
        named(url, token, {})
