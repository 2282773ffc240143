"""Claims about Idempotency-Key: a request with it is done once, whatever happens in between."""

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest
from valet_api import limits
from valet_api.replies import Replies, Scope
from valet_api.testing import FakeLedger, problem
from valet_protocol.errors import Unavailable
from valet_protocol.ids import new_id
from valet_protocol.requests import AbortTurn, AnswerQuestion, CreateShareLink, SubmitPrompt
from valet_service.testing import until


def key() -> dict[str, str]:
    return {"Idempotency-Key": new_id()}


async def test_another_request_with_the_same_key_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    path, same = f"/api/sessions/{session}/messages", key()
    first = await client.post(path, json={"content": "go"}, headers=same)
    assert first.status_code == 202
    problem(await client.post(path, json={"content": "stop"}, headers=same), 422, "idempotency_key_reused")
    again = await client.post(path, json={"content": "go"}, headers=same)
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (202, first.json(), "true")
    assert again.headers["content-type"] == first.headers["content-type"]
    assert len(ledger.all(SubmitPrompt)) == 1
    other_address = await client.post(f"/api/sessions/{session}/answer", json={"answer": "x"}, headers=same)
    assert other_address.status_code == 200


async def test_a_key_is_a_user_s_own(client: httpx.AsyncClient, other: httpx.AsyncClient, ledger: FakeLedger) -> None:
    same = key()
    mine = await client.post("/api/sessions", json={}, headers=same)
    theirs = await other.post("/api/sessions", json={"title": "T"}, headers=same)
    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert mine.json()["id"] != theirs.json()["id"]


async def test_an_answer_outlives_the_api(
    api: Any, client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.running = True
    path, same = f"/api/sessions/{session}/abort", key()
    assert (await client.post(path, headers=same)).status_code == 202
    api.kill()
    api.start()
    again = await client.post(path, headers=same)
    assert (again.status_code, again.json()) == (202, {"seq": 8})
    assert len(ledger.all(AbortTurn)) == 1


async def test_a_refusal_is_answered_alike_and_a_failure_of_the_platform_is_not_remembered(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    path, same = f"/api/sessions/{session}/abort", key()
    problem(await client.post(path, headers=same), 409, "nothing_running")
    ledger.running = True
    problem(await client.post(path, headers=same), 409, "nothing_running")
    failing = key()
    ledger.refuse[AbortTurn] = Unavailable("unavailable", "The ledger restarts.")
    problem(await client.post(path, headers=failing), 503, "unavailable")
    del ledger.refuse[AbortTurn]
    assert (await client.post(path, headers=failing)).status_code == 202


async def test_a_malformed_request_does_not_use_its_key_up(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    path, same = f"/api/sessions/{session}/messages", key()
    problem(await client.post(path, json={"contents": "go"}, headers=same), 400)
    assert (await client.post(path, json={"content": "go"}, headers=same)).status_code == 202


async def test_a_repetition_waits_for_the_first_one_s_answer(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.running = True
    ledger.hold.clear()
    path, same = f"/api/sessions/{session}/abort", key()
    first = asyncio.create_task(client.post(path, headers=same))
    await until(lambda: ledger.all(AbortTurn), "the ledger is asked")
    second = asyncio.create_task(client.post(path, headers=same))
    done, _ = await asyncio.wait((first, second), timeout=0.5)
    assert not done
    ledger.hold.set()
    assert [(await answer).json() for answer in (first, second)] == [{"seq": 8}, {"seq": 8}]
    assert len(ledger.all(AbortTurn)) == 1


async def test_an_api_that_crashed_over_a_request_does_not_keep_its_key(
    api: Any, client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.running = True
    ledger.hold.clear()
    path, same = f"/api/sessions/{session}/abort", key()
    first = asyncio.create_task(client.post(path, headers=same))
    await until(lambda: ledger.all(AbortTurn), "the ledger is asked")
    api.kill()
    with pytest.raises(httpx.TransportError):
        await first
    api.start()
    ledger.hold.set()
    await until(lambda: not ledger.running, "the first one has taken effect")
    ledger.running = True
    assert (await client.post(path, headers=same)).status_code == 202


async def test_without_the_database_prompts_go_on_and_what_could_happen_twice_is_refused(
    api: Any, database: Any, client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    assert (await client.get("/api/me")).status_code == 200
    database.kill()
    try:
        path, same = f"/api/sessions/{session}/messages", key()
        replies = [await client.post(path, json={"content": "go"}, headers=same) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [202, 202]
        assert replies[0].json() == replies[1].json()
        answer = await client.post(f"/api/sessions/{session}/answer", json={"answer": "x"}, headers=key())
        problem(answer, 503, "database_unavailable")
        assert not ledger.all(AnswerQuestion)
    finally:
        database.start()


async def test_a_secret_is_given_again_and_stored_nowhere(
    database: Any, client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    same, name = key(), f"user-{new_id().lower()}"
    made = [await client.post("/api/users", json={"name": name}, headers=same) for _ in range(2)]
    assert made[0].json() == made[1].json()
    assert [one.status_code for one in made] == [201, 201]
    path = f"/api/sessions/{session}/links"
    link = {"role": "viewer", "expires_in_s": 3600}
    links = [(await client.post(path, json=link, headers=same)).json() for _ in range(2)]
    assert links[0] == links[1]
    assert links[0]["token"]
    first, second = ledger.all(CreateShareLink)
    assert (first.link_id, first.token_sha256) == (second.link_id, second.token_sha256)  # type: ignore[attr-defined]
    problem(await client.post(path, json={"role": "collaborator"}, headers=same), 422, "idempotency_key_reused")
    problem(await client.post("/api/users", json={"name": name}), 409, "name_taken")
    connection = await asyncpg.connect(database.url)
    bodies = await connection.fetch("SELECT body FROM identity.replies WHERE key = $1", same["Idempotency-Key"])
    await connection.close()
    assert [row["body"] for row in bodies] == [None, None]


@pytest.fixture
async def replies(database: Any, api: Any) -> Any:
    pool = await asyncpg.create_pool(database.url, min_size=1, max_size=2)
    yield Replies(pool)
    await pool.close()


async def test_a_key_is_free_again_once_its_answer_is_too_old(
    replies: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Scope(user="u", route="POST /x", key=new_id())
    assert await replies.reserve(place, b"one", "first")
    assert not await replies.reserve(place, b"one", "second")
    monkeypatch.setattr(limits, "REPLY_KEPT", 0.0)
    await replies.drop_old()
    assert await replies.find(place) is not None  # its request is in flight
    await replies.release(place, "first")
    assert await replies.find(place) is None


async def test_a_crashed_holder_loses_the_key_to_the_same_request_only(
    replies: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEASE", -1.0)
    place = Scope(user="u", route="POST /x", key=new_id())
    assert await replies.reserve(place, b"one", "first")
    assert not await replies.reserve(place, b"another", "second")
    assert await replies.reserve(place, b"one", "third")
    await replies.release(place, "first")  # it is not the holder any more
    assert await replies.find(place) is not None
