"""A made-up log like a real one: the same for the same seed. Pure.

Sizes follow recorded OpenCode turns: answers of a few hundred characters, tool calls with an input of a line and an
output of up to two thousand characters, three to six model steps a turn. Deltas are left out: the ledger does not
read them, and of a completed message there are none left to replay.
"""

import random
from collections.abc import Iterator

from valet_protocol.codec import new_event
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.envelope import Data, Event
from valet_protocol.ids import ulid

_BEGAN_MS = 1_790_000_000_000
"""When the made-up log begins: any moment will do."""

_TEXT = (
    "the test fails because a function of this module returns an empty list where its caller expects one item so "
    "let me read it change the loop run the suite again and look at what differs "
)


class Story:
    """The events of one session, one after the other."""

    def __init__(self, number: int, seed: int, session_id: str | None = None) -> None:
        self._random = random.Random(f"{seed}/{number}")
        self._now_ms = _BEGAN_MS + number
        self.session_id = session_id or self._id()

    def whole(self) -> Iterator[Event]:
        """From the request for the session on, turn after turn, without end."""
        yield self._event(facts.SessionRequested(owner="bench", model="scripted/scripted-1"))
        yield self._event(
            facts.SandboxRequested(
                epoch=1, reason="created", model="scripted/scripted-1", boot_deadline_ms=self._now_ms + 90_000
            )
        )
        yield self._event(sandbox.SandboxProvisioning(epoch=1, provider="local"))
        yield self._event(sandbox.SandboxReady(epoch=1, provider="local", sandbox_id=self._id(), isolation="bwrap"))
        yield self._event(facts.RunnerAttached(epoch=1, runner_version="0.1.0"))
        yield self._event(agent.RunnerReady(opencode_version="1.18.33", base_commit="0" * 40, boot_ms=3000), epoch=1)
        while True:
            yield from self._turn()

    def messages(self) -> Iterator[Event]:
        """Messages of its agent, without end and without a turn around them."""
        while True:
            yield from self._message(None, "tool-calls")

    def _turn(self) -> Iterator[Event]:
        prompt_id, turn_id, content = self._id(), self._id(), self._text(60, 300)
        model = "scripted/scripted-1"
        yield self._event(facts.PromptAccepted(prompt_id=prompt_id, content=content, author="bench", model=model))
        yield self._event(
            facts.TurnDispatched(turn_id=turn_id, prompt_id=prompt_id, content=content, author="bench", model=model)
        )
        started = agent.TurnStarted(turn_id=turn_id, prompt_id=prompt_id, opencode_session="ses_bench")
        yield self._event(started, epoch=1, turn=turn_id)
        steps = self._random.randint(3, 6)
        for step in range(steps):
            yield from self._message(turn_id, "stop" if step == steps - 1 else "tool-calls")
        changed = agent.GitChanged(
            base_commit="0" * 40,
            head_commit="0" * 40,
            branch="main",
            files=[agent.FileChange(path="calculator.py", status="modified", additions=3, deletions=1)],
            patch=self._text(400, 1200),
        )
        yield self._event(changed, epoch=1, turn=turn_id)
        ended = agent.TurnEnded(turn_id=turn_id, status="completed", cost=0.01, duration_ms=9000, first_token_ms=700)
        yield self._event(ended, epoch=1, turn=turn_id)

    def _message(self, turn: str | None, finish: str) -> Iterator[Event]:
        message_id = f"msg_{self._id()}"
        said: list[Data] = [agent.MessageCreated(message_id=message_id, model="scripted/scripted-1")]
        text = self._text(80, 600)
        if self._random.random() < 0.3:
            thought = self._text(100, 800)
            said.append(
                agent.TextCompleted(message_id=message_id, part_id=f"prt_{self._id()}", kind="reasoning", text=thought)
            )
        said.append(agent.TextCompleted(message_id=message_id, part_id=f"prt_{self._id()}", kind="text", text=text))
        if finish != "stop":
            said += self._tool(message_id)
        tokens = agent.Tokens(input=self._random.randint(500, 9000), output=self._random.randint(20, 400))
        said.append(
            agent.MessageCompleted(
                message_id=message_id,
                text=text,
                finish=finish,
                model="scripted/scripted-1",
                cost=0.002,
                tokens=tokens,
            )
        )
        for data in said:
            yield self._event(data, epoch=1, turn=turn)

    def _tool(self, message_id: str) -> Iterator[Data]:
        part_id, call_id = f"prt_{self._id()}", f"call_{self._id()}"
        given: dict[str, object] = {"command": self._text(20, 80), "description": self._text(20, 40)}
        output = self._text(100, 2000)
        states: tuple[tuple[agent.ToolStatus, str | None], ...] = (
            ("pending", None),
            ("running", None),
            ("completed", output),
        )
        for status, shown in states:
            yield agent.ToolUpdated(
                message_id=message_id,
                part_id=part_id,
                call_id=call_id,
                tool="bash",
                status=status,
                input={} if status == "pending" else given,
                output=shown,
                title=None if shown is None else "a command",
                started_ms=None if status == "pending" else self._now_ms,
                ended_ms=None if shown is None else self._now_ms,
            )

    def _event(self, data: Data, *, epoch: int | None = None, turn: str | None = None) -> Event:
        self._now_ms += self._random.randint(1, 40)
        return new_event(data, id=self._id(), session_id=self.session_id, now_ms=self._now_ms, turn=turn, epoch=epoch)

    def _text(self, shortest: int, longest: int) -> str:
        length = self._random.randint(shortest, longest)
        start = self._random.randrange(len(_TEXT))
        return (_TEXT * (length // len(_TEXT) + 2))[start : start + length]

    def _id(self) -> str:
        return ulid(self._now_ms, self._random.randbytes(10))


def history(*, sessions: int, count: int, seed: int) -> Iterator[Event]:
    """`count` events of several sessions at once: a few of one, then of another, as a busy installation writes them."""
    chance = random.Random(seed)
    stories = [Story(number, seed).whole() for number in range(sessions)]
    left = count
    while left > 0:
        story = chance.choice(stories)
        for _ in range(min(left, chance.randint(1, 8))):
            yield next(story)
            left -= 1


def replayable(session_id: str, *, count: int, seed: int) -> Iterator[Event]:
    """`count` events of the agent of one existing session."""
    story = Story(0, seed, session_id).messages()
    for _ in range(count):
        yield next(story)
