"""Claims about fork, export and import: everything that happened, nothing made up, nothing half."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from nats.aio.client import Client
from valet_api import imports, limits
from valet_api.testing import FakeLedger, problem
from valet_protocol.codec import encode, new_event, with_seq
from valet_protocol.errors import Unavailable, Unprocessable
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data
from valet_protocol.ids import new_id
from valet_protocol.requests import ArchivedEvent, ForkSession, ImportEvents, ReadArchive, TerminateSession
from valet_service.config_file import Objects
from valet_service.object_store import open_store

SOURCE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
LINES = {"Content-Type": "application/jsonl"}


def raw(data: Data, session: str = SOURCE) -> bytes:
    return encode(new_event(data, id=new_id(), session_id=session, now_ms=0), source="/test").payload


def lines(count: int = 3, text: str = "hello") -> list[bytes]:
    events: list[Data] = [facts.SessionRequested(owner="u", model="p/m", title="Source")]
    events += [agent.MessageCompleted(message_id=f"m{n}", text=text) for n in range(count - 1)]
    return [with_seq(raw(data), 10 * n) for n, data in enumerate(events, 1)]


def body(given: list[bytes]) -> bytes:
    return b"\n".join(given) + b"\n"


# -- export ------------------------------------------------------------------------------------------------


async def test_an_export_has_every_event_in_order_with_its_sequence(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    count = limits.EXPORT_PAGE * 2 + 5
    ledger.archive = [
        ArchivedEvent(seq=n, event=msgspec.Raw(raw(agent.SessionTitled(title=str(n)), session)))
        for n in range(1, count + 1)
    ]
    ledger.sessions[session] = msgspec.structs.replace(ledger.sessions[session], seq=count)
    response = await client.get(f"/api/sessions/{session}/export")
    assert response.headers["content-type"].startswith("application/jsonl")
    events = [json.loads(line) for line in response.text.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, count + 1))
    assert all(event["subject"] == session and event["specversion"] == "1.0" for event in events)


async def test_large_events_are_asked_for_in_smaller_pages(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    big = "x" * 3_000_000
    ledger.archive = [
        ArchivedEvent(seq=n, event=msgspec.Raw(raw(agent.SessionTitled(title=big), session))) for n in range(1, 6)
    ]
    ledger.sessions[session] = msgspec.structs.replace(ledger.sessions[session], seq=5)
    response = await client.get(f"/api/sessions/{session}/export")
    assert [json.loads(line)["seq"] for line in response.text.splitlines()] == [1, 2, 3, 4, 5]


async def test_an_export_that_cannot_begin_is_a_problem(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.refuse[ReadArchive] = Unavailable("unavailable", "The ledger restarts.")
    problem(await client.get(f"/api/sessions/{session}/export"), 503)


# -- import ------------------------------------------------------------------------------------------------


async def test_an_import_goes_to_the_ledger_in_pages_and_becomes_a_session(
    client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    given = lines(limits.IMPORT_PAGE_EVENTS * 2 + 1)
    response = await client.post("/api/import?title=Mine", content=body(given), headers=LINES)
    assert response.status_code == 201, response.text
    view = response.json()
    assert (view["title"], view["source_session"]) == ("Mine", SOURCE)
    assert response.headers["location"] == f"/api/sessions/{view['id']}"
    pages: list[Any] = ledger.all(ImportEvents)
    assert [(page.offset, len(page.events), page.last) for page in pages] == [
        (0, 500, False),
        (500, 500, False),
        (1000, 1, True),
    ]
    assert [bytes(event) for page in pages for event in page.events] == given


async def test_pages_are_small_whatever_the_events_are(client: httpx.AsyncClient, ledger: FakeLedger) -> None:
    given = lines(8, "x" * 200_000)
    assert (await client.post("/api/import", content=body(given), headers=LINES)).status_code == 201
    pages: list[Any] = ledger.all(ImportEvents)
    assert len(pages) > 3
    assert all(sum(len(bytes(event)) for event in page.events) <= limits.IMPORT_PAGE_BYTES for page in pages)


async def test_lines_may_be_cut_anywhere_and_streamed_chunks_are_passed_over(
    client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    first, second, third = lines()
    delta = second.replace(b"agent.message_completed", b"delta.text")
    whole = body([first, b"", delta, second, third])[:-1]

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(whole), 7):
            yield whole[start : start + 7]

    assert (await client.post("/api/import", content=pieces(), headers=LINES)).status_code == 201
    (page,) = ledger.all(ImportEvents)
    assert [bytes(event) for event in page.events] == [first, second, third]  # type: ignore[attr-defined]


def changed(place: int, old: bytes, new: bytes) -> bytes:
    given = lines()
    assert old in given[place]
    given[place] = given[place].replace(old, new)
    return body(given)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (body([b"{", *lines()]), 1, "not an event"),
        (body([lines()[0], b"null"]), 2, "not an event"),
        (body([lines()[0], b'"\xff"']), 2, "not an event"),
        (body([lines()[0], b"[" * 100_000]), 2, ""),
        (body(lines()[1:]), 1, "begins with the session's first event"),
        (body([*lines(), lines()[1]]), 4, "not above"),
        (changed(1, b'"seq":20', b'"seq":-1'), 2, "not above"),
        (changed(1, b'"seq":20,', b""), 2, "seq"),
        (changed(2, SOURCE.encode(), b"01ARZ3NDEKTSV4RRFFQ69G5FAX"), 3, "lines before"),
        (changed(0, SOURCE.encode(), b"../x"), 1, "session's id"),
        (changed(1, b"hello", b"hel\\u0000lo"), 2, "NUL"),
        (changed(1, b'"text":"hello"', b'"text":7'), 2, "message_completed"),
        (changed(1, b"hello", b"\\ud800"), 2, "not an event"),
        (changed(1, b'"1.0"', b'"0.3"'), 2, "specversion"),
        (changed(1, b"T00:00:00.000Z", b" noon"), 2, "time"),
        (body([lines()[0], b"x" * (imports.LINE_BYTES + 1)]), 2, "longer"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_wrong_is_named_by_its_line_and_nothing_is_made(
    client: httpx.AsyncClient, ledger: FakeLedger, content: bytes, line: int, words: str
) -> None:
    document = problem(await client.post("/api/import", content=content, headers=LINES), 422, "bad_import")
    assert f"In line {line}:" in document["detail"]
    assert words in document["detail"]
    assert not ledger.sessions


async def test_text_that_only_looks_like_a_nul_is_taken(client: httpx.AsyncClient, ledger: FakeLedger) -> None:
    content = changed(1, b"hello", b"\\\\u0000")
    assert (await client.post("/api/import", content=content, headers=LINES)).status_code == 201


@pytest.mark.parametrize("content", [b"", b"\n\n", b"   "])
async def test_an_empty_import_is_refused(client: httpx.AsyncClient, ledger: FakeLedger, content: bytes) -> None:
    problem(await client.post("/api/import", content=content, headers=LINES), 422, "bad_import")


async def test_an_import_must_say_that_it_is_one(api: Any, client: httpx.AsyncClient, ledger: FakeLedger) -> None:
    problem(await client.post("/api/import", content=body(lines())), 415)
    status, text = await api.announce("/api/import", content_length="600000000", content_type=LINES["Content-Type"])
    assert (status, "import_too_large" in text) == (413, True)


async def test_an_interrupted_import_goes_on_with_its_key_and_is_given_up_without(
    client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    key, given = {**LINES, "Idempotency-Key": new_id()}, lines()
    ledger.refuse[ImportEvents] = Unavailable("unavailable", "The ledger restarts.")
    document = problem(await client.post("/api/import", content=body(given), headers=key), 503)
    assert "same Idempotency-Key" in document["detail"]
    assert not ledger.all(TerminateSession)
    problem(await client.post("/api/import", content=body(lines()), headers=LINES), 503, "import_interrupted")
    assert len(ledger.all(TerminateSession)) == 1
    del ledger.refuse[ImportEvents]
    made = await client.post("/api/import", content=body(given), headers=key)
    first, *_, last = ledger.all(ImportEvents)
    assert made.json()["id"] == first.session_id == last.session_id  # type: ignore[attr-defined]
    again = await client.post("/api/import", content=body(given), headers=key)
    assert (again.json(), again.headers["idempotency-replayed"]) == (made.json(), "true")
    other = await client.post("/api/import", content=body(given[:2]), headers=key)
    problem(other, 422, "idempotency_key_reused")


async def test_an_import_the_ledger_refuses_is_ended(client: httpx.AsyncClient, ledger: FakeLedger) -> None:
    ledger.refuse[ImportEvents] = Unprocessable("bad_event", "This event is not one.")
    key = {**LINES, "Idempotency-Key": new_id()}
    problem(await client.post("/api/import", content=body(lines()), headers=key), 422, "bad_event")
    assert len(ledger.all(TerminateSession)) == 1


# -- fork --------------------------------------------------------------------------------------------------


async def test_a_fork_has_its_own_copy_of_the_files_and_attachments(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, nc: Client
) -> None:
    objects = open_store(Objects(), nc=nc)

    async def content() -> AsyncIterator[bytes]:
        yield b"work"

    name = f"sessions/{session}/saved/T1"
    stored = await objects.put(name, content(), limit=100)
    ledger.work = agent.WorkRef(object=name, bytes=stored.bytes, sha256=stored.sha256, base_commit="b" * 40)
    path = f"/api/sessions/{session}/attachments?name=a.txt"
    attached = (await client.post(path, content=b"attached")).json()["attachment_id"]
    key = {"Idempotency-Key": new_id()}
    made = [
        await client.post(f"/api/sessions/{session}/fork", json={"message_id": "m", "title": "F"}, headers=key)
        for _ in range(2)
    ]
    assert [response.status_code for response in made] == [201, 201]
    fork = made[0].json()["id"]
    assert made[1].json()["id"] == fork
    (command,) = ledger.all(ForkSession)
    assert isinstance(command, ForkSession)
    assert (command.source_session, command.message_id, command.title) == (session, "m", "F")
    assert command.work is not None
    assert command.work.object == f"sessions/{fork}/saved/fork"
    assert (command.work.sha256, command.work.base_commit) == (stored.sha256, "b" * 40)
    assert [chunk async for chunk in objects.get(command.work.object)] == [b"work"]
    assert (await client.get(f"/api/sessions/{fork}/attachments/{attached}")).content == b"attached"


async def test_a_fork_of_files_that_are_gone_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.work = agent.WorkRef(object=f"sessions/{session}/saved/gone", bytes=1, sha256="0" * 64)
    problem(await client.post(f"/api/sessions/{session}/fork", json={}), 409, "work_not_found")
    ledger.work = None
    assert (await client.post(f"/api/sessions/{session}/fork", json={})).status_code == 201
