"""Claims about OpenCode and the runner being killed in the middle of what a session can do beside a plain prompt."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from valet_protocol.events import agent, facts
from valet_protocol.events.delta import Delta
from valet_protocol.ids import new_id
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner.testing import Broker, Ledger, Runner, condition

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Session:
    """A session's log, and the runner that holds it now."""

    def __init__(self, spec: RunnerSpec, log: Ledger, folder: Path) -> None:
        self.spec = spec
        self.log = log
        self._folder = folder
        self.runner = Runner(spec, folder)

    async def kill_opencode(self) -> None:
        os.kill(self.runner.opencode(), signal.SIGKILL)

    async def next_epoch(self, *, again: bool) -> None:
        """Kill the runner and start its successor; `again`: every fact comes once more."""
        opencode = self.runner.opencode()
        self.runner.end(signal.SIGKILL)
        await condition(lambda: not Path(f"/proc/{opencode}").exists())
        if again:
            await self.log.deliver_again()
        self.runner = Runner(msgspec.structs.replace(self.runner.spec, epoch=self.runner.spec.epoch + 1), self._folder)
        mark = len(self.log.events)
        self.runner.start()
        await self.log.until(agent.RunnerReady, after=mark)

    async def ended(self, turn: str, *, after: int = 0) -> agent.TurnEnded:
        return (await self.log.until(agent.TurnEnded, lambda ended: ended.turn_id == turn, after=after)).data

    def texts(self, turn: str) -> list[str]:
        return [message.text for message in self.log.said(agent.MessageCompleted, turn=turn) if message.text]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(new_spec: Callable[[], RunnerSpec], nats: Broker, folder: Path) -> AsyncIterator[Session]:
    spec = new_spec()
    async with Ledger(nats.url, spec.session_id) as log:
        session = Session(spec, log, folder / spec.session_id)
        session.runner.start()
        try:
            await log.until(agent.RunnerReady)
            yield session
        finally:
            session.runner.close()
            print(*(path.read_text() for path in sorted((folder / spec.session_id).glob("runner-*.log"))))


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ("sleep 300", {"kind": "shell"}),
        ("/slowly", {"kind": "command"}),
        ("slow 2000 words", {"kind": "review"}),
        ("say x", {"model": "scripted/fails-429", "fallbacks": ["scripted/scripted-2"]}),
    ],
    ids=["shell", "command", "review", "failover"],
)
async def test_a_turn_whose_opencode_is_killed_is_interrupted_and_the_next_one_works(
    session: Session, content: str, more: dict[str, str]
) -> None:
    workspace = Path(session.spec.workspace)
    (workspace / ".opencode" / "command").mkdir(parents=True, exist_ok=True)
    (workspace / ".opencode" / "command" / "slowly.md").write_text("slow 2000 words\n")
    if more.get("kind") == "command":  # commands are read when OpenCode starts
        mark = len(session.log.events)
        await session.kill_opencode()
        await session.log.until(agent.OpencodeRestarted, after=mark)
    turn = await session.log.dispatch(content, channel=f"test:{new_id()}", **more)
    await session.log.until(agent.MessageCreated, turn=turn)
    mark = len(session.log.events)
    await session.kill_opencode()
    ended = await session.ended(turn)
    assert (ended.status, ended.error and ended.error.name) == ("interrupted", "opencode_lost")
    assert session.log.said(agent.ModelSwitched, turn=turn) == []
    after = await session.log.dispatch("say still here")
    assert (await session.ended(after)).status == "completed"
    await session.log.until(agent.OpencodeRestarted, after=mark)


async def test_a_steered_turn_whose_opencode_is_killed_does_not_get_its_prompt_twice(session: Session) -> None:
    turn = await session.log.dispatch("slow 2000 words")
    await session.log.until(Delta, turn=turn)
    prompt = await session.log.steer(turn, "say steered")
    await session.log.until(agent.PromptTaken, lambda taken: taken.prompt_id == prompt)
    await session.kill_opencode()
    assert (await session.ended(turn)).status == "interrupted"
    again = await session.log.dispatch("say steered", prompt_id=prompt, steered=True)
    ended = await session.ended(again)
    assert (ended.status, ended.error and ended.error.name) == ("interrupted", "steer_cut")


async def test_after_a_killed_runner_all_facts_come_again_and_nothing_is_done_twice(session: Session) -> None:
    file = Path(session.spec.workspace) / "twice.txt"
    for text in ("one", "two"):
        turn = await session.log.dispatch(f"write {file} {text}", channel="test:twice")
        await session.ended(turn)
    await session.log.command("revert", message_id="m", turn_id=turn, channel="test:twice")
    assert file.read_text() == "one"
    await session.log.command("unrevert", channel="test:twice")
    assert file.read_text() == "two"
    fresh = await session.log.command("new_conversation", channel="test:fresh")
    counted = await session.log.dispatch("count prompts", channel="test:fresh")
    await session.ended(counted)
    assert session.texts(counted) == ["scripted-1 sees 1 prompts."]
    running = await session.log.dispatch("slow 2000 words", channel="test:fresh")
    await session.log.until(Delta, turn=running)
    prompt = await session.log.steer(running, "say steered")
    await session.log.until(agent.PromptTaken, lambda taken: taken.prompt_id == prompt)
    mark = len(session.log.events)
    await session.next_epoch(again=True)
    ended = await session.ended(running, after=mark)
    assert (ended.status, ended.error and ended.error.name) == ("interrupted", "runner_lost")
    again = await session.log.until(
        agent.CommandCompleted, lambda done: done.request_id == fresh.data.request_id, after=mark
    )
    assert again.data == fresh.data
    assert file.read_text() == "two"
    last = await session.log.dispatch("count prompts", channel="test:fresh")
    await session.ended(last)
    # the conversation of before: the count, the slow words, the steering prompt, and this
    assert session.texts(last) == ["scripted-1 sees 4 prompts."]


async def test_a_runner_is_told_the_policy_when_it_attaches(session: Session) -> None:
    session.log.policy = facts.SessionPolicy(permissions="ask")
    await session.next_epoch(again=False)
    turn = await session.log.dispatch("bash true")
    asked = await session.log.until(agent.QuestionAsked, turn=turn)
    assert asked.data.permission == "bash"
    await session.log.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    await session.ended(turn)
    below = await session.log.dispatch("task bash true")  # sub-agents get no rules from their parents
    asked = await session.log.until(agent.QuestionAsked, lambda asked: asked.permission == "task", turn=below)
    once = facts.QuestionAnswered(question_id=asked.data.question_id, answers=[["once"]], answered_by="person")
    await session.log.append(once)
    asked = await session.log.until(agent.QuestionAsked, lambda asked: asked.permission == "bash", turn=below)
    await session.log.append(facts.TurnInterruptRequested(turn_id=below, by="u"))
    await session.ended(below)
