"""Claims about a ledger process as its clients see it. Real NATS, real PostgreSQL; sandboxes are fake."""

import asyncio

import asyncpg
import pytest
from valet_protocol import subjects
from valet_protocol.codec import encode, new_event
from valet_protocol.errors import Conflict, Forbidden, NotFound, Unprocessable
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    AbortTurn,
    AnswerQuestion,
    ArchivePage,
    Attached,
    AttachRunner,
    CreateSession,
    DiffView,
    Done,
    GetDiff,
    GetSession,
    ListMessages,
    ListSessions,
    MessagePage,
    ReadArchive,
    SessionPage,
    SessionView,
    TerminateSession,
)
from valet_service import rpc
from valet_session_ledger import errors, rebuild
from valet_session_ledger.testing import LedgerProcess, Platform, wait_for


async def test_a_prompt_becomes_a_turn_and_its_messages_can_be_read(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    accepted = await platform.prompt(session_id, "Say hello")
    assert accepted.status == "queued"
    view = await platform.session(session_id)
    assert [prompt.content for prompt in view.queued] == ["Say hello"]
    sandbox = await platform.boot(session_id)
    turn_id, prompt_id = await platform.dispatched(session_id)
    assert prompt_id == accepted.prompt_id
    await sandbox.play_turn(turn_id, prompt_id, steps=2, text="Hello")
    view = await platform.until(session_id, lambda view: view.status == "ready" and view.last_turn)
    assert view.last_turn
    assert (view.last_turn.status, view.queued) == ("completed", [])
    page = await platform.messages(session_id)
    assert [(item.role, item.text, item.complete) for item in page.items] == [
        ("user", "Say hello", True),
        ("assistant", "Hello", True),
        ("assistant", "Hello", True),
    ]
    assert [part.kind for part in page.items[1].parts] == ["text", "tool"]
    assert page.items[1].parts[1].output == "a\ufffdb"
    assert (view.cost, view.tokens.input) == (0.02, 20)
    assert ledger.stop() == 0
    await rebuild.verify(ledger.settings)


async def test_deltas_of_a_stored_message_are_purged_and_of_an_unfinished_one_kept(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id = await platform.create()
    sandbox = await platform.boot(session_id)
    await platform.prompt(session_id)
    turn_id, _ = await platform.dispatched(session_id)
    await sandbox.play_message(turn_id, text="whole")
    await sandbox.agent(agent.MessageCreated(message_id="unfinished"), turn_id)
    await sandbox.delta("unfinished", "so far")
    js = platform.nc.jetstream()

    async def deltas() -> list[str]:
        info = await js.stream_info(subjects.STREAM, subjects_filter=subjects.source(session_id, "delta"))
        return [subject.rpartition(".")[2] for subject in info.state.subjects or {}]

    assert await wait_for(deltas, lambda left: len(left) == 1) == ["unfinished"]


async def test_a_question_is_answered_by_a_person_or_at_its_deadline(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create(policy=facts.SessionPolicy(question_timeout_s=1.0))
    sandbox = await platform.boot(session_id)
    await platform.prompt(session_id)
    turn_id, _ = await platform.dispatched(session_id)
    options = [agent.QuestionOption(label="A"), agent.QuestionOption(label="B")]
    question = agent.Question(question="Which?", options=options)
    for number in (1, 2):
        await sandbox.agent(
            agent.QuestionAsked(question_id=f"q{number}", kind="question", questions=[question]), turn_id
        )
    # asked at once after the event: the ledger may not have folded it yet, which is no reason to refuse
    answer = AnswerQuestion(session_id=session_id, user="ada", question_id="q1", answers=[["B"]])
    done = await platform.ask(answer, Done)
    assert (await platform.ask(answer, Done)).seq == done.seq
    view = await platform.session(session_id)
    assert [item.question_id for item in view.questions] == ["q2"]
    await platform.until(session_id, lambda view: not view.questions)
    facts_of = await _events(platform, session_id, "fact.question_answered")
    assert [(fact.answered_by, fact.answers) for fact in facts_of] == [("person", [["B"]]), ("default", [["A"]])]
    with pytest.raises(Conflict, match="first answer"):
        await platform.ask(AnswerQuestion(session_id=session_id, user="ada", question_id="q2", answers=[["B"]]), Done)


async def test_abort_and_terminate_take_effect(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    with pytest.raises(Conflict) as refusal:
        await platform.ask(AbortTurn(session_id=session_id, user="ada"), Done)
    assert refusal.value.code == "nothing_running"
    sandbox = await platform.boot(session_id)
    await platform.prompt(session_id)
    turn_id, _ = await platform.dispatched(session_id)
    await platform.ask(AbortTurn(session_id=session_id, user="ada"), Done)
    assert [fact.turn_id for fact in await _events(platform, session_id, "fact.turn_interrupt_requested")] == [turn_id]
    await sandbox.agent(agent.TurnEnded(turn_id=turn_id, status="interrupted"), turn_id)
    await platform.until(session_id, lambda view: view.last_turn and view.last_turn.status == "interrupted")
    await platform.ask(TerminateSession(session_id=session_id, user="ada"), Done)
    with pytest.raises(Conflict) as ended:
        await platform.prompt(session_id)
    assert ended.value.code == "session_ended"
    assert (await platform.session(session_id)).status == "terminated"
    assert await _events(platform, session_id, "fact.sandbox_release_requested")


async def test_what_is_asked_again_is_answered_the_same_and_done_once(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id = new_id()
    create = CreateSession(session_id=session_id, owner="ada", model="m/x", idempotency_key="k")
    views = await asyncio.gather(*(platform.ask(create, SessionView) for _ in range(5)))
    assert {view.id for view in views} == {session_id}
    replies = await asyncio.gather(*(platform.prompt(session_id, "Hi", "P1") for _ in range(5)))
    assert len({reply.seq for reply in replies}) == 1
    assert len(await _events(platform, session_id, "fact.prompt_accepted")) == 1
    with pytest.raises(Unprocessable) as reused:
        await platform.prompt(session_id, "Something else", "P1")
    assert reused.value.code == "idempotency_key_reused"


async def test_another_users_session_is_not_there(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    for request, reply in (
        (GetSession(session_id=session_id, user="eve"), SessionView),
        (ListMessages(session_id=session_id, user="eve"), MessagePage),
        (GetDiff(session_id=session_id, user="eve"), DiffView),
        (AbortTurn(session_id=session_id, user="eve"), Done),
        (GetSession(session_id=new_id(), user="ada"), SessionView),
    ):
        with pytest.raises(NotFound):
            await platform.ask(request, reply)
    assert (await platform.ask(ListSessions(user="eve"), SessionPage)).items == []


async def test_pages_of_sessions_and_messages_join_without_gap_or_overlap(
    ledger: LedgerProcess, platform: Platform
) -> None:
    made = [await platform.create() for _ in range(5)]
    seen: list[str] = []
    before = None
    while True:
        page = await platform.ask(ListSessions(user="ada", limit=2, before=before), SessionPage)
        seen += [item.id for item in page.items]
        before = page.next
        if before is None:
            break
    assert seen == made[::-1]
    session_id = made[0]
    sandbox = await platform.boot(session_id)
    await platform.prompt(session_id)
    turn_id, prompt_id = await platform.dispatched(session_id)
    await sandbox.play_turn(turn_id, prompt_id, steps=4)
    await platform.until(session_id, lambda view: view.last_turn)
    ids: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await platform.ask(ListMessages(session_id=session_id, user="ada", limit=2, after=after), MessagePage)
        ids += [item.id for item in page.items]
        after = page.next
    assert len(ids) == len(set(ids)) == 5
    archive = await platform.ask(ReadArchive(session_id=session_id, after=0, before=10**9), ArchivePage)
    assert archive.complete
    assert [item.seq for item in archive.items] == sorted(item.seq for item in archive.items)
    assert b"delta." not in b"".join(bytes(item.event) for item in archive.items)


async def test_the_diff_is_that_of_the_last_turn(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    nothing = await platform.ask(GetDiff(session_id=session_id, user="ada"), DiffView)
    assert (nothing.patch, nothing.files) == ("", [])
    sandbox = await platform.boot(session_id)
    for number in (1, 2):
        change = agent.FileChange(path="a.txt", status="modified", additions=number, deletions=0)
        seq = await sandbox.agent(
            agent.GitChanged(base_commit="b", head_commit="h", branch="main", files=[change], patch=f"+{number}")
        )

    async def read() -> DiffView:
        return await platform.ask(GetDiff(session_id=session_id, user="ada"), DiffView)

    diff = await wait_for(read, lambda diff: diff.seq >= seq)
    assert (diff.patch, diff.files[0].additions) == ("+2", 2)


async def test_a_runner_can_speak_for_its_own_session_only(ledger: LedgerProcess, platform: Platform) -> None:
    mine, other = await platform.create(), await platform.create()
    with pytest.raises(Forbidden):
        await rpc.call(
            platform.nc,
            subjects.sandbox_request(mine, "attach_runner"),
            AttachRunner(session_id=other, epoch=1, runner_version="t"),
            Attached,
        )
    # envelopes that lie about their session or their type, on a subject the runner's credentials allow
    lies = [
        encode(_event(other, agent.SessionTitled(title="stolen"), epoch=1), source="/x"),
        encode(_event(mine, facts.SessionTerminated(by="eve")), source="/x"),
        encode(_event(mine, agent.SessionTitled(title="no runner yet"), epoch=0), source="/x"),
    ]
    js = platform.nc.jetstream()
    for lie in lies:
        await js.publish(subjects.event(mine, "agent", "session_titled"), lie.payload)
    await js.publish(subjects.event(mine, "agent", "noise"), b"not even json")
    await platform.boot(mine)
    await platform.until(mine, lambda view: view.status == "ready")
    assert [(view.title, view.status) for view in (await platform.session(mine), await platform.session(other))] == [
        ("", "ready"),
        ("", "requested"),
    ]
    await rebuild.verify(ledger.settings)


async def test_data_that_postgresql_cannot_take_does_not_stop_other_sessions(
    ledger: LedgerProcess, platform: Platform
) -> None:
    bad, good = await platform.create(), await platform.create()
    sandbox = await platform.boot(bad)
    most = 2**63 - 1
    huge = agent.Tokens(input=most, output=most)
    await sandbox.agent(agent.MessageCreated(message_id="m" * 4000, model="x\0y"))
    await sandbox.agent(agent.MessageCompleted(message_id="m" * 4000, text="\0", tokens=huge, cost=1e308))
    await sandbox.agent(
        agent.ToolUpdated(
            message_id="m2", part_id="p", call_id="c", tool="t", status="error", input={"a": "\0"}, ended_ms=most
        )
    )
    await platform.boot(good)
    await platform.until(good, lambda view: view.status == "ready")
    await platform.until(bad, lambda view: view.status == "ready")
    assert (await platform.messages(bad)).items[0].complete


async def test_a_rebuild_gives_the_same_rows_and_finds_what_was_tampered_with(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id = await platform.create()
    sandbox = await platform.boot(session_id)
    await platform.prompt(session_id)
    turn_id, prompt_id = await platform.dispatched(session_id)
    await sandbox.play_turn(turn_id, prompt_id, steps=3)
    await platform.until(session_id, lambda view: view.last_turn)
    connection = await asyncpg.connect(ledger.settings.database_url)
    await connection.execute("UPDATE ledger.messages SET text = 'forged' WHERE role = 'assistant'")
    await connection.execute("DELETE FROM ledger.parts")
    with pytest.raises(errors.Differs) as differs:
        await rebuild.verify(ledger.settings)
    assert "forged" in str(differs.value)
    assert any(line.startswith("parts: 6 rows only in the log") for line in differs.value.differences)
    done = await rebuild.rebuild(ledger.settings)
    assert done.events > 20
    await rebuild.verify(ledger.settings)
    # the running ledger goes on with what it holds in memory
    await platform.prompt(session_id, "Again")
    turn_id, prompt_id = await platform.dispatched(session_id, turns=2)
    await sandbox.play_turn(turn_id, prompt_id)
    await platform.until(session_id, lambda view: view.turns == 2 and not view.active_turn)
    await rebuild.verify(ledger.settings)
    await connection.close()


def _event(session_id: str, data: Data, epoch: int | None = None):
    return new_event(data, id=new_id(), session_id=session_id, now_ms=1, epoch=epoch)


async def _events(platform: Platform, session_id: str, kind: str) -> list:
    """The stored data of one type of event of a session."""
    return [event.data for event in await platform.log(session_id) if event.type == kind]
