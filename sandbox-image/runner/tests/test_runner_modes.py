"""Claims about what a session can do beside a plain prompt: steering, failover, channels, commands, reviews, authors.

Real OpenCode, broker and git; model, ledger and portal are stand-ins. One runner serves all claims of this file, each
on a channel of its own where the conversation matters.
"""

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from valet_local.model import ScriptedModel
from valet_protocol.events import agent, facts
from valet_protocol.events.delta import Delta
from valet_protocol.ids import new_id
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner.testing import Broker, Ledger, Runner

pytestmark = pytest.mark.asyncio(loop_scope="module")

_channels = itertools.count()


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


@pytest.fixture
def channel() -> str:
    """A channel that no other claim uses."""
    return f"test:{next(_channels)}"


async def end(live: Ledger, turn: str) -> agent.TurnEnded:
    return (await live.until(agent.TurnEnded, lambda ended: ended.turn_id == turn)).data


def texts(live: Ledger, turn: str) -> list[str]:
    return [message.text for message in live.said(agent.MessageCompleted, turn=turn) if message.text]


async def running_tool(live: Ledger, turn: str) -> None:
    await live.until(agent.ToolUpdated, lambda tool: tool.status == "running", turn=turn)


# -- steering


async def test_a_steering_prompt_is_in_the_next_model_step_of_the_same_turn(
    live: Ledger, channel: str, model: ScriptedModel
) -> None:
    turn = await live.dispatch("bash sleep 1; echo worked", channel=channel)
    await running_tool(live, turn)
    prompt = await live.steer(turn, "say steered")
    taken = await live.until(agent.PromptTaken, lambda taken: taken.prompt_id == prompt)
    assert (taken.data.outcome, taken.data.turn_id) == ("delivered", turn)
    assert (await end(live, turn)).status == "completed"
    assert texts(live, turn) == ["steered"]
    assert [tool.status for tool in live.said(agent.ToolUpdated, turn=turn)][-1] == "completed"
    asked = [record.prompt for record in model.requests if record.turn != "title"][-2:]
    assert asked == ["bash sleep 1; echo worked", "say steered"]


async def test_a_steering_prompt_in_the_last_step_is_answered_before_the_turn_ends(live: Ledger, channel: str) -> None:
    turn = await live.dispatch("slow 20 words", channel=channel)
    await live.until(Delta, turn=turn)
    await live.steer(turn, "say one more thing")
    await live.steer(turn, "count prompts")
    assert (await end(live, turn)).status == "completed"
    assert texts(live, turn)[-1] == "scripted-1 sees 3 prompts."
    assert [taken.outcome for taken in live.said(agent.PromptTaken, turn=turn)] == ["delivered"] * 2


async def test_a_steering_prompt_for_a_turn_that_has_ended_is_missed(live: Ledger, channel: str) -> None:
    turn = await live.dispatch("say done", channel=channel)
    await end(live, turn)
    prompt = await live.steer(turn, "say too late")
    taken = await live.until(agent.PromptTaken, lambda taken: taken.prompt_id == prompt)
    assert taken.data.outcome == "missed"
    again = await live.dispatch("count prompts", channel=channel)
    await end(live, again)
    assert texts(live, again) == ["scripted-1 sees 2 prompts."]


async def test_a_steering_prompt_whose_turn_was_cut_is_not_sent_again(live: Ledger, channel: str) -> None:
    turn = await live.dispatch("slow 2000 words", channel=channel)
    await live.until(Delta, turn=turn)
    prompt = await live.steer(turn, "say never answered")
    await live.until(agent.PromptTaken, lambda taken: taken.prompt_id == prompt)
    await live.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    assert (await end(live, turn)).status == "interrupted"
    # as if the ledger had not heard of it
    again = await live.dispatch("say never answered", prompt_id=prompt, channel=channel, steered=True)
    ended = await end(live, again)
    assert (ended.status, ended.error and ended.error.name) == ("interrupted", "steer_cut")
    assert texts(live, again) == []
    other = await live.dispatch("say not seen before", channel=channel, steered=True)
    assert (await end(live, other)).status == "completed"


# -- failover


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        ("scripted/fails-401", "a wrong key"),
        ("scripted/fails-429", "slow down"),
        ("scripted/fails-midway", "broke off"),
        ("scripted/none-such", "none-such"),
    ],
)
async def test_a_model_that_cannot_answer_is_followed_by_the_next_which_sees_the_prompt_once(
    live: Ledger, channel: str, failing: str, reason: str
) -> None:
    turn = await live.dispatch("count prompts", model=failing, fallbacks=["scripted/scripted-2"], channel=channel)
    ended = await end(live, turn)
    assert (ended.status, ended.error) == ("completed", None)
    (switched,) = live.said(agent.ModelSwitched, turn=turn)
    assert (switched.from_model, switched.to_model) == (failing, "scripted/scripted-2")
    assert reason in switched.error.message
    assert texts(live, turn) == ["scripted-2 sees 1 prompts."]
    assert live.said(agent.MessageCompleted, turn=turn)[-1].model == "scripted/scripted-2"


async def test_a_model_that_fails_after_a_tool_ran_is_followed_without_running_it_twice(
    live: Ledger, channel: str, workspace: Path
) -> None:
    turn = await live.dispatch("append tries.log then fail", fallbacks=["scripted/scripted-2"], channel=channel)
    assert (await end(live, turn)).status == "completed"
    assert (workspace / "tries.log").read_text() == "once\n"
    assert texts(live, turn) == ["scripted-2 goes on where scripted/scripted-1 stopped."]
    assert len(live.said(agent.ModelSwitched, turn=turn)) == 1


async def test_when_no_model_is_left_the_error_names_all_of_them(live: Ledger, channel: str) -> None:
    chain = ["scripted/fails-401", "scripted/none-such", "scripted/fails-401"]
    turn = await live.dispatch("say x", model=chain[0], fallbacks=chain[1:], channel=channel)
    ended = await end(live, turn)
    assert ended.status == "failed"
    assert ended.error
    assert "scripted/fails-401: a wrong key; scripted/none-such: " in ended.error.message
    after = await live.dispatch("count prompts", channel=channel)
    await end(live, after)
    # the last failed try stays, as a failed prompt always has
    assert texts(live, after) == ["scripted-1 sees 2 prompts."]


async def test_a_person_can_interrupt_while_models_are_switched(live: Ledger, channel: str) -> None:
    turn = await live.dispatch("say x", model="scripted/fails-429", fallbacks=["scripted/scripted-2"], channel=channel)
    await live.until(agent.StatusChanged, turn=turn)
    await live.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    assert (await end(live, turn)).status == "interrupted"
    assert live.said(agent.ModelSwitched, turn=turn) == []


# -- channels


async def test_channels_are_conversations_of_their_own_and_nothing_leaks_between_them(
    live: Ledger, workspace: Path
) -> None:
    first = await live.dispatch("say to one", channel="slack:one")
    await end(live, first)
    second = await live.dispatch("count prompts", channel="slack:two")
    await end(live, second)
    third = await live.dispatch("count prompts", channel="slack:one")
    await end(live, third)
    assert texts(live, second) == ["scripted-1 sees 1 prompts."]
    assert texts(live, third) == ["scripted-1 sees 2 prompts."]
    sessions = [live.said(agent.TurnStarted, turn=turn)[0].opencode_session for turn in (first, second, third)]
    assert sessions[0] == sessions[2] != sessions[1]
    assert all(event.turn for event in live.events if isinstance(event.data, agent.MessageCompleted))


async def test_a_new_conversation_remembers_nothing_and_asking_twice_makes_one(live: Ledger, channel: str) -> None:
    await end(live, await live.dispatch("say before", channel=channel))
    request = new_id()
    said: list[str] = []
    for _ in range(2):
        done = await live.command("new_conversation", request_id=request, channel=channel)
        assert (done.data.error, done.data.result) == (None, {})
        turn = await live.dispatch("count prompts", channel=channel)
        await end(live, turn)
        said += texts(live, turn)
    # the second time the command was known, and the conversation went on
    assert said == ["scripted-1 sees 1 prompts.", "scripted-1 sees 2 prompts."]


# -- commands, shell, reviews


async def test_a_slash_command_is_a_turn(live: Ledger, channel: str, workspace: Path) -> None:
    listed = await live.command("list_commands")
    commands = listed.data.result["commands"]
    assert isinstance(commands, list)
    assert {"init", "review"} <= {command["name"] for command in commands}
    turn = await live.dispatch("/init say nothing else", kind="command", channel=channel)
    ended = await end(live, turn)
    assert (ended.status, ended.error) == ("completed", None)
    assert texts(live, turn)


async def test_an_unknown_slash_command_fails_the_turn_in_opencodes_words(live: Ledger, channel: str) -> None:
    turn = await live.dispatch("/nonesuch", kind="command", fallbacks=["scripted/scripted-2"], channel=channel)
    ended = await end(live, turn)
    assert ended.status == "failed"
    assert ended.error
    assert 'Command not found: "nonesuch"' in ended.error.message
    assert live.said(agent.ModelSwitched, turn=turn) == []


async def test_a_persons_shell_command_runs_without_the_model_and_enters_its_context(
    live: Ledger, channel: str, model: ScriptedModel
) -> None:
    before = len(model.requests)
    turn = await live.dispatch("echo shell-$((40 + 2))", kind="shell", channel=channel)
    assert (await end(live, turn)).status == "completed"
    tool = live.said(agent.ToolUpdated, turn=turn)[-1]
    assert (tool.tool, tool.status, tool.output) == ("bash", "completed", "shell-42\n")
    assert len(model.requests) == before
    after = await live.dispatch("say and now", channel=channel)
    await end(live, after)
    assert texts(live, after) == ["and now"]


async def test_a_shell_command_is_stopped_by_an_interrupt(live: Ledger, channel: str) -> None:
    turn = await live.dispatch("echo begun; sleep 300", kind="shell", channel=channel)
    await live.until(agent.ToolUpdated, lambda tool: "begun" in (tool.output or ""), turn=turn)
    await live.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    assert (await end(live, turn)).status == "interrupted"


async def test_a_review_gives_findings_the_most_severe_first(live: Ledger, channel: str, workspace: Path) -> None:
    (workspace / "reviewed.txt").write_text("text\n")
    turn = await live.dispatch("", kind="review", channel=channel)
    ended = await end(live, turn)
    assert (ended.status, ended.error) == ("completed", None)
    (review,) = live.said(agent.ReviewCompleted, turn=turn)
    assert review.turn_id == turn
    assert review.summary == "Two things to look at."
    assert [(found.file, found.line, found.severity) for found in review.findings] == [
        ("b.txt", None, "critical"),
        ("a.txt", 1, "minor"),
    ]


async def test_a_review_answered_with_something_else_fails_and_says_so(
    live: Ledger, channel: str, workspace: Path
) -> None:
    (workspace / "reviewed.txt").write_text("text\n")
    turn = await live.dispatch("review badly", kind="review", channel=channel)
    ended = await end(live, turn)
    assert ended.status == "failed"
    assert ended.error
    assert ended.error.name == "review_not_understood"
    assert live.said(agent.ReviewCompleted, turn=turn) == []
    # it was asked twice, and what it said to either is in the error
    said = texts(live, turn)
    assert (len(said), said[0]) == (2, "It looks fine to me.")
    assert all(text in ended.error.message for text in said)


async def test_a_review_with_broken_json_is_mended_when_the_agent_is_asked_again(
    live: Ledger, channel: str, workspace: Path
) -> None:
    (workspace / "reviewed.txt").write_text("text\n")
    turn = await live.dispatch("review brokenly", kind="review", channel=channel)
    ended = await end(live, turn)
    assert (ended.status, ended.error) == ("completed", None)
    (review,) = live.said(agent.ReviewCompleted, turn=turn)
    assert [(found.file, found.line, found.severity) for found in review.findings] == [("c.txt", 3, "major")]
    counted = await live.dispatch("count prompts", channel=channel)
    await end(live, counted)
    assert texts(live, counted) == ["scripted-1 sees 3 prompts."]


# -- back and forth


async def test_going_back_to_a_message_takes_files_back_and_forth(live: Ledger, channel: str, workspace: Path) -> None:
    file = workspace / f"{channel[5:]}.txt"
    await end(live, await live.dispatch(f"write {file} one", channel=channel))
    second = await live.dispatch(f"write {file} two", channel=channel)
    await end(live, second)
    prompt = new_id()
    for _ in range(2):  # doing it twice changes nothing
        done = await live.command("revert", message_id=prompt, turn_id=second, channel=channel)
        assert done.data.error is None
        assert done.data.result == {
            "files": [{"path": file.name, "status": "modified", "additions": 1, "deletions": 1}]
        }
        assert file.read_text() == "one"
    reverted = live.said(agent.ConversationReverted)[-1]
    assert (reverted.message_id, reverted.channel) == (prompt, channel)
    assert (await live.command("unrevert", channel=channel)).data.error is None
    assert file.read_text() == "two"
    assert live.said(agent.ConversationUnreverted)[-1].channel == channel
    await live.command("revert", message_id=prompt, turn_id=second, channel=channel)
    turn = await live.dispatch("count prompts", channel=channel)
    await end(live, turn)
    assert texts(live, turn) == ["scripted-1 sees 2 prompts."]
    assert file.read_text() == "one"
    gone = await live.command("revert", message_id=prompt, turn_id=second, channel=channel)
    assert gone.data.error
    assert "does not hold this message" in gone.data.error


async def test_commands_that_cannot_be_carried_out_say_why(live: Ledger, channel: str) -> None:
    nothing = await live.command("unrevert", channel=channel)
    assert nothing.data.error == f"there is no conversation on the channel {channel} yet"
    late = await live.command("list_commands", due_ms=1)
    assert late.data.error == "the command reached the sandbox too late; ask again"


# -- policy, authors, models


async def test_permissions_are_asked_as_the_sessions_policy_says(live: Ledger, channel: str) -> None:
    rule = facts.PermissionRule(permission="bash", pattern="echo *", action="deny")
    policy = facts.SessionPolicy(permissions="ask", permission_rules=[rule])
    await live.append(facts.PolicyChanged(policy=policy, by="u"))
    turn = await live.dispatch("bash true", channel=channel)
    asked = await live.until(agent.QuestionAsked, turn=turn)
    assert (asked.data.permission, asked.data.patterns) == ("bash", ["true"])
    once = facts.QuestionAnswered(question_id=asked.data.question_id, answers=[["once"]], answered_by="person")
    await live.append(once)
    assert (await end(live, turn)).status == "completed"
    denied = await live.dispatch("bash echo no", channel=channel)
    assert (await end(live, denied)).status == "completed"
    assert live.said(agent.QuestionAsked, turn=denied) == []
    assert live.said(agent.ToolUpdated, turn=denied)[-1].status == "error"
    await live.append(facts.PolicyChanged(policy=facts.SessionPolicy(), by="u"))
    free = await live.dispatch("bash echo yes", channel=channel)
    assert (await end(live, free)).status == "completed"
    assert live.said(agent.ToolUpdated, turn=free)[-1].status == "completed"


async def test_commits_of_a_turn_are_by_its_author_and_of_the_next_by_the_agent(live: Ledger, channel: str) -> None:
    turn = await live.dispatch(
        "commit mine.txt", author_name='Ada "L" Byron', author_email="ada@example.invalid", channel=channel
    )
    await end(live, turn)
    assert live.said(agent.ToolUpdated, turn=turn)[-1].output == 'Ada "L" Byron,ada@example.invalid\n'
    turn = await live.dispatch("commit other.txt", channel=channel)
    await end(live, turn)
    assert live.said(agent.ToolUpdated, turn=turn)[-1].output == "Valet agent,agent@valet.invalid\n"


async def test_collected_prompts_are_one_message(live: Ledger, channel: str) -> None:
    ids = [new_id(), new_id()]
    turn = await live.dispatch("say a\n\nsay b", prompt_id=ids[0], prompt_ids=ids, channel=channel)
    await end(live, turn)
    count = await live.dispatch("count prompts", channel=channel)
    await end(live, count)
    assert texts(live, count) == ["scripted-1 sees 2 prompts."]
