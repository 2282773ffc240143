"""Claims about fork, export and import: everything that happened, nothing made up, nothing half."""

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from nats.aio.client import Client
from valet_api import imported_context, imports, limits
from valet_api.forks import Forks, Start
from valet_api.ledger import Ledger
from valet_api.testing import FakeLedger, problem
from valet_protocol.codec import encode, new_event, with_seq
from valet_protocol.errors import Unavailable, Unprocessable
from valet_protocol.events import agent, facts, machine
from valet_protocol.events.envelope import Data
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    ArchivedEvent,
    ForkPlan,
    ForkSession,
    ImportEvents,
    ReadArchive,
    TerminateSession,
)
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


# -- files --------------------------------------------------------------------------------------------------


async def test_an_export_with_files_is_imported_with_them_and_with_the_agents_memory(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, nc: Client
) -> None:
    objects = open_store(Objects(), nc=nc)

    async def content(data: bytes) -> AsyncIterator[bytes]:
        yield data

    big = bytes(range(256)) * 3000  # several pieces
    made = (await client.post(f"/api/sessions/{session}/attachments?name=ü a.png", content=big)).json()
    attachment = msgspec.convert(made, facts.Attachment)
    await objects.put(f"sessions/{session}/images/i1", content(b"\x89PNG\r\n\x1a\n"), limit=100)
    stored = await objects.put(f"sessions/{session}/saved/T1", content(b"work"), limit=100)
    ledger.work = agent.WorkRef(
        object=f"sessions/{session}/saved/T1", bytes=stored.bytes, sha256=stored.sha256, base_commit="b" * 40
    )
    shown = machine.ImageShown(
        image_id="i1", object=f"sessions/{session}/images/i1", media_type="image/png", bytes=8, sha256="0" * 64
    )
    gone = machine.ImageShown(image_id="i2", object="", media_type="image/png", bytes=8, sha256="0" * 64)
    prompt = facts.PromptAccepted(prompt_id="p", content="look", author="u", model="p/m", attachments=[attachment])
    events: list[Data] = [facts.SessionRequested(owner="u", model="p/m"), prompt, prompt, shown, gone]
    ledger.archive = [ArchivedEvent(seq=n, event=msgspec.Raw(raw(data, session))) for n, data in enumerate(events, 1)]
    ledger.sessions[session] = msgspec.structs.replace(ledger.sessions[session], seq=len(events))
    plain = await client.get(f"/api/sessions/{session}/export")
    assert len(plain.text.splitlines()) == len(events)
    exported = await client.get(f"/api/sessions/{session}/export?files=true")
    assert exported.headers["valet-export"] == f"{len(events)}-{stored.sha256[:16]}"
    assert max(len(line) for line in exported.content.splitlines()) < 300_000
    files = [json.loads(line)["file"] for line in exported.text.splitlines() if line.startswith('{"file"')]
    assert [(file["kind"], "left_out" in file) for file in files] == [
        ("attachment", False),
        ("image", False),
        ("image", True),
        ("work", False),
    ]

    made = await client.post("/api/import", content=exported.content, headers=LINES)
    assert made.status_code == 201, made.text
    copy = made.json()["id"]
    back = await client.get(f"/api/sessions/{copy}/attachments/{attachment.attachment_id}")
    assert (back.content, back.headers["content-length"]) == (big, str(len(big)))
    assert (await client.get(f"/api/sessions/{copy}/images/i1")).content == b"\x89PNG\r\n\x1a\n"
    (page,) = ledger.all(ImportEvents)
    assert isinstance(page, ImportEvents)
    assert [bytes(event) for event in page.events] == plain.content.splitlines()
    assert page.work == agent.WorkRef(
        object=f"sessions/{copy}/saved/import", bytes=4, sha256=stored.sha256, base_commit="b" * 40
    )
    assert page.work
    assert [chunk async for chunk in objects.get(page.work.object)] == [b"work"]


async def test_an_export_of_a_fork_has_the_pictures_of_its_source_and_so_has_its_import(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, nc: Client
) -> None:
    objects, source = open_store(Objects(), nc=nc), new_id()

    async def content() -> AsyncIterator[bytes]:
        yield b"\x89PNG\r\n\x1a\n"

    await objects.put(f"sessions/{source}/images/i1", content(), limit=100)
    ledger.images = {(session, image_id): source for image_id in ("i1", "swept")}

    def shown(image_id: str, seq: int) -> facts.EventImported:
        data = {"image_id": image_id, "object": "", "media_type": "image/png", "bytes": 8, "sha256": "0" * 64}
        time = "2026-01-01T00:00:00.000Z"
        return facts.EventImported(type="agent.image_shown", version=1, time=time, source_seq=seq, data=data)

    begun = facts.SessionImported(owner="u", model="p/m", source_session=source, source_seq=9, forked=True)
    images = [shown(image_id, seq) for seq, image_id in enumerate(("i1", "swept", "never"), 1)]
    ledger.archive = [
        ArchivedEvent(seq=n, event=msgspec.Raw(raw(data, session))) for n, data in enumerate([begun, *images], 1)
    ]
    ledger.sessions[session] = msgspec.structs.replace(ledger.sessions[session], seq=4)
    exported = await client.get(f"/api/sessions/{session}/export?files=true")
    files = [json.loads(line)["file"] for line in exported.text.splitlines() if line.startswith('{"file"')]
    assert [(file["id"], "left_out" in file) for file in files] == [("i1", False), ("swept", True), ("never", True)]
    made = await client.post("/api/import", content=exported.content, headers=LINES)
    assert made.status_code == 201, made.text
    image = await client.get(f"/api/sessions/{made.json()['id']}/images/i1")
    assert image.content == b"\x89PNG\r\n\x1a\n"


async def test_the_agent_of_a_plain_import_is_told_what_was_said(
    client: httpx.AsyncClient, ledger: FakeLedger, nc: Client
) -> None:
    def turn(number: int, channel: str = "web:default") -> list[Data]:
        dispatched = facts.TurnDispatched(
            turn_id=f"t{number}", prompt_id=f"p{number}", content=f"Ask {number}", model="p/m", author="u"
        )
        tool = agent.ToolUpdated(message_id=f"m{number}", part_id="x", call_id="c", tool="bash", status="completed")
        answer = agent.MessageCompleted(message_id=f"m{number}", text=f"Answer {number}" if number != 2 else "")
        helper = agent.MessageCompleted(message_id="sub", text="Of a helper", parent_session="ses_child")
        return [msgspec.structs.replace(dispatched, channel=channel), tool, answer, helper]

    long = agent.MessageCompleted(message_id="long", text="x" * 10_000)
    said: list[Data] = [facts.SessionRequested(owner="u", model="p/m"), *turn(1), *turn(2), long, *turn(3)]
    said += [agent.ConversationReverted(message_id="p3"), *turn(4, "slack:C1")]
    # what the source had taken over itself
    inner = facts.EventImported(
        type="fact.prompt_steered",
        version=1,
        time="2026-01-01T00:00:00.000Z",
        source_seq=1,
        data=msgspec.to_builtins(facts.PromptSteered(turn_id="t4", prompt_id="s", content="And this", author="u")),
    )
    said += [inner, agent.PromptTaken(turn_id="t4", prompt_id="s", outcome="delivered")]
    given = [with_seq(raw(data), 10 * n) for n, data in enumerate(said, 1)]
    key = {**LINES, "Idempotency-Key": new_id()}
    assert (await client.post("/api/import", content=body(given), headers=key)).status_code == 201
    (page,) = ledger.all(ImportEvents)
    assert isinstance(page, ImportEvents)
    assert page.work
    objects = open_store(Objects(), nc=nc)
    packed = b"".join([chunk async for chunk in objects.get(page.work.object)])
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        member = archive.extractfile("manifest.json")
        assert member
        manifest = json.load(member)
    assert (manifest["version"], manifest["session"]) == (1, SOURCE)
    assert manifest["said"] == {
        "web:default": "Person: Ask 1\n\nYou: Answer 1\n(used bash)\n\nPerson: Ask 2\n\nYou: (used bash)\n\nYou: "
        + "x" * limits.CONTEXT_MESSAGE_CHARS
        + " …",
        "slack:C1": "Person: Ask 4\n\nYou: Answer 4\n(used bash)\n\nPerson: And this",
    }
    # a repetition must not have another digest than the log says
    assert imported_context.as_work(SOURCE, manifest["said"]) == packed


def file_lines(content: bytes = b"abc", **changes: object) -> list[bytes]:
    file = {"kind": "attachment", "id": "a1", "name": "a.txt", "mime": "text/plain", **changes}
    digest = hashlib.sha256(content).hexdigest()
    parts: list[object] = [
        {"file": file},
        {"piece": base64.b64encode(content).decode()},
        {"end": {"bytes": len(content), "sha256": digest}},
    ]
    return [msgspec.json.encode(part) for part in parts]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ([*file_lines(), *lines()], 1, "before the session's first event"),
        ([*lines(), *file_lines()[1:]], 4, "no file has begun"),
        ([*lines(), *file_lines()[:2]], 6, "ends in the middle"),
        ([*lines()[:1], *file_lines()[:2], *lines()[1:]], 4, "has no end"),
        ([*lines(), *file_lines()[:2], *file_lines()], 6, "has no end"),
        ([*lines(), *file_lines(id="../x")], 4, "cannot be the id"),
        ([*lines(), *file_lines()[:1], b'{"piece":"!"}'], 5, "not base 64"),
        ([*lines(), *file_lines()[:1], b'{"piece":"eHg="}', file_lines()[2]], 6, "damaged"),
        ([*lines(), b'{"file":7}'], 4, "not a line of a file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_file_that_is_wrong_is_named_by_its_line_and_nothing_is_made(
    client: httpx.AsyncClient, ledger: FakeLedger, content: list[bytes], line: int, words: str
) -> None:
    document = problem(await client.post("/api/import", content=body(content), headers=LINES), 422, "bad_import")
    assert f"In line {line}:" in document["detail"]
    assert words in document["detail"]
    assert not ledger.sessions


async def test_files_of_kinds_that_are_not_known_here_are_passed_over(
    client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    content = body([*lines(), *file_lines(kind="hologram"), *file_lines(b"kept", id="a2")])
    made = await client.post("/api/import", content=content, headers=LINES)
    assert made.status_code == 201, made.text
    at = f"/api/sessions/{made.json()['id']}/attachments"
    assert (await client.get(f"{at}/a2")).content == b"kept"
    problem(await client.get(f"{at}/a1"), 404)


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


async def test_a_fork_of_the_present_whose_files_are_lost_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.work = agent.WorkRef(object=f"sessions/{session}/saved/gone", bytes=1, sha256="0" * 64)
    problem(await client.post(f"/api/sessions/{session}/fork", json={}), 409, "work_not_found")
    ledger.work = None
    made = await client.post(f"/api/sessions/{session}/fork", json={})
    assert (made.status_code, made.json()["left_out"]) == (201, "")


async def test_a_fork_at_a_message_whose_files_are_kept_no_longer_has_the_conversation_and_says_so(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, nc: Client
) -> None:
    ledger.work = agent.WorkRef(
        object=f"sessions/{session}/saved/swept", bytes=1, sha256="0" * 64, base_commit="b" * 40
    )
    dispatched = facts.TurnDispatched(turn_id="t", prompt_id="p", content="Ask", model="p/m", author="u")
    answer = agent.MessageCompleted(message_id="m", text="Answer")
    events: list[Data] = [facts.SessionRequested(owner="u", model="p/m"), dispatched, answer]
    events += [agent.SessionTitled(title="x")] * 3  # the fork of the fake ledger is at 5
    events.append(agent.MessageCompleted(message_id="later", text="Later"))
    ledger.archive = [ArchivedEvent(seq=n, event=msgspec.Raw(raw(data, session))) for n, data in enumerate(events)]
    made = await client.post(f"/api/sessions/{session}/fork", json={"message_id": "m"})
    assert made.status_code == 201, made.text
    assert "begins with the repository" in made.json()["left_out"]
    (command,) = ledger.all(ForkSession)
    assert isinstance(command, ForkSession)
    assert command.work is not None
    assert (command.work.object, command.work.base_commit) == (f"sessions/{made.json()['id']}/saved/said", None)
    objects = open_store(Objects(), nc=nc)
    packed = b"".join([chunk async for chunk in objects.get(command.work.object)])
    assert packed == imported_context.as_work(session, {"web:default": "Person: Ask\n\nYou: Answer"})


async def test_a_fork_asked_for_again_after_its_sources_files_were_swept_keeps_them(nc: Client) -> None:
    objects = open_store(Objects(), nc=nc)

    async def content() -> AsyncIterator[bytes]:
        yield b"work"

    source, fork = new_id(), new_id()
    stored = await objects.put(f"sessions/{source}/saved/T1", content(), limit=100)
    work = agent.WorkRef(object=f"sessions/{source}/saved/T1", bytes=stored.bytes, sha256=stored.sha256)
    plan = ForkPlan(at=5, work=work)
    for _ in range(2):
        start = await Forks(objects).start(Ledger(nc), plan, source=source, message_id="m", session_id=fork, user="u")
        assert start == Start(work=msgspec.structs.replace(work, object=f"sessions/{fork}/saved/fork"))
        await objects.delete(work.object)
