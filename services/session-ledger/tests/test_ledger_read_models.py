"""Claims about what can be read back. Real NATS, real PostgreSQL; sandboxes are fake."""

import time
from typing import Any

import msgspec
import pytest
from valet_protocol.codec import encode, new_event
from valet_protocol.errors import Forbidden, NotFound
from valet_protocol.events import agent, facts
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    Accepted,
    AddParticipant,
    ChangePolicy,
    CommandView,
    CreateShareLink,
    DiffView,
    Done,
    EditPrompt,
    GetCommand,
    GetDiff,
    GetReview,
    GetSession,
    JoinSession,
    ListMessages,
    ListParticipants,
    ListPrompts,
    ListSessions,
    ListTurns,
    MessagePage,
    ParticipantList,
    PromptPage,
    RenameSession,
    RequestCommand,
    ReviewView,
    RevokeShareLink,
    SessionPage,
    SessionView,
    SubmitPrompt,
    TurnPage,
    WithdrawPrompt,
)
from valet_session_ledger import rebuild
from valet_session_ledger.testing import FakeSandbox, LedgerProcess, Platform


def _said(prompt_id: str, content: str, **fields: Any) -> facts.PromptAccepted:
    return facts.PromptAccepted(prompt_id=prompt_id, content=content, author="ada", model="fake/model", **fields)


async def _submit(platform: Platform, session_id: str, content: str, **fields: Any) -> str:
    return (
        await platform.ask(
            SubmitPrompt(session_id=session_id, user="ada", prompt_id=new_id(), content=content, **fields),
            Accepted,
        )
    ).prompt_id


async def _prompts(platform: Platform, session_id: str) -> dict[str, tuple[str, str | None]]:
    page = await platform.ask(ListPrompts(session_id=session_id, user="ada"), PromptPage)
    return {item.content: (item.status, item.turn_id) for item in page.items}


async def _turns(platform: Platform, session_id: str) -> TurnPage:
    return await platform.ask(ListTurns(session_id=session_id, user="ada"), TurnPage)


async def _started(platform: Platform, sandbox: FakeSandbox, turns: int) -> str:
    """The n-th turn is dispatched and begun; its id."""
    turn_id, prompt_id = await platform.dispatched(sandbox.session_id, turns)
    begun = agent.TurnStarted(turn_id=turn_id, prompt_id=prompt_id, opencode_session="o")
    await sandbox.agent(begun, turn_id)
    return turn_id


async def _ended(platform: Platform, sandbox: FakeSandbox, turn_id: str) -> None:
    await sandbox.agent(agent.TurnEnded(turn_id=turn_id, status="completed"), turn_id)
    await platform.until(sandbox.session_id, lambda view: view.last_turn and view.last_turn.turn_id == turn_id)


async def test_every_prompt_can_be_read_with_what_became_of_it(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    sandbox = await platform.boot(session_id)
    file = facts.Attachment(attachment_id="a", name="a.png", mime="image/png", bytes=1, sha256="x")
    for content in ("one", "two"):
        await _submit(platform, session_id, content, mode="collect", attachments=[file], channel="slack:x")
    first = await _started(platform, sandbox, 1)
    edited = await _submit(platform, session_id, "old")
    withdrawn = await _submit(platform, session_id, "never mind")
    await platform.ask(EditPrompt(session_id=session_id, user="ada", prompt_id=edited, content="new"), Done)
    await platform.ask(WithdrawPrompt(session_id=session_id, user="ada", prompt_id=withdrawn), Done)
    steer = await _submit(platform, session_id, "left!", mode="steer", channel="slack:x")
    assert await _prompts(platform, session_id) == {
        "one": ("dispatched", first),
        "two": ("dispatched", first),
        "new": ("queued", None),
        "never mind": ("withdrawn", None),
        "left!": ("steering", None),
    }
    await sandbox.agent(agent.PromptTaken(turn_id=first, prompt_id=steer, outcome="delivered"), first)
    switched = agent.AgentError(name="APIError", message="overloaded")
    await sandbox.agent(
        agent.ModelSwitched(turn_id=first, from_model="fake/model", to_model="fake/other", error=switched), first
    )
    await sandbox.play_message(first, text="Hello")
    await _ended(platform, sandbox, first)
    second = await _started(platform, sandbox, 2)
    assert (await _prompts(platform, session_id))["left!"] == ("done", first)
    page = await _turns(platform, session_id)
    assert [(turn.turn_id, turn.status, turn.channel) for turn in page.items] == [
        (first, "completed", "slack:x"),
        (second, "running", "web:default"),
    ]
    assert (page.items[0].models, len(page.items[0].prompt_ids)) == (["fake/model", "fake/other"], 3)
    messages = await platform.messages(session_id)
    assert [(item.role, item.text, item.channel) for item in messages.items] == [
        ("user", "one", "slack:x"),
        ("user", "two", "slack:x"),
        ("user", "left!", "slack:x"),
        ("assistant", "Hello", "slack:x"),
        ("user", "new", "web:default"),
    ]
    assert messages.items[1].attachments == [file]
    assert {item.author for item in messages.items if item.role == "user"} == {"ada"}
    # a page never parts messages that one event began: their sequence is the cursor
    few = await platform.ask(ListMessages(session_id=session_id, user="ada", limit=1), MessagePage)
    assert ([item.text for item in few.items], few.next) == (["one", "two"], messages.items[0].seq)
    await rebuild.verify(ledger.settings)


async def test_what_a_turn_changed_reviewed_and_saved_can_be_read(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    sandbox = await platform.boot(session_id)
    await _submit(platform, session_id, "find bugs", kind="review")
    turn_id = await _started(platform, sandbox, 1)
    with pytest.raises(NotFound):
        await platform.ask(GetReview(session_id=session_id, user="ada"), ReviewView)
    change = agent.FileChange(path="a.txt", status="added", additions=1, deletions=0)
    finding = agent.Finding(file="a.txt", line=1, severity="major", text="wrong")
    work = agent.WorkRef(object=f"sessions/{session_id}/saved/{turn_id}", bytes=3, sha256="x")
    await sandbox.agent(agent.ReviewCompleted(turn_id=turn_id, summary="bad", findings=[finding]), turn_id)
    await sandbox.agent(agent.TurnChanged(turn_id=turn_id, files=[change], patch="+1"), turn_id)
    await sandbox.agent(agent.WorkSaved(turn_id=turn_id, work=work), turn_id)
    await _ended(platform, sandbox, turn_id)
    review = await platform.ask(GetReview(session_id=session_id, user="ada", turn_id=turn_id), ReviewView)
    assert (review.summary, review.findings) == ("bad", [finding])
    diff = await platform.ask(GetDiff(session_id=session_id, user="ada", turn_id=turn_id), DiffView)
    assert (diff.patch, diff.files) == ("+1", [change])
    with pytest.raises(NotFound):
        await platform.ask(GetDiff(session_id=session_id, user="ada", turn_id="none"), DiffView)
    assert (await platform.session(session_id)).work == work
    await rebuild.verify(ledger.settings)


async def test_reverted_messages_say_so_until_it_is_undone_or_final(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    sandbox = await platform.boot(session_id)
    for number, channel in enumerate(("web:default", "slack:x", "web:default"), start=1):
        await _submit(platform, session_id, f"p{number}", channel=channel)
        turn_id = await _started(platform, sandbox, number)
        await sandbox.play_message(turn_id, text=f"a{number}")
        await _ended(platform, sandbox, turn_id)

    async def reverted() -> list[str]:
        return [item.text for item in (await platform.messages(session_id)).items if item.reverted]

    target = (await platform.messages(session_id)).items[0]
    ask = RequestCommand(session_id=session_id, user="ada", request_id="c1", command="revert", message_id=target.id)
    requested = await platform.ask(ask, CommandView)
    assert requested.status == "requested"
    assert [item.request_id for item in (await platform.session(session_id)).commands] == ["c1"]
    (fact,) = [event.data for event in await platform.log(session_id) if isinstance(event.data, facts.CommandRequested)]
    assert (fact.message_id, fact.turn_id, fact.channel) == (target.id, target.turn_id, "web:default")
    await sandbox.agent(agent.ConversationReverted(message_id=target.id))
    await sandbox.agent(agent.CommandCompleted(request_id="c1", result={"files": []}))
    assert await reverted() == ["p1", "a1", "p3", "a3"]
    done = await platform.ask(GetCommand(session_id=session_id, user="ada", request_id="c1"), CommandView)
    assert (done.status, done.result) == ("completed", {"files": []})
    assert (await platform.ask(ask, CommandView)).seq == requested.seq
    await sandbox.agent(agent.ConversationUnreverted())
    assert await reverted() == []
    answer = next(item for item in (await platform.messages(session_id)).items if item.text == "a3")
    await sandbox.agent(agent.ConversationReverted(message_id=answer.id))
    assert await reverted() == ["p3", "a3"], "an agent's message goes with its prompt"
    await sandbox.agent(agent.ConversationUnreverted())
    await sandbox.agent(agent.ConversationReverted(message_id=target.id))
    await _submit(platform, session_id, "p4")
    await _ended(platform, sandbox, await _started(platform, sandbox, 4))
    await sandbox.agent(agent.ConversationUnreverted())
    assert await reverted() == ["p1", "a1", "p3", "a3"]
    with pytest.raises(NotFound):
        await platform.ask(
            RequestCommand(session_id=session_id, user="ada", request_id="c2", command="revert", message_id="none"),
            CommandView,
        )
    await rebuild.verify(ledger.settings)


async def test_those_who_take_part_see_the_session_and_what_they_may_do(
    ledger: LedgerProcess, platform: Platform
) -> None:
    mine, shared = await platform.create(), await platform.create()
    own = (await platform.ask(ListSessions(user="bob"), SessionPage)).items
    assert own == []
    await platform.ask(AddParticipant(session_id=shared, user="ada", participant="bob", role="collaborator"), Done)
    link = CreateShareLink(session_id=shared, user="ada", link_id="l", token_sha256="t", role="viewer")
    await platform.ask(link, Done)
    joined = await platform.ask(JoinSession(session_id=shared, user="eve", token_sha256="t"), SessionView)
    assert (joined.id, joined.role) == (shared, "viewer")
    listed = await platform.ask(ListSessions(user="bob"), SessionPage)
    assert [(item.id, item.role) for item in listed.items] == [(shared, "collaborator")]
    pages = [await platform.ask(ListSessions(user="ada", limit=1), SessionPage)]
    pages.append(await platform.ask(ListSessions(user="ada", limit=1, before=pages[0].next), SessionPage))
    assert [item.id for page in pages for item in page.items] == [shared, mine]
    everybody = await platform.ask(ListParticipants(session_id=shared, user="ada"), ParticipantList)
    assert [(item.user, item.role) for item in everybody.participants] == [
        ("ada", "owner"),
        ("bob", "collaborator"),
        ("eve", "viewer"),
    ]
    assert [item.link_id for item in everybody.links] == ["l"]
    assert (await platform.ask(ListParticipants(session_id=shared, user="eve"), ParticipantList)).links == []
    with pytest.raises(Forbidden):
        await platform.ask(RenameSession(session_id=shared, user="eve", title="x"), Done)
    await platform.ask(RenameSession(session_id=shared, user="bob", title="Ours"), Done)
    policy = facts.SessionPolicy(permissions="ask")
    await platform.ask(ChangePolicy(session_id=shared, user="ada", policy=policy), Done)
    view = await platform.ask(GetSession(session_id=shared, user="eve"), SessionView)
    assert (view.title, view.policy) == ("Ours", policy)
    await platform.ask(RevokeShareLink(session_id=shared, user="ada", link_id="l"), Done)
    with pytest.raises(NotFound):
        await platform.ask(GetSession(session_id=shared, user="eve"), SessionView)
    assert (await platform.ask(ListSessions(user="eve"), SessionPage)).items == []
    await rebuild.verify(ledger.settings)


async def test_an_imported_conversation_reads_as_it_was_and_nothing_of_it_waits(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id, seq = new_id(), 0
    made = facts.SessionImported(owner="ada", model="fake/model", title="T", source_session="SOURCE", source_seq=99)

    async def append(data: Any, cause: object) -> None:
        event = new_event(data, id=f"{session_id}-{cause}", session_id=session_id, now_ms=time.time_ns() // 1_000_000)
        await platform.outbox.put(encode(event, source="/session-ledger"))

    async def imported(data: Any, turn: str | None = None) -> None:
        nonlocal seq
        seq += 1
        inner = encode(new_event(data, id="x", session_id="SOURCE", now_ms=5_000), source="/x")
        kept = msgspec.json.decode(inner.payload)
        await append(
            facts.EventImported(
                type=kept["type"],
                version=kept["dataversion"],
                time=kept["time"],
                source_seq=seq,
                turn=turn,
                epoch=1,
                data=kept["data"],
            ),
            seq,
        )

    await append(made, "made")
    await imported(_said("p1", "one"))
    await imported(_said("p2", "steers", mode="steer"))
    await imported(_said("p3", "waited"))
    await imported(facts.TurnDispatched(turn_id="t1", prompt_id="p1", content="one", model="m/x", author="bob"))
    await imported(agent.TurnStarted(turn_id="t1", prompt_id="p1", opencode_session="o"), "t1")
    await imported(facts.PromptSteered(turn_id="t1", prompt_id="p2", content="steers", author="ada"))
    await imported(agent.PromptTaken(turn_id="t1", prompt_id="p2", outcome="delivered"), "t1")
    await imported(agent.MessageCompleted(message_id="m1", text="Hello", cost=0.5), "t1")
    await imported(agent.QuestionAsked(question_id="q", kind="question", questions=[]), "t1")
    await imported(agent.TurnEnded(turn_id="t1", status="completed", cost=0.5), "t1")
    await imported(facts.TurnDispatched(turn_id="t2", prompt_id="px", content="cut", model="m/x", author="bob"))
    await append(facts.ImportCompleted(events=seq), "completed")
    view = await platform.until(session_id, lambda view: view.status == "hibernated")
    assert (view.source_session, view.cost, view.questions, view.queued) == ("SOURCE", 0.5, [], [])
    messages = (await platform.messages(session_id)).items
    assert [(item.role, item.text, item.author) for item in messages] == [
        ("user", "one", "bob"),
        ("user", "steers", "ada"),
        ("assistant", "Hello", None),
        ("user", "cut", "bob"),
    ]
    assert messages[0].created_at == "1970-01-01T00:00:05.000Z"
    assert [turn.status for turn in (await _turns(platform, session_id)).items] == ["completed", "interrupted"]
    assert await _prompts(platform, session_id) == {
        "one": ("done", "t1"),
        "steers": ("done", "t1"),
        "waited": ("dropped", None),
        "": ("done", "t2"),
    }
    await rebuild.verify(ledger.settings)
