"""Claims about attachments: what is stored, under which name, and who gets it back."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from valet_api.attachments import ANYTHING, clean_mime, clean_name, disposition
from valet_api.testing import FakeLedger, problem
from valet_protocol.ids import new_id
from valet_protocol.requests import SubmitPrompt

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 1000


async def upload(
    client: httpx.AsyncClient, session: str, content: bytes = PNG, name: str = "a.png", **headers: str
) -> httpx.Response:
    path = f"/api/sessions/{session}/attachments"
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(path, params={"name": name}, content=content, headers=given)


async def test_a_file_comes_back_as_it_was_and_only_as_a_download(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    made = await upload(client, session, name="../x/Bild ü.png", content_type="image/png")
    assert made.status_code == 201, made.text
    attachment = made.json()
    assert (attachment["name"], attachment["mime"], attachment["bytes"]) == ("Bild ü.png", "image/png", len(PNG))
    back = await client.get(made.headers["location"])
    assert back.content == PNG
    assert back.headers["content-type"] == "image/png"
    assert back.headers["content-disposition"].startswith("attachment;")
    assert "filename*=UTF-8''Bild%20%C3%BC.png" in back.headers["content-disposition"]
    assert back.headers["x-content-type-options"] == "nosniff"
    assert back.headers["content-length"] == str(len(PNG))


async def test_a_prompt_takes_its_attachments_by_id_and_in_order(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    made = [(await upload(client, session, name=name)).json() for name in ("b.png", "a.png")]
    body = {"content": "look", "attachments": [one["attachment_id"] for one in made]}
    assert (await client.post(f"/api/sessions/{session}/messages", json=body)).status_code == 202
    (command,) = ledger.all(SubmitPrompt)
    assert [one.name for one in command.attachments] == ["b.png", "a.png"]  # type: ignore[attr-defined]
    assert [one.sha256 for one in command.attachments] == [one["sha256"] for one in made]  # type: ignore[attr-defined]


async def test_an_attachment_belongs_to_its_session(
    client: httpx.AsyncClient, other: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    made = await upload(client, session)
    problem(await other.get(made.headers["location"]), 404, "session_not_found")
    elsewhere = (await client.post("/api/sessions", json={})).json()["id"]
    id = made.json()["attachment_id"]
    problem(await client.get(f"/api/sessions/{elsewhere}/attachments/{id}"), 404, "attachment_not_found")
    body = {"content": "look", "attachments": [id]}
    problem(await client.post(f"/api/sessions/{elsewhere}/messages", json=body), 422, "unknown_attachment")
    problem(await upload(other, session), 404, "session_not_found")


async def test_viewers_download_but_do_not_upload(
    client: httpx.AsyncClient, other: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    made = await upload(client, session)
    ledger.participants[session][(await other.get("/api/me")).json()["id"]] = "viewer"
    assert (await other.get(made.headers["location"])).status_code == 200
    problem(await upload(other, session), 403, "role_too_low")


@pytest.mark.parametrize("id", ["none", "%00", "a.b>*"])
async def test_an_unknown_attachment_is_404(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, id: str
) -> None:
    problem(await client.get(f"/api/sessions/{session}/attachments/{id}"), 404)


async def test_a_file_over_the_limit_is_413_announced_or_not(
    api: Any, client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 80_000_000:
            sent += 1 << 20
            yield bytes(1 << 20)

    path = f"/api/sessions/{session}/attachments"
    document = problem(await client.post(path, params={"name": "x"}, content=chunks()), 413, "attachment_too_large")
    assert "50,000,000" in document["detail"]
    status, text = await api.announce(f"{path}?name=x", content_length="60000000")
    assert (status, "attachment_too_large" in text) == (413, True)


async def test_an_empty_or_nameless_file_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    problem(await upload(client, session, content=b""), 422, "empty_attachment")
    problem(await upload(client, session, name=""), 400)
    problem(await client.post(f"/api/sessions/{session}/attachments", content=b"x"), 400)


async def test_the_same_key_is_the_same_file(client: httpx.AsyncClient, ledger: FakeLedger, session: str) -> None:
    key = new_id()
    first, second = [await upload(client, session, Idempotency_Key=key) for _ in range(2)]
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    problem(await upload(client, session, content=b"other", Idempotency_Key=key), 422, "idempotency_key_reused")
    assert (await client.get(first.headers["location"])).content == PNG


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a.png", "a.png"),
        ("/etc/passwd", "passwd"),
        ("C:\\x\\y.txt", "y.txt"),
        ("..", "file"),
        ("a/..", "file"),
        (" .hidden. ", "hidden"),
        ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ("in\u202egnp.exe", "ingnp.exe"),
        ("", "file"),
        ("x" * 300 + ".png", "x" * 196 + ".png"),
    ],
)
def test_a_name_has_no_folder_and_hides_nothing(given: str, kept: str) -> None:
    assert clean_name(given) == kept


@pytest.mark.parametrize(
    ("announced", "name", "kept"),
    [
        ("image/PNG; charset=x", "a", "image/png"),
        ("", "a.png", "image/png"),
        ("application/x-www-form-urlencoded", "a.txt", "text/plain"),
        ("application/octet-stream", "a.unheard-of", ANYTHING),
        ("text/html\r\nX: y", "a", ANYTHING),
        ("nonsense", "a.png", ANYTHING),
    ],
)
def test_a_type_is_one_or_says_nothing(announced: str, name: str, kept: str) -> None:
    assert clean_mime(announced, name) == kept


def test_a_download_s_name_cannot_end_its_header() -> None:
    header = disposition('a"; x=\\é%\n')
    assert header == "attachment; filename=\"a__ x=____\"; filename*=UTF-8''a%22%3B%20x%3D%5C%C3%A9%25%0A" or (
        "\n" not in header and header.count('"') == 2
    )
