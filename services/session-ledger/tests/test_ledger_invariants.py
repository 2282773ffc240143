"""What must hold in every session whatever happens: random stories of commands, events, losses and lies."""

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from valet_protocol.codec import new_event
from valet_protocol.errors import Refused
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.envelope import Data, Event
from valet_protocol.requests import (
    AbortTurn,
    AnswerQuestion,
    AttachRunner,
    CreateSession,
    Request,
    SubmitPrompt,
    TerminateSession,
)
from valet_session_ledger.decide import decide
from valet_session_ledger.evolve import counts, evolve
from valet_session_ledger.projection import project, session_row, state_row
from valet_session_ledger.react import next_due, react
from valet_session_ledger.rows import Batch, Touched
from valet_session_ledger.stamp import stamp
from valet_session_ledger.state import SessionState, pack

EPOCHS = st.integers(1, 5)
QUESTIONS = st.sampled_from(["q1", "q2", "q3"])


class Session(RuleBasedStateMachine):
    """One session: rules are what people, runners, sandboxes and time may do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.state: SessionState | None = None
        self.log: list[Event] = []
        self.now = 1_000
        self.accepted: list[str] = []
        self.ended: set[str] = set()

    def happen(self, data: Data, *, epoch: int | None = None, turn: str | None = None) -> None:
        event = new_event(
            data,
            id=f"e{len(self.log)}",
            session_id="S",
            now_ms=self.now,
            turn=turn,
            epoch=epoch,
        )
        event = msgspec.structs.replace(event, seq=len(self.log) + 1)
        self.log.append(event)
        if not counts(self.state, event):
            return
        before = self.state
        self.state = evolve(before, event)
        assert self.state is not None
        batch = Batch()
        project(batch, before or self.state, self.state, event)
        touched = Touched(self.state, event.seq, self.now, event.seq, True)
        session_row(touched)
        state_row(touched)
        if before is not None and before.turn is not None and self.state.turn is None:
            self.ended.add(before.turn.prompt_id)
        if before is not None and self.state.ended_seq == event.seq:
            self.ended.update(prompt.prompt_id for prompt in before.queue)

    def do(self, command: Request) -> list[Data]:
        try:
            decided = decide(self.state, command)
        except Refused:
            return []
        for data in decided:
            self.happen(data, turn=stamp("S", self.state, data, self.now).turn)
        assert decide(self.state, command) == [] or isinstance(command, AbortTurn)
        return decided

    @initialize(auto=st.booleans())
    def create(self, auto: bool) -> None:
        policy = facts.SessionPolicy(permissions="auto-approve" if auto else "ask", question_timeout_s=30)
        self.do(CreateSession(session_id="S", owner="ada", model="m/x", policy=policy))

    @rule()
    def settle(self) -> None:
        """React acts until it rests, and it does come to rest."""
        assert self.state is not None
        for _ in range(20):
            decided = react(self.state, self.now)
            if not decided:
                return
            self.happen(decided[0], turn=stamp("S", self.state, decided[0], self.now).turn)
        raise AssertionError("react does not come to rest")

    @rule()
    def settle_at_once(self) -> None:
        """All that react decides at one look may be appended one after the other."""
        assert self.state is not None
        decided = react(self.state, self.now)
        for data in decided:
            self.happen(data, turn=stamp("S", self.state, data, self.now).turn)

    @rule(seconds=st.sampled_from([1, 20, 100, 1000]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1000

    @rule(number=st.integers(0, 8))
    def prompt(self, number: int) -> None:
        prompt_id = f"p{number}"
        if self.do(SubmitPrompt(session_id="S", user="ada", prompt_id=prompt_id, content="x")):
            self.accepted.append(prompt_id)

    @rule(question=st.one_of(st.none(), QUESTIONS), label=st.sampled_from(["a", "b", "once"]))
    def answer(self, question: str | None, label: str) -> None:
        self.do(AnswerQuestion(session_id="S", user="ada", question_id=question, answers=[[label]]))

    @rule()
    def abort(self) -> None:
        self.do(AbortTurn(session_id="S", user="ada"))

    @precondition(lambda self: len(self.log) > 25)
    @rule()
    def terminate(self) -> None:
        self.do(TerminateSession(session_id="S", user="ada"))

    @rule(epoch=EPOCHS)
    def attach(self, epoch: int) -> None:
        self.do(AttachRunner(session_id="S", epoch=epoch, runner_version="t"))

    @rule()
    def boot(self) -> None:
        """The orderly way, so that stories get somewhere."""
        assert self.state is not None
        epoch = self.state.requested_epoch
        self.happen(sandbox.SandboxProvisioning(epoch=epoch, provider="t"))
        self.attach(epoch)
        self.happen(agent.RunnerReady(opencode_version="1", boot_ms=1), epoch=epoch)

    @rule(
        data=st.one_of(
            st.builds(sandbox.SandboxProvisioning, epoch=EPOCHS, provider=st.just("t")),
            st.builds(
                sandbox.SandboxReady,
                epoch=EPOCHS,
                provider=st.just("t"),
                sandbox_id=st.just("x"),
                isolation=st.just("none"),
            ),
            st.builds(sandbox.SandboxLost, epoch=EPOCHS, kind=st.just("gone"), detail=st.just("")),
            st.builds(sandbox.SandboxFailed, epoch=EPOCHS, detail=st.just(""), retryable=st.booleans()),
            st.builds(sandbox.SandboxHibernated, epoch=EPOCHS, reason=st.sampled_from(["idle", "platform_stopped"])),
        )
    )
    def sandbox_says(self, data: Data) -> None:
        self.happen(data)

    @precondition(lambda self: self.state is not None and self.state.turn is not None)
    @rule(
        what=st.sampled_from(["start", "end", "start", "end", "ask", "permit"]), question=QUESTIONS, stale=st.booleans()
    )
    def runner_says(self, what: str, question: str, stale: bool) -> None:
        assert self.state is not None
        assert self.state.turn is not None
        turn = self.state.turn
        said: Any = {
            "start": agent.TurnStarted(turn_id=turn.turn_id, prompt_id=turn.prompt_id, opencode_session="o"),
            "end": agent.TurnEnded(turn_id=turn.turn_id, status="completed"),
            "ask": agent.QuestionAsked(
                question_id=question,
                kind="question",
                questions=[agent.Question(question="?", options=[agent.QuestionOption(label="a")])],
            ),
            "permit": agent.QuestionAsked(question_id=question, kind="permission", questions=[]),
        }[what]
        self.happen(said, epoch=self.state.attached_epoch - stale, turn=turn.turn_id)

    @invariant()
    def every_accepted_prompt_is_queued_active_or_ended(self) -> None:
        if self.state is None:
            return
        queued = [prompt.prompt_id for prompt in self.state.queue]
        active = [self.state.turn.prompt_id] if self.state.turn else []
        assert sorted([*queued, *active, *self.ended]) == sorted(self.accepted)

    @invariant()
    def what_is_due_is_decided(self) -> None:
        """Time never passes in vain: a due time that react ignores would be a session that waits for ever."""
        if self.state is None or not self.log:
            return
        due = next_due(self.state)
        assert due is None or react(self.state, due)

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        """A session with work that nobody has in hand has something to do or a time at which it will."""
        if self.state is None or self.state.phase in ("failed", "terminated"):
            return
        if self.state.phase != "ready" and (self.state.queue or self.state.turn):
            assert react(self.state, self.now) or next_due(self.state) is not None
        if self.state.phase == "ready" and self.state.queue and self.state.turn is None:
            assert react(self.state, self.now)

    @invariant()
    def replay_is_deterministic(self) -> None:
        state: SessionState | None = None
        for event in self.log:
            if counts(state, event):
                state = evolve(state, event)
        assert (state is None and self.state is None) or (
            state is not None and self.state is not None and pack(state) == pack(self.state)
        )


TestSession = Session.TestCase
TestSession.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
