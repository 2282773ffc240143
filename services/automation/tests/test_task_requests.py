"""Claims about the task board as agents get it. Real broker, PostgreSQL and service; the ledger only knows owners."""

import asyncio

import asyncpg
import pytest
from nats.aio.client import Client
from valet_automation import limits
from valet_automation.store import Store
from valet_event_bus.testing import Database
from valet_protocol.errors import BadRequest, Conflict, NotFound, Unavailable, Unprocessable
from valet_protocol.ids import new_id
from valet_protocol.tools.tasks import CreateTask, GetTask, ListTasks, MyTasks, TaskPage, TaskView, UpdateTask
from valet_service.testing_sandbox import Agent


async def create(agent: Agent, title: str, **fields: object) -> TaskView:
    return await agent.ask(CreateTask(title=title, **fields), TaskView)  # type: ignore[arg-type]


async def titles(agent: Agent, tool: ListTasks | MyTasks) -> list[str]:
    return [one.title for one in (await agent.ask(tool, TaskPage)).items]


async def test_a_task_given_to_another_session_of_the_person_is_found_there_and_reported_back(
    agents: list[Agent],
) -> None:
    director, child, _ = agents
    whole = await create(director, "Ship it")
    part = await create(
        director, "Write it", description="all", assigned_session=child.session_id, parent_task=whole.id
    )
    (mine,) = (await child.ask(MyTasks(), TaskPage)).items
    assert mine == part
    assert (mine.status, mine.created_by, mine.description) == ("open", f"session:{director.session_id}", "all")
    await child.ask(UpdateTask(task_id=mine.id, status="done", result="in branch x"), TaskView)
    seen = await director.ask(GetTask(task_id=part.id), TaskView)
    assert (seen.status, seen.result, seen.title, seen.parent_task) == ("done", "in branch x", "Write it", whole.id)
    assert await titles(child, MyTasks()) == []
    assert await titles(child, MyTasks(status="done")) == ["Write it"]
    assert await titles(director, ListTasks()) == ["Ship it"]
    assert await titles(director, ListTasks(parent_task=whole.id, status="done")) == ["Write it"]
    assert await titles(director, ListTasks(assigned_session=child.session_id, status="done")) == ["Write it"]


async def test_another_persons_board_does_not_exist(agents: list[Agent]) -> None:
    agent, _, stranger = agents
    task = await create(agent, "secret")
    assert await titles(stranger, ListTasks()) == []
    for tool in (
        GetTask(task_id=task.id),
        UpdateTask(task_id=task.id, status="done"),
        CreateTask(title="x", parent_task=task.id),
        CreateTask(title="x", blocked_by=[task.id]),
    ):
        with pytest.raises(NotFound) as refused:
            await stranger.ask(tool, TaskView)
        assert refused.value.code == "task_not_found"
    for session_id in (stranger.session_id, new_id()):
        with pytest.raises(NotFound) as refused:
            await create(agent, "x", assigned_session=session_id)
        assert refused.value.code == "session_not_found"
        with pytest.raises(NotFound):
            await agent.ask(UpdateTask(task_id=task.id, assigned_session=session_id), TaskView)
    assert await titles(agent, ListTasks()) == ["secret"]


async def test_the_same_request_twice_is_one_task_and_a_repeated_update_undoes_nothing(agents: list[Agent]) -> None:
    agent = agents[0]
    answers = await asyncio.gather(*(agent.ask(CreateTask(title="once"), TaskView, request_id="R1") for _ in range(5)))
    assert answers == [answers[0]] * 5
    begin = UpdateTask(task_id=answers[0].id, status="in_progress")
    begun = await agent.ask(begin, TaskView, request_id="R2")
    await agent.ask(UpdateTask(task_id=begun.id, status="done"), TaskView)
    assert await agent.ask(begin, TaskView, request_id="R2") == begun
    assert (await agent.ask(GetTask(task_id=begun.id), TaskView)).status == "done"
    assert await titles(agent, ListTasks(status="done")) == ["once"]


async def test_the_most_urgent_comes_first_and_of_those_the_oldest_over_all_pages(agents: list[Agent]) -> None:
    agent = agents[0]
    for title, priority in (("a", "normal"), ("b", "urgent"), ("c", "low"), ("d", "normal"), ("e", "urgent")):
        await create(agent, title, priority=priority)
    found: list[str] = []
    after = None
    while True:
        page = await agent.ask(ListTasks(limit=2, after=after), TaskPage)
        found += [one.title for one in page.items]
        after = page.next
        if after is None:
            break
        assert len(page.items) == 2
    assert found == ["b", "e", "a", "d", "c"]
    for wrong in ("x", "9-1", "1-", "1-99999999999999999999999"):
        with pytest.raises(BadRequest, match="`next` of the page before"):
            await agent.ask(ListTasks(after=wrong), TaskPage)


async def test_what_waits_for_another_begins_when_that_is_done(agents: list[Agent]) -> None:
    agent = agents[0]
    first = await create(agent, "first")
    second = await create(agent, "second", blocked_by=[first.id, first.id])
    assert second.blocked_by == [first.id]
    with pytest.raises(Conflict, match=first.id):
        await agent.ask(UpdateTask(task_id=second.id, status="in_progress"), TaskView)
    with pytest.raises(Unprocessable) as refused:
        await agent.ask(UpdateTask(task_id=first.id, blocked_by=[second.id]), TaskView)
    assert refused.value.code == "blockers_in_a_circle"
    with pytest.raises(NotFound):
        await agent.ask(UpdateTask(task_id=first.id, blocked_by=["no-such-task"]), TaskView)
    with pytest.raises(BadRequest) as nothing:
        await agent.ask(UpdateTask(task_id=first.id), TaskView)
    assert nothing.value.code == "nothing_to_change"
    await agent.ask(UpdateTask(task_id=first.id, status="done"), TaskView)
    begun = await agent.ask(UpdateTask(task_id=second.id, status="in_progress", priority="high"), TaskView)
    assert (begun.status, begun.priority, begun.blocked_by) == ("in_progress", "high", [first.id])


async def test_any_text_can_stand_on_the_board(agents: list[Agent]) -> None:
    agent = agents[0]
    task = await create(agent, "\0'title' $1", description="\U0001f600\0")
    assert (task.title, task.description) == ("'title' $1", "\U0001f600")
    with pytest.raises(NotFound):
        await create(agent, "x", blocked_by=["\0"])
    with pytest.raises(NotFound):
        await agent.ask(GetTask(task_id="\0"), TaskView)


async def test_a_board_that_is_away_for_longer_says_so(
    nc: Client, agents: list[Agent], postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents[0]
    await create(agent, "kept")
    postgres.end()
    try:
        monkeypatch.setattr(limits, "DATABASE_ANSWER", 0.3)
        with pytest.raises(Unavailable) as refused:
            await create(agent, "later")
        assert refused.value.code == "tasks_unavailable"
    finally:
        postgres.start()
    monkeypatch.setattr(limits, "DATABASE_ANSWER", 60.0)
    assert await titles(agent, ListTasks()) == ["kept"]


async def test_what_was_finished_long_ago_is_removed_unless_a_part_of_it_is_to_be_done(
    agents: list[Agent], database_url: str
) -> None:
    agent = agents[0]
    whole, other, unfinished = [await create(agent, title) for title in ("whole", "other", "unfinished")]
    await create(agent, "part", parent_task=whole.id)
    for task in (whole, other):
        await agent.ask(UpdateTask(task_id=task.id, status="done"), TaskView)
    connection = await asyncpg.connect(database_url)
    store = Store(database_url)
    keeping = asyncio.create_task(store.keep())
    try:
        await connection.execute("UPDATE automation.tasks SET updated_ms = 0")
        await connection.execute("UPDATE automation.answered SET answered_ms = 0")
        await store.prune()
        assert await connection.fetchval("SELECT count(*) FROM automation.answered") == 0
    finally:
        keeping.cancel()
        store.close()
        await connection.close()
    assert await titles(agent, ListTasks()) == ["unfinished", "part"]
    assert await titles(agent, ListTasks(status="done")) == ["whole"]
    assert unfinished.status == "open"
