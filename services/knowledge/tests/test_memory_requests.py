"""Claims about memories as agents get them. Real broker, PostgreSQL and service; the ledger only knows owners."""

import asyncio

import asyncpg
import pytest
from valet_event_bus.testing import Database
from valet_knowledge import limits
from valet_knowledge.store import QUERIES
from valet_protocol.errors import BadRequest, NotFound, TooMany, Unavailable
from valet_protocol.ids import new_id
from valet_protocol.tools.memory import (
    DeleteMemory,
    ListMemories,
    MemoryDeleted,
    MemoryList,
    MemoryWritten,
    SearchMemories,
    WriteMemory,
)
from valet_service.testing_sandbox import Agent, OwnerLedger


async def remember(agent: Agent, content: str, **fields: str) -> str:
    written = await agent.ask(WriteMemory(content=content, **fields), MemoryWritten)
    return written.id


async def contents(agent: Agent, tool: ListMemories | SearchMemories) -> list[str]:
    return [one.content for one in (await agent.ask(tool, MemoryList)).items]


async def test_what_one_session_writes_another_of_the_same_person_reads_and_nobody_else(
    agents: list[Agent], ledger: OwnerLedger
) -> None:
    first, second, stranger = agents
    memory = await remember(first, "Tests run with `make check`.", memory_category="codebase", workspace="acme/shop")
    (found,) = (await second.ask(ListMemories(), MemoryList)).items
    assert (found.id, found.content, found.category) == (memory, "Tests run with `make check`.", "codebase")
    assert (found.workspace, found.session, found.score) == ("acme/shop", first.session_id, None)
    assert found.created_at == found.updated_at
    assert await contents(stranger, ListMemories()) == []
    assert await contents(stranger, SearchMemories(query="make")) == []
    with pytest.raises(NotFound, match="There is no memory"):
        await stranger.ask(WriteMemory(content="x", memory_id=memory), MemoryWritten)
    assert not (await stranger.ask(DeleteMemory(memory_id=memory), MemoryDeleted)).deleted
    assert ledger.asked == [agent.session_id for agent in agents]  # once each: it never changes


async def test_a_session_that_is_not_there_is_answered_nothing(agents: list[Agent]) -> None:
    nobody = Agent(agents[0]._nc, new_id())
    with pytest.raises(NotFound) as refused:
        await nobody.ask(ListMemories(), MemoryList)
    assert refused.value.code == "session_not_found"


async def test_the_same_request_twice_is_one_memory_also_at_once(agents: list[Agent]) -> None:
    agent = agents[0]
    tool = WriteMemory(content="once")
    first, *again = await asyncio.gather(
        *(agent.ask(tool, MemoryWritten, request_id="R1") for _ in range(5)), agent.ask(tool, MemoryWritten)
    )
    assert again[:4] == [first] * 4
    assert again[4].id != first.id
    assert await contents(agent, ListMemories()) == ["once", "once"]


async def test_a_repeated_deletion_is_answered_as_the_first_and_a_later_text_is_not_undone(agents: list[Agent]) -> None:
    agent = agents[0]
    memory = await remember(agent, "old")
    correction = WriteMemory(content="new", memory_id=memory)
    written = await agent.ask(correction, MemoryWritten, request_id="R1")
    assert (written.id, written.created) == (memory, False)
    await agent.ask(WriteMemory(content="newest", memory_id=memory), MemoryWritten)
    assert await agent.ask(correction, MemoryWritten, request_id="R1") == written
    assert await contents(agent, ListMemories()) == ["newest"]
    deletions = [await agent.ask(DeleteMemory(memory_id=memory), MemoryDeleted, request_id="R2") for _ in range(2)]
    assert deletions == [MemoryDeleted(id=memory, deleted=True)] * 2
    assert not (await agent.ask(DeleteMemory(memory_id=memory), MemoryDeleted)).deleted
    assert await contents(agent, ListMemories()) == []


async def test_memories_are_read_in_pages_the_latest_change_first(agents: list[Agent]) -> None:
    agent = agents[0]
    ids = [await remember(agent, f"number {number}") for number in range(5)]
    await remember(agent, "number 1 again", memory_id=ids[1])
    first = await agent.ask(ListMemories(limit=3), MemoryList)
    assert [one.content for one in first.items] == ["number 1 again", "number 4", "number 3"]
    second = await agent.ask(ListMemories(limit=3, before=first.next), MemoryList)
    assert [one.content for one in second.items] == ["number 2", "number 0"]
    assert second.next is None
    with pytest.raises(BadRequest, match="`next` of the page before"):
        await agent.ask(ListMemories(before="x"), MemoryList)


async def test_a_repository_sees_its_own_memories_and_those_of_none(agents: list[Agent]) -> None:
    agent = agents[0]
    await remember(agent, "of the shop", workspace="acme/shop", memory_category="decision")
    await remember(agent, "of the blog", workspace="acme/blog")
    await remember(agent, "of all")
    assert await contents(agent, ListMemories(workspace="acme/shop")) == ["of all", "of the shop"]
    assert await contents(agent, ListMemories(memory_category="decision")) == ["of the shop"]
    found = await contents(agent, SearchMemories(query="shop blog all", workspace="acme/blog"))
    assert sorted(found) == ["of all", "of the blog"]


async def test_a_search_finds_other_forms_of_a_word_names_in_paths_and_every_script(agents: list[Agent]) -> None:
    agent = agents[0]
    await remember(agent, "We deploy from services/api/release.py on Fridays; deployments take an hour.")
    await remember(agent, "Die Straße heißt ÜBERSEERING.")
    await remember(agent, "Deploying needs a token.")
    best, other = (await agent.ask(SearchMemories(query="how is release.py deployed?"), MemoryList)).items
    assert best.content.startswith("We deploy")
    assert best.score is not None
    assert other.score is not None
    assert best.score > other.score > 0
    assert await contents(agent, SearchMemories(query="überseering")) == ["Die Straße heißt ÜBERSEERING."]
    assert await contents(agent, SearchMemories(query="?!")) == []
    assert await contents(agent, SearchMemories(query="kubernetes & | ! ( :*")) == []


async def test_too_many_memories_are_refused_with_what_to_do(
    agents: list[Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORIES", 3)
    agent, other, stranger = agents
    ids = [await remember(agent, str(number)) for number in range(2)]
    outcomes = await asyncio.gather(remember(agent, "a"), remember(other, "b"), return_exceptions=True)
    refusals = [one for one in outcomes if isinstance(one, TooMany)]
    assert [(one.code, "Delete some" in one.detail) for one in refusals] == [("too_many_memories", True)]
    await remember(agent, "another text", memory_id=ids[0])
    await remember(stranger, "of somebody else")
    await agent.ask(DeleteMemory(memory_id=ids[1]), MemoryDeleted)
    await remember(agent, "in its place")


async def test_any_text_can_be_remembered_and_a_request_without_an_id_is_refused(agents: list[Agent]) -> None:
    agent = agents[0]
    text = "\0nul 'quotes' $1 \U0001f600 \u2028" + "x" * 3000
    await remember(agent, text, workspace="\0")
    assert await contents(agent, ListMemories()) == [text.replace("\0", "")]
    with pytest.raises(BadRequest) as refused:
        await agent.ask(WriteMemory(content="x"), MemoryWritten, request_id="")
    assert refused.value.code == "no_request_id"


async def test_a_restart_of_the_database_is_waited_for_and_a_longer_absence_is_said(
    agents: list[Agent], postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents[0]
    await remember(agent, "kept")
    postgres.end()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(limits, "DATABASE_ANSWER", 0.3)
            with pytest.raises(Unavailable) as refused:
                await agent.ask(ListMemories(), MemoryList)
            assert refused.value.code == "memories_unavailable"
        monkeypatch.setattr(limits, "DATABASE_ANSWER", 60.0)
        asking = asyncio.create_task(contents(agent, ListMemories()))
        done, _ = await asyncio.wait([asking], timeout=0.3)
        assert not done
    finally:
        postgres.start()
    assert await asking == ["kept"]


async def test_old_answers_are_removed_and_memories_never(agents: list[Agent], database_url: str, nats: object) -> None:
    await remember(agents[0], "kept")
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(QUERIES["prune"], 1 << 60)
        assert await connection.fetchval("SELECT count(*) FROM knowledge.answered") == 0
        assert await connection.fetchval("SELECT count(*) FROM knowledge.memories") == 1
    finally:
        await connection.close()
