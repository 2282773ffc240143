"""Claims about the HTTP API: what is accepted, what is refused and how."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from nats.aio.client import Client
from valet_api.testing import FakeLedger, problem
from valet_protocol import subjects
from valet_protocol.errors import Unauthorised
from valet_protocol.ids import is_ulid, new_id
from valet_protocol.requests import Authenticate, CreateSession, Identity, SubmitPrompt
from valet_service import rpc

JSON = {"Content-Type": "application/json"}


async def test_a_new_session_is_created_with_its_location(client: httpx.AsyncClient, ledger: FakeLedger) -> None:
    body = {"repo": "https://git.example.org/team/app.git", "branch": "main", "title": " T ", "model": "scripted/two"}
    response = await client.post("/api/sessions", json=body)
    assert response.status_code == 201
    view = response.json()
    assert is_ulid(view["id"])
    assert response.headers["location"] == f"/api/sessions/{view['id']}"
    assert (view["repo"], view["branch"], view["title"]) == (body["repo"], "main", "T")
    assert (await client.get(response.headers["location"])).json() == view
    assert view["id"] in [item["id"] for item in (await client.get("/api/sessions")).json()["items"]]


async def test_the_default_model_and_policy_come_from_the_configuration(
    client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    await client.post("/api/sessions", json={})
    (command,) = [asked for asked in ledger.asked if isinstance(asked, CreateSession)]
    assert command.model == "scripted/one"
    assert command.policy.question_timeout_s == 300


async def test_the_same_idempotency_key_is_the_same_session_and_prompt(
    client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    key = {"Idempotency-Key": new_id()}
    first, second = [(await client.post("/api/sessions", json={}, headers=key)).json()["id"] for _ in range(2)]
    assert first == second
    path = f"/api/sessions/{first}/messages"
    a, b = [(await client.post(path, json={"content": "go"}, headers=key)).json() for _ in range(2)]
    assert a == b
    c = (await client.post(path, json={"content": "go"})).json()
    assert c["prompt_id"] != a["prompt_id"]


async def test_an_abort_with_the_same_key_is_done_once(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    path = f"/api/sessions/{session}/abort"
    key = {"Idempotency-Key": new_id()}
    ledger.running = True
    replies = [await client.post(path, headers=key) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [202, 202]
    assert replies[0].json() == replies[1].json() == {"seq": 8}
    assert [reply.headers.get("idempotency-replayed") for reply in replies] == [None, "true"]
    problem(await client.post(path), 409, "nothing_running")


@pytest.mark.parametrize("key", ["", "x" * 201, "tab\there"])
async def test_an_unusable_idempotency_key_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, key: str
) -> None:
    response = await client.post(f"/api/sessions/{session}/abort", headers={"Idempotency-Key": key})
    assert "dempotency" in problem(response, 400)["detail"]


async def test_a_prompt_is_accepted_with_its_sequence(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    response = await client.post(
        f"/api/sessions/{session}/messages", json={"content": "go", "mode": "steer", "model": "scripted/two"}
    )
    assert response.status_code == 202
    assert set(response.json()) == {"prompt_id", "seq", "status"}
    (command,) = [asked for asked in ledger.asked if isinstance(asked, SubmitPrompt)]
    assert (command.content, command.mode, command.model) == ("go", "steer", "scripted/two")


@pytest.mark.parametrize("body", [{"answer": "A"}, {"question_id": "q", "answers": [["A"]]}], ids=str)
async def test_an_answer_is_taken_in_both_forms(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, body: dict[str, Any]
) -> None:
    response = await client.post(f"/api/sessions/{session}/answer", json=body)
    assert (response.status_code, response.json()) == (200, {"seq": 7})
    assert ledger.asked[-1].answers == [["A"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("body", [{}, {"answer": "A", "answers": [["A"]]}, {"answers": ["A"]}], ids=str)
async def test_an_answer_must_be_in_one_form(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, body: dict[str, Any]
) -> None:
    problem(await client.post(f"/api/sessions/{session}/answer", json=body), 400)


async def test_the_diff_comes_as_json_or_as_a_patch(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    view = (await client.get(f"/api/sessions/{session}/diff")).json()
    assert view["files"][0]["path"] == "a.txt"
    patch = await client.get(f"/api/sessions/{session}/diff", headers={"Accept": "text/x-diff"})
    assert patch.headers["content-type"].startswith("text/x-diff")
    assert patch.text == view["patch"]


async def test_a_session_is_ended(client: httpx.AsyncClient, ledger: FakeLedger, session: str) -> None:
    response = await client.delete(f"/api/sessions/{session}")
    assert (response.status_code, response.json()) == (202, {"seq": 9})


async def test_models_are_those_of_the_configuration(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/api/models")).json()
    assert [item["id"] for item in listed["items"]] == ["scripted/one", "scripted/two"]
    assert listed["default"] == "scripted/one"


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/messages", None),
        ("POST", "/messages", {"content": "x"}),
        ("POST", "/answer", {"answer": "x"}),
        ("POST", "/abort", None),
        ("GET", "/diff", None),
        ("GET", "/events", None),
    ],
)
@pytest.mark.parametrize("session_id", ["01JZZZZZZZZZZZZZZZZZZZZZZZ", "nonsense", "a.b>*"])
async def test_an_unknown_session_is_404(
    client: httpx.AsyncClient, ledger: FakeLedger, method: str, path: str, body: Any, session_id: str
) -> None:
    response = await client.request(method, f"/api/sessions/{session_id}{path}", json=body)
    problem(response, 404, "session_not_found")


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", "Basic d3Jvbmc6", "wrong"])
@pytest.mark.parametrize(
    "path", ["/api/sessions", "/api/me", "/api/models", "/ws", "/api/sessions/01JD0000000000000000000000/events"]
)
async def test_a_wrong_token_is_401(api: Any, header: str | None, path: str) -> None:
    async with httpx.AsyncClient(base_url=api.url, headers={"Authorization": header} if header else {}) as nobody:
        response = await nobody.get(path)
    problem(response, 401)
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_token_is_asked_for_before_the_body_is_looked_at(api: Any) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        problem(await nobody.post("/api/sessions", content=b"{", headers=JSON), 401)


async def test_another_users_session_is_404_and_not_listed(
    api: Any, client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    name = f"user-{new_id().lower()}"
    made = await client.post("/api/users", json={"name": name})
    assert made.status_code == 201
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    async with httpx.AsyncClient(base_url=api.url, headers=headers) as other:
        assert (await other.get("/api/me")).json() == {
            "id": made.json()["id"],
            "name": name,
            "admin": False,
            "email": None,
            "display_name": None,
        }
        assert (await other.get("/api/sessions")).json()["items"] == []
        problem(await other.get(f"/api/sessions/{session}"), 404)
        problem(await other.post(f"/api/sessions/{session}/messages", json={"content": "x"}), 404)
        problem(await other.get(f"/api/sessions/{session}/events"), 404)
        problem(await other.post("/api/users", json={"name": "x"}), 403, "not_an_administrator")
    problem(await client.post("/api/users", json={"name": name}), 409, "name_taken")
    problem(await client.post("/api/users", json={"name": "No Good"}), 400)


async def test_a_body_over_the_limit_is_413_announced_or_not(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    path = f"/api/sessions/{session}/messages"
    problem(await client.post(path, json={"content": "x" * (1 << 20)}), 413, "body_too_large")

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"content": "'
        for _ in range(64):
            yield b"x" * (64 << 10)
        yield b'"}'

    problem(await client.post(path, content=chunks(), headers=JSON), 413, "body_too_large")
    assert (await client.post(path, json={"content": "x" * 1_000_000})).status_code == 202


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"repo": "relative/path"}, 422, "bad_repo"),
        ({"repo": "/no/such/directory"}, 422, "repo_not_found"),
        ({"repo": "/etc"}, 422, "not_a_repository"),
        ({"repo": "file:///etc"}, 422, "not_a_repository"),
        ({"repo": "--upload-pack=touch /tmp/x"}, 422, "bad_repo"),
        ({"repo": "ext::sh -c id"}, 422, "bad_repo"),
        ({"repo": "https://user:secret@git.example.org/a"}, 422, "credentials_in_repo"),
        ({"branch": "-x"}, 422, "bad_branch"),
        ({"model": "nobody/nothing"}, 422, "unknown_model"),
        ({"model": "no-slash"}, 422, "unknown_model"),
        ({"title": 7}, 400, "bad_request"),
        ({"title": "x" * 201}, 400, "bad_request"),
        ({"unknown_field": 1}, 400, "bad_request"),
        ([], 400, "bad_request"),
    ],
    ids=str,
)
async def test_a_session_that_cannot_be_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, body: Any, status: int, code: str
) -> None:
    document = problem(await client.post("/api/sessions", json=body), status, code)
    if isinstance(body, dict) and status == 400:
        assert next(iter(body)) in document["detail"]
    if code == "unknown_model":
        assert "scripted/one, scripted/two" in document["detail"]
    assert "secret" not in str(document)
    assert not ledger.sessions


@pytest.mark.parametrize("content", ["", "  \n\t ", None, 3, ["x"]], ids=repr)
async def test_an_empty_prompt_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, content: Any
) -> None:
    response = await client.post(f"/api/sessions/{session}/messages", json={"content": content})
    problem(response, 422 if isinstance(content, str) else 400)
    assert not ledger.prompts


async def test_a_nul_character_is_refused_before_it_reaches_the_log(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    problem(await client.post("/api/sessions", json={"title": "a\0b"}), 422, "nul_character")
    problem(await client.post(f"/api/sessions/{session}/messages", json={"content": "a\0b"}), 422, "nul_character")
    problem(await client.post(f"/api/sessions/{session}/answer", json={"answer": "\0"}), 422, "nul_character")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"content":"\\ud800"}',
        b'{"content": "a"',
        b'"text"',
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"content":"\xff"}',
        b"null",
    ],
)
async def test_malformed_json_is_400(client: httpx.AsyncClient, ledger: FakeLedger, session: str, raw: bytes) -> None:
    problem(await client.post(f"/api/sessions/{session}/messages", content=raw, headers=JSON), 400)


async def test_a_request_without_its_body_is_told_so(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    for path in ("/api/sessions", f"/api/sessions/{session}/messages"):
        document = problem(await client.post(path, headers=JSON), 400, "bad_request")
        assert document["detail"].startswith("The request has no body"), document


async def test_a_wrong_content_type_is_415(client: httpx.AsyncClient, ledger: FakeLedger, session: str) -> None:
    path = f"/api/sessions/{session}/messages"
    problem(await client.post(path, data={"content": "x"}), 415, "unsupported_media_type")
    problem(await client.post(path, content=b"{}"), 415)


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "99999999999999", "9" * 40, "", "１"])
async def test_a_bad_cursor_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, cursor: str
) -> None:
    path = f"/api/sessions/{session}/events"
    problem(await client.get(path, params={"after": cursor}), 400, "bad_cursor")
    if cursor.isascii():
        problem(await client.get(path, headers={"Last-Event-ID": cursor}), 400, "bad_cursor")


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "after=-1", "after=x"])
async def test_a_bad_page_is_refused(client: httpx.AsyncClient, ledger: FakeLedger, session: str, query: str) -> None:
    document = problem(await client.get(f"/api/sessions/{session}/messages?{query}"), 400)
    assert document["code"] == ("bad_cursor" if query.startswith("after") else "bad_request")


async def test_unknown_routes_and_methods_are_problems_too(client: httpx.AsyncClient) -> None:
    problem(await client.get("/api/nothing"), 404, "no_such_route")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/sessions", {"GET", "POST"}),
        ("/api/sessions/x", {"GET", "PATCH", "DELETE"}),
        ("/api/sessions/x/messages", {"GET", "POST"}),
        ("/api/sessions/x/abort", {"POST"}),
        ("/api/sessions/x/prompts/y", {"PATCH", "DELETE"}),
        ("/api/sessions/x/participants/y", {"PUT", "DELETE"}),
        ("/api/sessions/x/links/y", {"DELETE"}),
        ("/api/me", {"GET", "PATCH"}),
        ("/api/import", {"POST"}),
        ("/health", {"GET"}),
    ],
)
async def test_a_method_an_address_does_not_take_is_405_with_those_it_takes(
    client: httpx.AsyncClient, path: str, allowed: set[str]
) -> None:
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - allowed:
        response = await client.request(method, path)
        problem(response, 405, "method_not_allowed")
        assert set(response.headers["allow"].split(", ")) == allowed | {"OPTIONS"}, (method, path)


@pytest.mark.parametrize("raw", [b"\x16\x03\x01nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"y" * (80 << 10)])
async def test_what_is_not_http_is_400_with_a_problem(api: Any, raw: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(raw)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json")
    assert json.loads(body)["status"] == 400


async def test_while_no_ledger_answers_a_request_waits_and_then_goes_through(
    client: httpx.AsyncClient, nc: Client
) -> None:
    request = asyncio.create_task(client.post("/api/sessions", json={}))
    await asyncio.sleep(0.5)
    assert not request.done()
    await FakeLedger().serve(nc)
    assert (await request).status_code == 201


# -- the rest ----------------------------------------------------------------------------------------------


async def test_health_and_ready_need_no_token(api: Any, bus: Any, ledger: FakeLedger) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        assert (await nobody.get("/health")).json() == {"status": "ok"}
        assert (await nobody.get("/ready")).json() == {"status": "ready"}


async def test_the_root_is_a_page_for_browsers_and_json_for_programs(api: Any) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        page = await nobody.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
        told = (await nobody.get("/")).json()
        assert "text/html" in page.headers["content-type"]
        assert "valet run" in page.text
        assert api.url in page.text
        for address in (told["openapi"], told["documentation"]):
            assert address in page.text
            assert (await nobody.get(address)).status_code == 200


async def test_ready_names_what_does_not_answer(api: Any, nc: Client) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        document = problem(await nobody.get("/ready"), 503, "not_ready")
    assert "session-ledger" in document["detail"]
    assert "postgres" not in document["detail"]


async def test_openapi_names_every_operation_its_security_and_its_problems(api: Any) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        document = (await nobody.get("/schema/openapi.json")).json()
        page = await nobody.get("/schema")
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]
    assert '="http' not in page.text, "the page needs something from elsewhere"
    assert "createSession" in page.text
    assert document["openapi"].startswith("3.1")
    operations = [op for path in document["paths"].values() for op in path.values()]
    assert {op["operationId"] for op in operations} >= {
        "createSession",
        "listSessions",
        "getSession",
        "terminateSession",
        "getDiff",
        "sendMessage",
        "listMessages",
        "answerQuestion",
        "abortTurn",
        "followSession",
        "webSocket",
        "listModels",
        "createUser",
        *("listPrompts", "editPrompt", "withdrawPrompt", "reorderQueue", "listTurns", "getState", "getReview"),
        *("addAttachment", "getAttachment", "changeSession", "revert", "unrevert", "requestCommand", "getCommand"),
        *("listParticipants", "addParticipant", "removeParticipant", "createLink", "revokeLink", "joinSession"),
        *("forkSession", "exportSession", "importSession", "listNotifications", "markNotificationsRead"),
    }
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    send = document["paths"]["/api/sessions/{session_id}/messages"]["post"]
    assert "application/problem+json" in send["responses"]["422"]["content"]
    examples = send["requestBody"]["content"]["application/json"]["schema"]["examples"]
    assert {"content": "Fix the failing test."} in examples
    names = {parameter["name"] for parameter in send["parameters"]}
    assert names == {"session_id", "Idempotency-Key"}


async def test_openapi_says_of_every_body_that_it_takes_nothing_else_and_has_an_example(api: Any) -> None:
    async with httpx.AsyncClient(base_url=api.url) as nobody:
        document = (await nobody.get("/schema/openapi.json")).json()
    schemas = document["components"]["schemas"]
    bodies = {
        (method, path): operation["requestBody"]["content"]["application/json"]["schema"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }
    assert len(bodies) == 15
    for where, schema in bodies.items():
        name = str(schema).partition("#/components/schemas/")[2].partition("'")[0]
        assert schemas[name]["additionalProperties"] is False, where
        assert schema["examples"], where
    assert schemas["PolicyFields"]["additionalProperties"] is False
    assert schemas["Rule"]["additionalProperties"] is False
    assert "additionalProperties" not in schemas["SessionView"]
    assert set(schemas["NewOrder"]["required"]) == {"prompt_ids"}
    posts = [operations["post"] for operations in document["paths"].values() if "post" in operations]
    for operation in posts:
        assert "Idempotency-Key" in {parameter["name"] for parameter in operation["parameters"]}, operation


async def test_other_services_can_ask_who_a_token_belongs_to(api: Any, nc: Client) -> None:

    subject = subjects.service("api", "authenticate")
    identity = await rpc.call(nc, subject, Authenticate(token=api.token), Identity)
    assert (identity.name, identity.admin) == ("owner", True)
    with pytest.raises(Unauthorised):
        await rpc.call(nc, subject, Authenticate(token="wrong"), Identity)
