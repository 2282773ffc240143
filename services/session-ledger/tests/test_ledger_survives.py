"""What a ledger must survive: its own death, PostgreSQL's, the broker's, and a second ledger on the same shards."""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace
from valet_protocol.codec import encode, new_event
from valet_protocol.errors import Unavailable
from valet_protocol.events import agent, facts
from valet_protocol.events.facts import QuestionAnswered, TurnDispatched
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    Accepted,
    CreateShareLink,
    Done,
    JoinSession,
    RenameSession,
    RevokeShareLink,
    SessionView,
    SubmitPrompt,
)
from valet_service import database
from valet_service.settings import Settings
from valet_service.testing import BrokerProcess
from valet_session_ledger import rebuild
from valet_session_ledger.testing import FakeSandbox, Killable, LedgerProcess, Platform, wait_for


async def _work(platform: Platform, session_id: str, sandbox: FakeSandbox, turns: int) -> None:
    """A runner that does every turn it is given, until it has done `turns`. It reads the log, as a real one does."""
    done: set[str] = set()
    async with asyncio.timeout(60):
        while len(done) < turns:
            for event in await platform.log(session_id):
                if isinstance(event.data, TurnDispatched) and event.data.turn_id not in done:
                    done.add(event.data.turn_id)
                    await sandbox.play_turn(event.data.turn_id, event.data.prompt_id, steps=3)
            await asyncio.sleep(0.01)


async def _check(platform: Platform, settings: Settings, session_ids: list[str], turns: int) -> None:
    """Every prompt had exactly one turn, every message is there, and the read models are what the log says."""
    for session_id in session_ids:
        view = await platform.until(
            session_id, lambda view: view.turns == turns and not view.active_turn and not view.queued, timeout=30
        )
        assert view.status == "ready"
        log = await platform.log(session_id)
        dispatched = Counter(event.data.prompt_id for event in log if isinstance(event.data, TurnDispatched))
        assert sorted(dispatched.values()) == [1] * turns
        roles = Counter(message.role for message in (await platform.messages(session_id)).items)
        assert roles == {"user": turns, "assistant": 3 * turns}
    await rebuild.verify(settings)


async def _streaming(platform: Platform, sessions: int, turns: int) -> tuple[list[str], list[asyncio.Task[None]]]:
    """Sessions with queued prompts and runners that work on them."""
    ids = [await platform.create() for _ in range(sessions)]
    runners: list[asyncio.Task[None]] = []
    for session_id in ids:
        sandbox = await platform.boot(session_id)
        for number in range(turns):
            await platform.prompt(session_id, f"Prompt {number}")
        runners.append(asyncio.create_task(_work(platform, session_id, sandbox, turns)))
    return ids, runners


async def _some_turns_done(platform: Platform, session_id: str, turns: int = 1) -> None:
    await platform.until(session_id, lambda view: view.turns > turns)


async def test_kill_9_of_the_ledger_in_the_middle_loses_and_doubles_nothing(
    ledger: LedgerProcess, platform: Platform
) -> None:
    ids, runners = await _streaming(platform, sessions=3, turns=5)
    for turns in (1, 2, 3):
        await _some_turns_done(platform, ids[0], turns)
        ledger.kill()
        ledger.start()
    await asyncio.gather(*runners)
    await _check(platform, ledger.settings, ids, turns=5)


async def test_two_ledgers_on_the_same_shards_dispatch_nothing_twice(ledger: LedgerProcess, platform: Platform) -> None:
    second = LedgerProcess(ledger.settings, "second")
    second.start()
    try:
        ids, runners = await _streaming(platform, sessions=3, turns=6)
        await _some_turns_done(platform, ids[0], 2)
        second.kill()
        await _some_turns_done(platform, ids[0], 3)
        second.start()
        await asyncio.gather(*runners)
        await _check(platform, ledger.settings, ids, turns=6)
        assert second.stop() == 0
    finally:
        second.kill()


async def test_while_postgresql_is_away_turns_go_on_and_nothing_is_lost(
    platform: Platform, settings: Settings, own_database: Killable
) -> None:
    ledger = LedgerProcess(replace(settings, database_url=own_database.url))
    ledger.start()
    try:
        ids, runners = await _streaming(platform, sessions=2, turns=5)
        await _some_turns_done(platform, ids[0])
        own_database.kill()
        prompt = SubmitPrompt(session_id=ids[0], user="ada", prompt_id="WHILE-AWAY", content="Are you there?")
        with pytest.raises(Unavailable):
            await platform.ask(prompt, Accepted, timeout=2)
        # every turn is dispatched and done without a database
        await asyncio.gather(*runners)
        own_database.start()
        # the prompt was accepted all the same; asking again says so
        assert (await platform.ask(prompt, Accepted)).prompt_id == "WHILE-AWAY"
        turn_id, prompt_id = await platform.dispatched(ids[0], turns=6)
        assert prompt_id == "WHILE-AWAY"
        await platform.fake(ids[0]).play_turn(turn_id, prompt_id, steps=3)
        await _check(platform, ledger.settings, ids[:1], turns=6)
        await _check(platform, ledger.settings, ids[1:], turns=5)
    finally:
        ledger.kill()


async def test_no_cut_of_a_transaction_is_taken_for_an_error_of_the_program(own_database: Killable) -> None:
    """Bug class: a connection cut in the middle of a statement is handed back with a class of error of its own."""
    pool = await database.open_pool(own_database.url, size=6)
    await pool.execute("CREATE TABLE written (number int)")
    over = asyncio.Event()

    async def insert() -> None:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("INSERT INTO written SELECT generate_series(1, 20000)")

    async def write() -> None:
        while not over.is_set():
            await database.persist(insert)

    writers = [asyncio.create_task(write()) for _ in range(6)]
    for _ in range(6):
        await asyncio.sleep(0.1)  # somewhere in a statement
        own_database.kill()
        await asyncio.to_thread(own_database.start)
    over.set()
    await asyncio.gather(*writers)
    pool.terminate()


async def test_kill_9_of_the_broker_in_the_middle_loses_and_doubles_nothing(
    ledger: LedgerProcess, platform: Platform, server: BrokerProcess
) -> None:
    ids, runners = await _streaming(platform, sessions=3, turns=5)
    for turns in (1, 3):
        await _some_turns_done(platform, ids[0], turns)
        server.kill()
        server.start()
    await asyncio.gather(*runners)
    await _check(platform, ledger.settings, ids, turns=5)


async def test_a_deadline_is_kept_over_a_restart(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create(policy=facts.SessionPolicy(question_timeout_s=1.5))
    sandbox = await platform.boot(session_id)
    await platform.prompt(session_id)
    turn_id, _ = await platform.dispatched(session_id)
    question = agent.Question(question="Which?", options=[agent.QuestionOption(label="A")])
    await sandbox.agent(agent.QuestionAsked(question_id="q", kind="question", questions=[question]), turn_id)
    await platform.until(session_id, lambda view: view.questions)
    ledger.kill()
    ledger.start()
    await platform.until(session_id, lambda view: not view.questions)
    answers = [event.data for event in await platform.log(session_id) if isinstance(event.data, QuestionAnswered)]
    assert [(answer.answers, answer.answered_by) for answer in answers] == [([["A"]], "default")]


async def test_what_a_crash_left_half_done_is_done_at_the_next_start(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create()
    await platform.boot(session_id)
    await platform.until(session_id, lambda view: view.status == "ready")
    ledger.kill()
    accepted = facts.PromptAccepted(prompt_id="P", content="Hi", author="ada", model="fake/model")
    event = new_event(accepted, id=new_id(), session_id=session_id, now_ms=1)
    await platform.outbox.put(encode(event, source="/session-ledger"))
    ledger.start()
    _, prompt_id = await platform.dispatched(session_id)
    assert prompt_id == "P"


async def test_a_ledger_with_nothing_to_do_does_nothing(ledger: LedgerProcess, platform: Platform) -> None:
    session_id = await platform.create(policy=facts.SessionPolicy(question_timeout_s=0.1))
    sandbox = await platform.boot(session_id)
    await platform.prompt(session_id)
    turn_id, _ = await platform.dispatched(session_id)
    question = agent.Question(question="Which?", options=[agent.QuestionOption(label="A")])
    await sandbox.agent(agent.QuestionAsked(question_id="q", kind="question", questions=[question]), turn_id)
    await platform.until(session_id, lambda view: not view.questions)
    before = ledger.cpu_seconds()
    await asyncio.sleep(2.0)  # the span of the measurement
    assert ledger.cpu_seconds() - before < 0.1


async def test_a_ledger_killed_after_a_link_was_revoked_says_afterwards_who_left_with_it(
    ledger: LedgerProcess, platform: Platform
) -> None:
    session_id = await platform.create()
    link = CreateShareLink(session_id=session_id, user="ada", link_id="l", token_sha256="x", role="viewer")
    await platform.ask(link, Done)
    await platform.ask(JoinSession(session_id=session_id, user="eve", token_sha256="x"), SessionView)
    ledger.kill()
    revoked = facts.ShareLinkRevoked(link_id="l", by="ada")
    event = new_event(revoked, id=new_id(), session_id=session_id, now_ms=1)
    await platform.outbox.put(encode(event, source="/test"))  # as far as a ledger got
    ledger.start()

    async def left() -> list[facts.ParticipantRemoved]:
        return [one.data for one in await platform.log(session_id) if isinstance(one.data, facts.ParticipantRemoved)]

    await wait_for(left, bool, timeout=60)
    await platform.ask(RevokeShareLink(session_id=session_id, user="ada", link_id="l"), Done)
    ledger.kill()
    ledger.start()
    await platform.ask(RenameSession(session_id=session_id, user="ada", title="later"), Done)
    assert await left() == [facts.ParticipantRemoved(user="eve", by="ada")]
