"""Claims about a turn, with the real OpenCode, broker and git; model, ledger and portal are stand-ins."""

import asyncio
import subprocess
from pathlib import Path

from valet_protocol.events import agent, facts
from valet_protocol.events.delta import Delta
from valet_runner.testing import Ledger, Portal


def git_status(folder: str) -> str:
    command = ["git", "status", "--porcelain"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=20).stdout


def streamed(ledger: Ledger, part_id: str) -> str:
    text = ""
    for delta in ledger.said(Delta):
        if delta.part_id == part_id:
            assert delta.offset == len(text)
            text += delta.text
    return text


async def test_a_turn_streams_deltas_whose_concatenation_is_the_completed_text(runners, ledger: Ledger) -> None:
    runners.start()
    ready = await ledger.until(agent.RunnerReady)
    assert ready.epoch == 1
    assert ready.data.base_commit
    assert ready.data.opencode_version == "1.18.33"
    turn = await ledger.dispatch("slow 40 words")
    ended = await ledger.until(agent.TurnEnded)
    assert ended.turn == turn
    assert ended.data.turn_id == turn
    assert ended.data.status == "completed"
    assert ended.data.cost > 0
    assert ended.data.first_token_ms is not None
    assert 0 <= ended.data.first_token_ms < ended.data.duration_ms
    (text,) = [part for part in ledger.said(agent.TextCompleted) if part.kind == "text"]
    assert text.text.split() == [f"w{number}" for number in range(1, 41)]
    assert len([delta for delta in ledger.said(Delta) if delta.part_id == text.part_id]) > 10
    assert streamed(ledger, text.part_id) == text.text
    (message,) = ledger.said(agent.MessageCompleted)
    assert message.text == text.text
    assert message.finish == "stop"
    order = [type(event.data) for event in ledger.events if event.turn == turn]
    assert order[0] is agent.TurnStarted
    assert order[-1] is agent.TurnEnded
    assert order.index(agent.MessageCreated) < order.index(Delta) < order.index(agent.MessageCompleted)


async def test_a_tool_goes_through_its_states_and_what_it_changed_is_said(
    runners, ledger: Ledger, spec, portal: Portal
) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    file = Path(spec.workspace) / "new.txt"
    turn = await ledger.dispatch(f"write {file} some content")
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "completed"
    states = [tool.status for tool in ledger.said(agent.ToolUpdated, turn=turn)]
    assert states == sorted(states, key=["pending", "running", "completed"].index)
    assert states[-1] == "completed"
    (changed,) = ledger.said(agent.GitChanged, turn=turn)
    assert [(change.path, change.status, change.additions) for change in changed.files] == [("new.txt", "added", 1)]
    assert "+some content" in changed.patch
    status = await asyncio.to_thread(git_status, spec.workspace)
    assert status == "?? new.txt\n"  # the index is as it was
    assert not any("portal" in head.lower() and "Bearer portal" in head for head in portal.heads)


async def test_a_question_is_answered_through_a_fact(runners, ledger: Ledger) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("ask Shall I go on?")
    asked = await ledger.until(agent.QuestionAsked)
    assert asked.turn == turn
    assert [option.label for option in asked.data.questions[0].options] == ["Yes", "No"]
    await ledger.append(
        facts.QuestionAnswered(question_id=asked.data.question_id, answers=[["No"]], answered_by="person")
    )
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "completed"
    (resolved,) = ledger.said(agent.QuestionResolved)
    assert resolved.outcome == "answered"
    assert "No" in ledger.said(agent.MessageCompleted)[-1].text


async def test_an_abort_ends_the_turn_interrupted_and_the_next_prompt_works(runners, ledger: Ledger) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("slow 2000 words")
    await ledger.until(Delta)
    await ledger.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "interrupted"
    (text,) = ledger.said(agent.TextCompleted, turn=turn)
    assert text.text.startswith(streamed(ledger, text.part_id).rstrip())
    assert len(ledger.said(agent.MessageCompleted, turn=turn)) == 1
    second = await ledger.dispatch("say fine")
    ended = await ledger.until(agent.TurnEnded, lambda data: data.turn_id == second)
    assert ended.data.status == "completed"
    assert [message.text for message in ledger.said(agent.MessageCompleted, turn=second)] == ["fine"]


async def test_an_abort_of_a_bash_command_ends_the_turn(runners, ledger: Ledger) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("bash echo started; sleep 300")
    await ledger.until(agent.ToolUpdated, lambda tool: "started" in (tool.output or ""))
    await ledger.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "interrupted"
    assert ledger.said(agent.ToolUpdated)[-1].status in ("completed", "error")


async def test_an_interrupt_of_a_turn_that_never_came_is_answered(runners, ledger: Ledger) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    await ledger.append(facts.TurnInterruptRequested(turn_id="01NEVERSTARTED", by="u"))
    ended = await ledger.until(agent.TurnEnded)
    assert (ended.data.turn_id, ended.data.status) == ("01NEVERSTARTED", "interrupted")


async def test_sub_agents_belong_to_the_turn_and_do_not_end_it(runners, ledger: Ledger) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("task say from below")
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "completed"
    messages = ledger.said(agent.MessageCompleted, turn=turn)
    assert [message.text for message in messages if message.parent_session] == ["from below"]
    assert messages[-1].parent_session is None
    assert ended.data.cost == sum(message.cost for message in messages)


async def test_a_provider_that_refuses_fails_the_turn_with_its_words(runners, ledger: Ledger) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    await ledger.dispatch("fail 401 always")
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "failed"
    assert ended.data.error
    assert ended.data.error.status == 401
    assert "a wrong key" in (ended.data.error.message if ended.data.error else "")
    second = await ledger.dispatch("anything", model="scripted/none-such")
    ended = await ledger.until(agent.TurnEnded, lambda data: data.turn_id == second)
    assert ended.data.status == "failed"
    assert "none-such" in (ended.data.error.message if ended.data.error else "")


async def test_a_retry_is_said_and_its_broken_try_leaves_no_text(runners, ledger: Ledger) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("cut once")
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "completed"
    assert [change.status for change in ledger.said(agent.StatusChanged, turn=turn)] == ["retrying", "busy"]
    words = " ".join(f"w{number}" for number in range(1, 21))
    (message,) = ledger.said(agent.MessageCompleted, turn=turn)
    assert message.text == words


async def test_the_agents_shell_sees_no_secret_in_its_environment(runners, ledger: Ledger) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("bash env")
    await ledger.until(agent.TurnEnded)
    output = ledger.said(agent.ToolUpdated, turn=turn)[-1].output
    assert output
    shown = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    assert "secret-token" not in output
    assert not shown.get("OPENCODE_SERVER_PASSWORD")
    assert not shown.get("npm_config_registry")
    assert shown["HTTPS_PROXY"].startswith("http://127.0.0.1:")
