"""Who may sign in: listing, removing, a new token. Real PostgreSQL; the ledger is scripted."""

from typing import Any

import httpx
from valet_api.testing import FakeLedger
from valet_protocol.ids import new_id


def refused(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def signed_in(api: Any, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=api.url, headers={"Authorization": f"Bearer {token}"}, timeout=20)


async def made(client: httpx.AsyncClient, name: str, **headers: str) -> Any:
    response = await client.post("/api/users", json={"name": name}, headers=headers)
    assert response.status_code == 201
    return response.json()


async def test_a_removed_users_token_is_refused_at_once_and_their_session_stays_theirs_under_their_name(
    api: Any, client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    name = f"user-{new_id().lower()}"
    user = await made(client, name)
    async with signed_in(api, user["token"]) as theirs:
        session = (await theirs.post("/api/sessions", json={})).json()["id"]
        assert [one["name"] for one in (await client.get("/api/users")).json()["items"] if one["name"] == name] == [
            name
        ]
        assert (await client.delete(f"/api/users/{name}")).json() == {"id": user["id"], "name": name}
        assert refused(await theirs.get(f"/api/sessions/{session}")) == (401, "wrong_token")
    assert name not in [one["name"] for one in (await client.get("/api/users")).json()["items"]]
    assert refused(await client.delete(f"/api/users/{name}")) == (404, "user_not_found")
    again = await made(client, name)
    assert again["id"] != user["id"]
    async with signed_in(api, again["token"]) as another:
        assert refused(await another.get(f"/api/sessions/{session}"))[0] == 404


async def test_making_a_user_once_more_after_the_removal_does_not_bring_them_back(
    api: Any, client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    name, key = f"user-{new_id().lower()}", {"Idempotency-Key": new_id()}
    user = await made(client, name, **key)
    await client.delete(f"/api/users/{user['id']}")
    assert refused(await client.post("/api/users", json={"name": name}, headers=key)) == (409, "name_taken")
    async with signed_in(api, user["token"]) as theirs:
        assert refused(await theirs.get("/api/me")) == (401, "wrong_token")


async def test_a_new_token_replaces_those_before_once_for_one_key(
    api: Any, client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    user = await made(client, f"user-{new_id().lower()}")
    path, key = f"/api/users/{user['name']}/token", {"Idempotency-Key": new_id()}
    first = [(await client.post(path, headers=key)).json() for _ in range(2)]
    assert first[0] == first[1]
    second = (await client.post(path)).json()
    assert (await client.post(path, headers=key)).json() == first[0], "the first request once more"
    for token, status in ((user["token"], 401), (first[0]["token"], 401), (second["token"], 200)):
        async with signed_in(api, token) as theirs:
            assert (await theirs.get("/api/me")).status_code == status


async def test_the_owner_stays_and_only_administrators_change_users(
    client: httpx.AsyncClient, other: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    assert refused(await client.delete("/api/users/owner")) == (409, "owner_stays")
    assert refused(await client.post("/api/users/owner/token")) == (409, "owner_stays")
    assert refused(await other.get("/api/users")) == (403, "not_an_administrator")
    assert refused(await other.delete("/api/users/owner")) == (403, "not_an_administrator")
    assert refused(await other.post("/api/users/owner/token")) == (403, "not_an_administrator")


async def test_nobody_is_shown_a_regular_expression(client: httpx.AsyncClient, ledger: FakeLedger) -> None:
    told = [
        await client.post("/api/users", json={"name": "No Good"}),
        await client.post("/api/users", json={"name": "good"}, headers={"Idempotency-Key": "a\tb"}),
        await client.patch("/api/me", json={"email": "nobody"}),
        await client.patch("/api/me", json={"display_name": "<b>"}),
    ]
    for response in told:
        assert response.status_code == 400
        assert "regex" not in response.json()["detail"]
    assert "small letters" in told[0].json()["detail"]
