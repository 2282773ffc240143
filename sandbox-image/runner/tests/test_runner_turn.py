"""Claims about a turn, with the real OpenCode, broker and git; model, ledger and portal are stand-ins.

One runner serves all of them, one turn after the other, as in a session.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from valet_protocol.events import agent, facts
from valet_protocol.events.delta import Delta
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner.testing import Broker, Ledger, Portal, Runner

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def own_spec(new_spec: Callable[[], RunnerSpec]) -> RunnerSpec:
    return new_spec()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(own_spec: RunnerSpec, nats: Broker, folder: Path) -> AsyncIterator[Ledger]:
    """The log of a session whose runner is ready."""
    runner = Runner(own_spec, folder / own_spec.session_id)
    async with Ledger(nats.url, own_spec.session_id) as ledger:
        runner.start()
        try:
            await ledger.until(agent.RunnerReady)
            yield ledger
        finally:
            runner.close()
            print(runner.log())


@pytest.fixture
def workspace(own_spec: RunnerSpec) -> Path:
    return Path(own_spec.workspace)


def git_status(folder: Path) -> str:
    command = ["git", "status", "--porcelain"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=20).stdout


def streamed(live: Ledger, part_id: str) -> str:
    text = ""
    for delta in live.said(Delta):
        if delta.part_id == part_id:
            assert delta.offset == len(text)
            text += delta.text
    return text


async def test_a_turn_streams_deltas_whose_concatenation_is_the_completed_text(live: Ledger) -> None:
    ready = await live.until(agent.RunnerReady)
    assert ready.epoch == 1
    assert ready.data.base_commit
    assert ready.data.opencode_version == "1.18.33"
    turn = await live.dispatch("slow 40 words")
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.turn == turn
    assert ended.data.turn_id == turn
    assert ended.data.status == "completed"
    assert ended.data.cost > 0
    assert ended.data.first_token_ms is not None
    assert 0 <= ended.data.first_token_ms < ended.data.duration_ms
    (text,) = [part for part in live.said(agent.TextCompleted, turn=turn) if part.kind == "text"]
    assert text.text.split() == [f"w{number}" for number in range(1, 41)]
    assert len([delta for delta in live.said(Delta) if delta.part_id == text.part_id]) > 10
    assert streamed(live, text.part_id) == text.text
    (message,) = live.said(agent.MessageCompleted, turn=turn)
    assert message.text == text.text
    assert message.finish == "stop"
    order = [type(event.data) for event in live.events if event.turn == turn]
    assert order[0] is agent.TurnStarted
    assert order[-1] is agent.TurnEnded
    assert order.index(agent.MessageCreated) < order.index(Delta) < order.index(agent.MessageCompleted)


async def test_a_tool_goes_through_its_states_and_what_it_changed_is_said(
    live: Ledger, workspace: Path, portal: Portal
) -> None:
    file = workspace / "new.txt"
    turn = await live.dispatch(f"write {file} some content")
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "completed"
    states = [tool.status for tool in live.said(agent.ToolUpdated, turn=turn)]
    assert states == sorted(states, key=["pending", "running", "completed"].index)
    assert states[-1] == "completed"
    (changed,) = live.said(agent.GitChanged, turn=turn)
    assert [(change.path, change.status, change.additions) for change in changed.files] == [("new.txt", "added", 1)]
    assert "+some content" in changed.patch
    status = await asyncio.to_thread(git_status, workspace)
    assert status == "?? new.txt\n"  # the index is as it was
    assert not any("Bearer portal" in head for head in portal.heads)  # what OpenCode itself holds


async def test_a_question_is_answered_through_a_fact(live: Ledger) -> None:
    turn = await live.dispatch("ask Shall I go on?")
    asked = await live.until(agent.QuestionAsked, turn=turn)
    assert asked.turn == turn
    assert [option.label for option in asked.data.questions[0].options] == ["Yes", "No"]
    await live.append(
        facts.QuestionAnswered(question_id=asked.data.question_id, answers=[["No"]], answered_by="person")
    )
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "completed"
    (resolved,) = live.said(agent.QuestionResolved, turn=turn)
    assert resolved.outcome == "answered"
    assert "No" in live.said(agent.MessageCompleted, turn=turn)[-1].text


@pytest.mark.parametrize(
    ("reply", "outcome", "tool"), [("once", "answered", "completed"), ("reject", "rejected", "error")]
)
async def test_a_permission_is_answered_through_a_fact(live: Ledger, reply: str, outcome: str, tool: str) -> None:
    ask = facts.PermissionRule(permission="external_directory", action="ask")
    await live.append(facts.PolicyChanged(policy=facts.SessionPolicy(permission_rules=[ask]), by="u"))
    turn = await live.dispatch("read /etc/hostname")
    asked = await live.until(agent.QuestionAsked, turn=turn)
    assert (asked.data.kind, asked.data.permission) == ("permission", "external_directory")
    await live.append(
        facts.QuestionAnswered(question_id=asked.data.question_id, answers=[[reply]], answered_by="policy")
    )
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "completed"
    assert [resolved.outcome for resolved in live.said(agent.QuestionResolved, turn=turn)] == [outcome]
    assert live.said(agent.ToolUpdated, turn=turn)[-1].status == tool


async def test_a_question_left_open_by_an_abort_is_dropped(live: Ledger) -> None:
    turn = await live.dispatch("ask Is anybody there?")
    asked = await live.until(agent.QuestionAsked, turn=turn)
    await live.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "interrupted"
    assert [resolved.outcome for resolved in live.said(agent.QuestionResolved, turn=turn)] == ["dropped"]
    # an answer that comes too late changes nothing
    await live.append(
        facts.QuestionAnswered(question_id=asked.data.question_id, answers=[["Yes"]], answered_by="default")
    )
    second = await live.dispatch("say next")
    assert (await live.until(agent.TurnEnded, turn=second)).data.status == "completed"


async def test_an_abort_ends_the_turn_interrupted_and_the_next_prompt_works(live: Ledger) -> None:
    turn = await live.dispatch("slow 2000 words")
    await live.until(Delta, turn=turn)
    await live.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "interrupted"
    (text,) = live.said(agent.TextCompleted, turn=turn)
    assert text.text.startswith(streamed(live, text.part_id).rstrip())
    assert len(live.said(agent.MessageCompleted, turn=turn)) == 1
    second = await live.dispatch("say fine")
    ended = await live.until(agent.TurnEnded, lambda data: data.turn_id == second)
    assert ended.data.status == "completed"
    assert [message.text for message in live.said(agent.MessageCompleted, turn=second)] == ["fine"]


async def test_an_abort_of_a_bash_command_ends_the_turn(live: Ledger) -> None:
    turn = await live.dispatch("bash echo started; sleep 300")
    await live.until(agent.ToolUpdated, lambda tool: "started" in (tool.output or ""), turn=turn)
    await live.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "interrupted"
    assert live.said(agent.ToolUpdated, turn=turn)[-1].status in ("completed", "error")


async def test_an_interrupt_of_a_turn_that_never_came_is_answered(live: Ledger) -> None:
    await live.append(facts.TurnInterruptRequested(turn_id="01NEVERSTARTED", by="u"))
    ended = await live.until(agent.TurnEnded, lambda data: data.turn_id == "01NEVERSTARTED")
    assert (ended.data.turn_id, ended.data.status) == ("01NEVERSTARTED", "interrupted")


async def test_sub_agents_belong_to_the_turn_and_do_not_end_it(live: Ledger) -> None:
    turn = await live.dispatch("task say from below")
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "completed"
    messages = live.said(agent.MessageCompleted, turn=turn)
    assert [message.text for message in messages if message.parent_session] == ["from below"]
    assert messages[-1].parent_session is None
    assert ended.data.cost == sum(message.cost for message in messages)


async def test_a_provider_that_refuses_fails_the_turn_with_its_words(live: Ledger) -> None:
    turn = await live.dispatch("fail 401 always")
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "failed"
    assert ended.data.error
    assert ended.data.error.status == 401
    assert "a wrong key" in (ended.data.error.message if ended.data.error else "")
    second = await live.dispatch("anything", model="scripted/none-such")
    ended = await live.until(agent.TurnEnded, lambda data: data.turn_id == second)
    assert ended.data.status == "failed"
    assert "none-such" in (ended.data.error.message if ended.data.error else "")


async def test_a_retry_is_said_and_its_broken_try_leaves_no_text(live: Ledger) -> None:
    turn = await live.dispatch("cut once")
    ended = await live.until(agent.TurnEnded, turn=turn)
    assert ended.data.status == "completed"
    changes = live.said(agent.StatusChanged, turn=turn)
    assert [change.status for change in changes] == ["retrying", "busy"] * (len(changes) // 2)
    # on a busy machine the next try may break off, too; each is said once
    assert [change.attempt for change in changes[::2]] == list(range(1, len(changes) // 2 + 1))
    words = " ".join(f"w{number}" for number in range(1, 21))
    (message,) = live.said(agent.MessageCompleted, turn=turn)
    assert message.text == words


async def test_the_agents_shell_sees_no_secret_in_its_environment(live: Ledger) -> None:
    turn = await live.dispatch("bash env")
    await live.until(agent.TurnEnded, turn=turn)
    output = live.said(agent.ToolUpdated, turn=turn)[-1].output
    assert output
    shown = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    assert "secret-token" not in output
    assert not shown.get("OPENCODE_SERVER_PASSWORD")
    assert not shown.get("npm_config_registry")
    assert shown["HTTPS_PROXY"].startswith("http://127.0.0.1:")
