"""What is refused, and how: a problem document that says what to do, never a stack trace, never a hang."""

from typing import Any

import httpx
import pytest
from harness.platform import Platform


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    document = response.json()
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert document["code"]
    assert "Traceback" not in response.text
    return document


@pytest.fixture(scope="module")
def session(platform: Platform) -> str:
    return platform.create()["id"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/messages"),
        ("POST", "/messages"),
        ("POST", "/answer"),
        ("POST", "/abort"),
        ("GET", "/diff"),
        ("GET", "/events"),
    ],
)
def test_an_unknown_session_is_404(platform: Platform, method: str, path: str) -> None:
    body = {"content": "x", "answers": [["x"]]} if method == "POST" else None
    if path == "/answer":
        body = {"answers": [["x"]]}
    elif path == "/messages" and body:
        body = {"content": "x"}
    elif path == "/abort":
        body = None
    for unknown in ("01JZZZZZZZZZZZZZZZZZZZZZZZ", "nonsense"):
        problem(platform.request(method, f"/api/sessions/{unknown}{path}", json=body), 404)


@pytest.mark.parametrize("token", ["", "wrong", "Bearer"])
def test_a_wrong_token_is_401(platform: Platform, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=platform.url, headers=headers) as client:
        for path in ("/api/sessions", "/api/models", "/ws", "/api/sessions/01JZZZZZZZZZZZZZZZZZZZZZZZ/events"):
            response = client.get(path)
            problem(response, 401)
            assert "www-authenticate" in response.headers


def test_another_users_session_is_404(platform: Platform, session: str) -> None:
    other = platform.request("POST", "/api/users", json={"name": f"other-{session[-6:].lower()}"})
    assert other.status_code == 201, other.text
    with platform.client(other.json()["token"]) as client:
        assert client.get("/api/sessions").json()["items"] == []
        problem(client.get(f"/api/sessions/{session}"), 404)
        problem(client.post(f"/api/sessions/{session}/messages", json={"content": "say mine"}), 404)
        problem(client.get(f"/api/sessions/{session}/events"), 404)
        problem(client.delete(f"/api/sessions/{session}"), 404)
        problem(client.post("/api/users", json={"name": "third"}), 403)
        for repo in ("/etc", "/no/such/directory"):
            refused = problem(client.post("/api/sessions", json={"repo": repo}), 403)
            assert refused["code"] == "local_repo_not_allowed"


def test_a_body_over_the_limit_is_413(platform: Platform, session: str) -> None:
    path = f"/api/sessions/{session}/messages"
    problem(platform.request("POST", path, json={"content": "x" * (2 << 20)}), 413)

    def chunks() -> Any:
        yield b'{"content": "'
        for _ in range(64):
            yield b"x" * (64 << 10)
        yield b'"}'

    with platform.client() as client:
        response = client.post(path, content=chunks(), headers={"Content-Type": "application/json"})
    problem(response, 413)


@pytest.mark.parametrize(
    "body",
    [
        {"repo": "relative/path"},
        {"repo": "/no/such/directory"},
        {"repo": "/etc"},
        {"repo": "file:///etc"},
        {"repo": "--upload-pack=touch /tmp/x"},
        {"repo": "ext::sh -c id"},
        {"repo": "https://"},
        {"branch": "-x"},
        {"branch": "a..b"},
        {"model": "nobody/nothing"},
        {"model": "no-slash"},
        {"title": 7},
        {"unknown_field": 1},
    ],
    ids=str,
)
def test_a_session_that_cannot_be_is_refused(platform: Platform, body: dict[str, Any]) -> None:
    response = platform.request("POST", "/api/sessions", json=body)
    assert response.status_code in (400, 422)
    problem(response, response.status_code)


@pytest.mark.parametrize("content", ["", "  \n ", None, 3, ["x"]], ids=repr)
def test_an_empty_prompt_is_refused(platform: Platform, session: str, content: Any) -> None:
    response = platform.request("POST", f"/api/sessions/{session}/messages", json={"content": content})
    assert response.status_code in (400, 422)
    problem(response, response.status_code)


@pytest.mark.parametrize("raw", [b"", b"{", b'{"content": "a"', b"[]", b'"text"', b"\xff\xfe"])
def test_malformed_json_is_refused(platform: Platform, session: str, raw: bytes) -> None:
    response = platform.request(
        "POST", f"/api/sessions/{session}/messages", content=raw, headers={"Content-Type": "application/json"}
    )
    assert 400 <= response.status_code < 500
    problem(response, response.status_code)


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "99999999999999", "9" * 40, ""])
def test_a_bad_cursor_is_refused(platform: Platform, session: str, cursor: str) -> None:
    response = platform.request("GET", f"/api/sessions/{session}/events", params={"after": cursor})
    problem(response, 400)


def test_an_unknown_route_and_a_wrong_method_are_problems_too(platform: Platform) -> None:
    problem(platform.request("GET", "/api/nothing"), 404)
    problem(platform.request("PATCH", "/api/sessions"), 405)


def test_an_answer_without_a_question_is_refused(platform: Platform, session: str) -> None:
    response = platform.request("POST", f"/api/sessions/{session}/answer", json={"answers": [["x"]]})
    assert response.status_code in (404, 409)
    problem(response, response.status_code)
