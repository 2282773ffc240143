"""Claims about sharing: who is let in, by what, and what is kept of it."""

import hashlib
from typing import Any

import httpx
import pytest
from valet_api.testing import FakeLedger, problem
from valet_protocol.errors import Conflict, Forbidden
from valet_protocol.requests import AddParticipant, CreateShareLink, RemoveParticipant, RevokeShareLink


async def test_a_session_is_shared_with_a_user_by_name_or_id(
    client: httpx.AsyncClient, other: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    name, user = other.headers["user-agent"], (await other.get("/api/me")).json()["id"]
    problem(await other.get(f"/api/sessions/{session}"), 404)
    for known_as, role in ((name, "viewer"), (user, "collaborator")):
        shared = await client.put(f"/api/sessions/{session}/participants/{known_as}", json={"role": role})
        assert (shared.status_code, shared.json()) == (200, {"seq": 10})
    assert {command.participant for command in ledger.all(AddParticipant)} == {user}  # type: ignore[attr-defined]
    assert (await other.get(f"/api/sessions/{session}")).json()["role"] == "collaborator"
    found = (await client.get(f"/api/sessions/{session}/participants")).json()
    assert [(one["name"], one["role"]) for one in found["participants"]] == [
        ("owner", "owner"),
        (name, "collaborator"),
    ]
    assert (await client.delete(f"/api/sessions/{session}/participants/{name}")).status_code == 200
    (removal,) = ledger.all(RemoveParticipant)
    assert removal.participant == user  # type: ignore[attr-defined]
    problem(await other.get(f"/api/sessions/{session}"), 404)


@pytest.mark.parametrize(
    ("user", "body", "status", "code"),
    [
        ("nobody", {"role": "viewer"}, 422, "unknown_user"),
        ("%00", {"role": "viewer"}, 422, "nul_character"),
        ("owner", {"role": "owner"}, 400, "bad_request"),
        ("owner", {}, 400, "bad_request"),
    ],
)
async def test_sharing_that_cannot_be_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, user: str, body: Any, status: int, code: str
) -> None:
    problem(await client.put(f"/api/sessions/{session}/participants/{user}", json=body), status, code)


async def test_who_has_a_link_joins_and_only_its_hash_is_kept(
    client: httpx.AsyncClient, other: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    made = await client.post(f"/api/sessions/{session}/links", json={"role": "viewer", "expires_in_s": 3600})
    assert made.status_code == 201
    link = made.json()
    assert set(link) == {"link_id", "token", "url"}
    assert link["url"].endswith(f"/join#{link['token']}")
    (command,) = ledger.all(CreateShareLink)
    assert isinstance(command, CreateShareLink)
    assert command.token_sha256 == hashlib.sha256(link["token"].encode()).hexdigest()
    assert link["token"] not in str(command)
    assert command.expires_ms is not None
    joined = await other.post("/api/join", json={"token": link["token"]})
    assert (joined.status_code, joined.json()["id"], joined.json()["role"]) == (200, session, "viewer")
    assert link["link_id"] in str((await client.get(f"/api/sessions/{session}/participants")).json()["links"])
    assert (await client.delete(f"/api/sessions/{session}/links/{link['link_id']}")).status_code == 200
    assert len(ledger.all(RevokeShareLink)) == 1
    page = await other.get(link["url"])
    assert (page.status_code, "valet join" in page.text) == (200, True)


async def test_two_links_have_two_tokens(client: httpx.AsyncClient, ledger: FakeLedger, session: str) -> None:
    path = f"/api/sessions/{session}/links"
    made = [(await client.post(path, json={"role": "viewer"})).json() for _ in range(2)]
    keyed = [
        (await client.post(path, json={"role": "viewer"}, headers={"Idempotency-Key": key})).json() for key in "ab"
    ]
    assert len({link["token"] for link in made + keyed}) == 4


@pytest.mark.parametrize("token", ["x", "01JZZZZZZZZZZZZZZZZZZZZZZZ.guess", ".", "a" * 100, "../x", "\0"])
async def test_a_wrong_token_opens_nothing(client: httpx.AsyncClient, ledger: FakeLedger, token: str) -> None:
    problem(await client.post("/api/join", json={"token": token}), 404)


@pytest.mark.parametrize("body", [{}, {"role": "owner"}, {"role": "viewer", "expires_in_s": 0}, {"role": 1}], ids=str)
async def test_a_link_that_cannot_be_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, body: Any
) -> None:
    problem(await client.post(f"/api/sessions/{session}/links", json=body), 400)


async def test_what_the_ledger_forbids_is_told_in_its_words(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.refuse[CreateShareLink] = Forbidden("role_too_low", "Only owners share.")
    ledger.refuse[RemoveParticipant] = Conflict("last_owner", "An owner stays.")
    document = problem(await client.post(f"/api/sessions/{session}/links", json={"role": "viewer"}), 403)
    assert (document["code"], document["detail"]) == ("role_too_low", "Only owners share.")
    problem(await client.delete(f"/api/sessions/{session}/participants/owner"), 409, "last_owner")
