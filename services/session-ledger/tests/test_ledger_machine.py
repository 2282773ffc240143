"""What must hold in every session whatever happens: random stories of commands, events, losses, lies and clocks.

Bug class this catches: a prompt, an answer or a command that is lost or counts twice in some order of events nobody
thought of; a session that waits for ever; a decision that a replay does not reach again.
"""

from collections import Counter
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from valet_protocol.codec import new_event
from valet_protocol.errors import Refused
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.envelope import Data, Event
from valet_protocol.requests import (
    AbortTurn,
    AddParticipant,
    AnswerQuestion,
    AttachRunner,
    ChangePolicy,
    CreateSession,
    CreateShareLink,
    EditPrompt,
    JoinSession,
    NoteParentTold,
    RemoveParticipant,
    RenameSession,
    ReorderQueue,
    ReportChild,
    Request,
    RequestChild,
    RequestCommand,
    RequestCompletion,
    RevokeShareLink,
    SubmitPrompt,
    TerminateSession,
    WithdrawPrompt,
)
from valet_session_ledger import limits
from valet_session_ledger.decide import decide
from valet_session_ledger.evolve import counts, evolve
from valet_session_ledger.projection import project, session_row, state_row
from valet_session_ledger.react import is_at_rest, next_due, react
from valet_session_ledger.react_family import Spawn, errands
from valet_session_ledger.rows import Batch, Touched
from valet_session_ledger.stamp import stamp
from valet_session_ledger.state import SessionState, pack

QUEUED_PROMPTS = 6
"""In place of the real limit, so that stories reach it."""

LIVING_CHILDREN = 2
"""Likewise."""

EPOCHS = st.integers(1, 4)
QUESTIONS = st.sampled_from(["q1", "q2", "q3"])
USERS = st.sampled_from(["ada", "ada", "ada", "bob", "vic", "eve"])
PROMPTS = st.sampled_from([f"p{number}" for number in range(12)])
NOTHING = st.none()
REQUESTS = st.sampled_from(["c1", "c2", "c3"])
LINKS = st.sampled_from(["l1", "l2"])
MODES = st.sampled_from(["queue", "steer", "steer", "collect", "collect"])
KINDS = st.sampled_from(["prompt", "prompt", "prompt", "command", "shell", "review"])
CHANNELS = st.sampled_from(["web:default", "web:default", "slack:x"])
SKEWS = st.sampled_from([0, 0, 0, -600_000, 600_000])
"""How far a runner's clock is off (ms)."""

CHILDREN = st.sampled_from(["k1", "k2", "k3"])
"""Requests of children."""

OF_SESSIONS = (
    CreateSession | AttachRunner | JoinSession | RequestChild | ReportChild | NoteParentTold | RequestCompletion
)
"""Commands for which nobody needs a role."""

WHO = st.sampled_from(["bob", "vic"])
ROLES = st.sampled_from(["collaborator", "viewer"])
SESSION = st.just("S")
SETTINGS = st.one_of(
    st.builds(
        ChangePolicy,
        session_id=SESSION,
        user=USERS,
        policy=st.builds(
            facts.SessionPolicy,
            question_timeout_s=st.sampled_from([0.0, 5.0, 600.0]),
            permissions=st.just("ask"),
            permission_rules=st.builds(
                lambda action: [facts.PermissionRule(permission="bash", action=action)],
                st.sampled_from(["allow", "ask", "deny"]),
            ),
        ),
    ),
    st.builds(RenameSession, session_id=SESSION, user=USERS, title=st.sampled_from(["one", "two"])),
    st.builds(AddParticipant, session_id=SESSION, user=USERS, participant=WHO, role=ROLES),
    st.builds(RemoveParticipant, session_id=SESSION, user=USERS, participant=st.one_of(WHO, st.just("ada"))),
    st.builds(
        CreateShareLink,
        session_id=SESSION,
        user=USERS,
        link_id=LINKS,
        token_sha256=st.just("token"),
        role=ROLES,
        expires_ms=st.sampled_from([None, 9000]),
    ),
    st.builds(RevokeShareLink, session_id=SESSION, user=USERS, link_id=LINKS),
    st.builds(JoinSession, session_id=SESSION, user=USERS, token_sha256=st.just("token")),
)


class Session(RuleBasedStateMachine):
    """One session: rules are what people, runners, sandboxes and time may do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._most = limits.QUEUED_PROMPTS
        limits.QUEUED_PROMPTS = QUEUED_PROMPTS
        self._most_children = limits.LIVING_CHILDREN
        limits.LIVING_CHILDREN = LIVING_CHILDREN
        self.state: SessionState | None = None
        self.log: list[Event] = []
        self.batch = Batch()
        self.now = 1_000_000
        self.accepted: list[str] = []
        self.turn_of: dict[str, str] = {}
        self.over: set[str] = set()
        """Prompts whose turn has ended."""
        self.gone: set[str] = set()
        """Prompts withdrawn, or dropped with their session."""

    @property
    def s(self) -> SessionState:
        assert self.state is not None
        return self.state

    def happen(self, data: Data, *, epoch: int | None = None, turn: str | None = None, skew: int = 0) -> None:
        event = new_event(data, id=f"e{len(self.log)}", session_id="S", now_ms=self.now + skew, turn=turn, epoch=epoch)
        self.store(event)

    def store(self, event: Event) -> None:
        event = msgspec.structs.replace(event, seq=len(self.log) + 1)
        self.log.append(event)
        if not counts(self.state, event):
            return
        before = self.state
        self.state = evolve(before, event)
        assert self.state is not None
        fold(self.batch, before, self.state, event)
        if before is not None:
            self._follow(before, self.state, event)

    def _follow(self, before: SessionState, after: SessionState, event: Event) -> None:
        if isinstance(event.data, facts.PromptAccepted):
            self.accepted.append(event.data.prompt_id)
        if isinstance(event.data, facts.PromptWithdrawn):
            self.gone.add(event.data.prompt_id)
        if isinstance(event.data, facts.TurnDispatched):
            assert before.turn is None
            assert not before.commands
        if isinstance(event.data, facts.SessionTerminated) and event.data.completed is not None:
            assert before.turn is None
            assert not before.queue
            assert before.completing is not None
        if not isinstance(event.data, facts.QuestionAnswered) and after.ended_seq != event.seq:
            parked = {question.question_id for question in before.questions if question.parked is not None}
            assert parked <= {question.question_id for question in after.questions}
        if after.turn is not None:
            for prompt_id in (after.turn.prompt_id, *after.turn.more):
                assert self.turn_of.setdefault(prompt_id, after.turn.turn_id) == after.turn.turn_id
        if before.turn is not None and (after.turn is None or after.turn.turn_id != before.turn.turn_id):
            self.over.update((before.turn.prompt_id, *before.turn.more))
        if after.ended_seq == event.seq:
            steering = () if before.turn is None else before.turn.steering
            self.gone.update(prompt.prompt_id for prompt in (*before.queue, *steering))

    def decided(self, data: Data) -> None:
        self.store(stamp("S", self.state, data, self.now))

    def do(self, command: Request) -> list[Data]:
        role = None if self.state is None else self.state.role_of(getattr(command, "user", ""))
        try:
            found = decide(self.state, command, now_ms=self.now)
        except Refused:
            return []
        if isinstance(command, RemoveParticipant):
            assert not found or role == "owner" or command.user == command.participant
        elif not isinstance(command, OF_SESSIONS):
            assert role in ("owner", "collaborator")
        for data in found:
            self.decided(data)
        if found and not isinstance(command, RemoveParticipant):
            assert decide(self.state, command, now_ms=self.now) == []
        return found

    # -- people ------------------------------------------------------------------------------------------------

    @initialize(auto=st.booleans(), booted=st.sampled_from([True, True, True, False]), below=st.booleans())
    def create(self, auto: bool, booted: bool, below: bool) -> None:
        policy = facts.SessionPolicy(
            permissions="auto-approve" if auto else "ask", question_timeout_s=30, permission_timeout_s=20
        )
        ancestors = ["P"] if below else []
        self.do(CreateSession(session_id="S", owner="ada", model="m/x", policy=policy, ancestors=ancestors))
        self.do(AddParticipant(session_id="S", user="ada", participant="bob", role="collaborator"))
        self.do(AddParticipant(session_id="S", user="ada", participant="vic", role="viewer"))
        if booted:
            self.boot()

    @rule(user=USERS, again=st.one_of(NOTHING, PROMPTS), mode=MODES, channel=CHANNELS, settled=st.booleans())
    def prompt(self, user: str, again: str | None, mode: Any, channel: str, settled: bool) -> None:
        prompt_id = again or f"p{len(self.accepted)}"
        self.do(SubmitPrompt(session_id="S", user=user, prompt_id=prompt_id, content="x", mode=mode, channel=channel))
        if settled:
            self.settle()

    @rule(kind=KINDS, mode=MODES)
    def prompt_of_a_kind(self, kind: Any, mode: Any) -> None:
        prompt_id = f"p{len(self.accepted)}"
        self.do(SubmitPrompt(session_id="S", user="ada", prompt_id=prompt_id, content="x", kind=kind, mode=mode))

    @precondition(lambda self: self.state is not None and len(self.state.queue) > 0)
    @rule(what=st.sampled_from(["edit", "withdraw", "reorder"]), user=USERS, prompt_ids=st.lists(PROMPTS, min_size=1))
    def the_queue_changes(self, what: str, user: str, prompt_ids: list[str]) -> None:
        first = prompt_ids[0]
        self.do(
            {
                "edit": EditPrompt(session_id="S", user=user, prompt_id=first, content=f"y{len(prompt_ids)}"),
                "withdraw": WithdrawPrompt(session_id="S", user=user, prompt_id=first),
                "reorder": ReorderQueue(session_id="S", user=user, prompt_ids=prompt_ids),
            }[what]
        )

    @precondition(lambda self: self.state is not None and len(self.state.questions) > 0)
    @rule(user=USERS, question=st.one_of(st.none(), QUESTIONS), label=st.sampled_from(["a", "b", "once"]))
    def answer(self, user: str, question: str | None, label: str) -> None:
        self.do(AnswerQuestion(session_id="S", user=user, question_id=question, answers=[[label]]))

    @precondition(lambda self: self.state is not None and self.state.turn is not None)
    @rule(user=USERS)
    def abort(self, user: str) -> None:
        self.do(AbortTurn(session_id="S", user=user))

    @rule(user=USERS, request_id=REQUESTS, command=st.sampled_from(["list_commands", "new_conversation", "unrevert"]))
    def command(self, user: str, request_id: str, command: Any) -> None:
        self.do(RequestCommand(session_id="S", user=user, request_id=request_id, command=command))

    @rule(command=SETTINGS)
    def settings_change(self, command: Request) -> None:
        if isinstance(command, CreateShareLink) and command.expires_ms is not None:
            command = msgspec.structs.replace(command, expires_ms=self.now + command.expires_ms)
        done = self.do(command)
        if isinstance(command, RevokeShareLink) and done:
            assert all(item.link_id != command.link_id for item in self.s.participants)

    @precondition(lambda self: len(self.log) > 40)
    @rule(user=USERS)
    def terminate(self, user: str) -> None:
        self.do(TerminateSession(session_id="S", user=user))

    # -- other sessions ----------------------------------------------------------------------------------------

    @rule(request_id=CHILDREN, notify=st.booleans(), there=st.booleans())
    def a_child_is_wanted(self, request_id: str, notify: bool, there: bool) -> None:
        self.do(RequestChild(session_id="S", request_id=request_id, prompt="x", notify=notify))
        for errand in errands(self.s) if there else []:
            if isinstance(errand, Spawn):
                self.do(ReportChild(session_id="S", child_id=errand.request.child_id, change="started"))

    @precondition(lambda self: self.state is not None and len(self.state.children) > 0)
    @rule(change=st.sampled_from(["turn_completed", "turn_failed", "completed", "terminated"]), seq=st.integers(1, 9))
    def a_child_changes(self, change: Any, seq: int) -> None:
        child = self.s.children[seq % len(self.s.children)]
        self.do(ReportChild(session_id="S", child_id=child.session_id, change=change, child_seq=seq))

    @precondition(lambda self: self.state is not None and self.state.turn is not None)
    @rule(request_id=REQUESTS, outcome=st.sampled_from(["done", "failed"]))
    def its_agent_is_done(self, request_id: str, outcome: Any) -> None:
        self.do(RequestCompletion(session_id="S", request_id=request_id, outcome=outcome, summary="x"))

    @precondition(lambda self: self.state is not None and len(self.state.news) > 0)
    @rule()
    def the_parent_is_told(self) -> None:
        first = self.s.news[0]
        self.do(NoteParentTold(session_id="S", child_seq=first.seq))
        assert first not in self.s.news

    # -- the ledger, and time ----------------------------------------------------------------------------------

    @rule()
    def settle(self) -> None:
        """React acts until it rests, and it does come to rest."""
        for _ in range(60):
            decided = react(self.s, self.now)
            if not decided:
                return
            self.decided(decided[0])
        raise AssertionError("react does not come to rest")

    @rule()
    def settle_at_once(self) -> None:
        """All that react decides at one look may be appended one after the other, stamped on one state."""
        state = self.s
        for data in react(state, self.now):
            self.store(stamp("S", state, data, self.now))

    @rule(seconds=st.sampled_from([1, 2, 12, 100, 1000]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1000

    # -- sandboxes and runners ---------------------------------------------------------------------------------

    @rule(epoch=EPOCHS)
    def attach(self, epoch: int) -> None:
        self.do(AttachRunner(session_id="S", epoch=epoch, runner_version="t"))

    @precondition(lambda self: self.state is not None and self.state.phase != "ready")
    @rule()
    def boot(self) -> None:
        """The orderly way, so that stories get somewhere."""
        self.settle()
        epoch = self.s.requested_epoch
        self.happen(sandbox.SandboxProvisioning(epoch=epoch, provider="t"))
        self.attach(epoch)
        self.happen(agent.RunnerReady(opencode_version="1", boot_ms=1), epoch=epoch)
        self.settle()

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
            st.builds(sandbox.SandboxFailed, epoch=EPOCHS, detail=st.just(""), retryable=st.just(True)),
            st.builds(sandbox.SandboxHibernated, epoch=EPOCHS, reason=st.sampled_from(["idle", "platform_stopped"])),
        )
    )
    def sandbox_says(self, data: Data) -> None:
        self.happen(data)

    @rule()
    def a_turn_begins(self) -> None:
        """The orderly way, likewise."""
        self.now += limits.COLLECT_QUIET_MS
        self.settle()
        if self.s.turn is None and not self.s.queue and self.s.phase == "ready":
            self.do(SubmitPrompt(session_id="S", user="bob", prompt_id=f"p{len(self.accepted)}", content="x"))
            self.settle()
        if self.s.turn is not None:
            self.runner_says("start", "q1", 0, 0)
            self.settle()

    @precondition(lambda self: self.state is not None and self.state.turn is not None)
    @rule(
        what=st.sampled_from(["start", "start", "end", "ask", "permit", "pulse", "text"]),
        question=QUESTIONS,
        stale=st.sampled_from([0, 0, 0, 0, 1]),
        skew=SKEWS,
    )
    def runner_says(self, what: str, question: str, stale: int, skew: int) -> None:
        turn = self.s.turn
        assert turn is not None
        said: Any = {
            "start": agent.TurnStarted(turn_id=turn.turn_id, prompt_id=turn.prompt_id, opencode_session="o"),
            "end": agent.TurnEnded(turn_id=turn.turn_id, status="completed"),
            "ask": agent.QuestionAsked(
                question_id=question,
                kind="question",
                questions=[agent.Question(question="?", options=[agent.QuestionOption(label="a")])],
            ),
            "permit": agent.QuestionAsked(
                question_id=question, kind="permission", questions=[], permission="bash", patterns=["ls"]
            ),
            "pulse": agent.StatusChanged(status="busy"),
            "text": agent.TextCompleted(message_id="m", part_id="p", kind="text", text="x"),
        }[what]
        self.happen(said, epoch=self.s.attached_epoch - stale, turn=turn.turn_id, skew=skew)

    @precondition(lambda self: self.state is not None and self.state.turn is not None)
    @rule(question=QUESTIONS)
    def the_sandbox_goes_while_a_question_is_open(self, question: str) -> None:
        self.runner_says("ask", question, 0, 0)
        self.happen(sandbox.SandboxLost(epoch=self.s.requested_epoch, kind="gone", detail=""))
        self.settle()

    @precondition(lambda self: self.state is not None and len(self.state.questions) > 0)
    @rule(question=QUESTIONS)
    def agent_waits_no_more(self, question: str) -> None:
        self.happen(agent.QuestionResolved(question_id=question, outcome="dropped"), epoch=self.s.attached_epoch)

    @precondition(lambda self: self.state is not None and self.state.turn is not None)
    @rule(outcomes=st.lists(st.sampled_from(["delivered", "missed", "refused"]), max_size=2), settled=st.booleans())
    def prompts_steer(self, outcomes: list[Any], settled: bool) -> None:
        """A prompt goes into the running turn, and the runner says what became of this one, or another."""
        turn = self.s.turn
        assert turn is not None
        self.prompt("bob", None, "steer", turn.origin.channel, True)
        for outcome in outcomes:
            turn = self.s.turn
            if turn is None or not turn.steering:
                return
            said = agent.PromptTaken(turn_id=turn.turn_id, prompt_id=turn.steering[-1].prompt_id, outcome=outcome)
            self.happen(said, epoch=self.s.attached_epoch, turn=turn.turn_id)
            if settled:
                self.settle()

    @precondition(lambda self: self.state is not None and len(self.state.commands) > 0)
    @rule(request_id=REQUESTS, error=st.sampled_from([None, "no"]))
    def command_has_a_result(self, request_id: str, error: str | None) -> None:
        self.happen(agent.CommandCompleted(request_id=request_id, error=error), epoch=self.s.attached_epoch)

    @precondition(lambda self: any(not event.type.startswith("fact.") for event in self.log))
    @rule(data=st.data())
    def something_is_said_again(self, data: st.DataObject) -> None:
        said = [event for event in self.log if not event.type.startswith("fact.")]
        again = said[-1 - data.draw(st.integers(0, min(len(said) - 1, 10)))]
        self.store(msgspec.structs.replace(again, id=f"e{len(self.log)}"))

    # -- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def every_accepted_prompt_is_in_exactly_one_place(self) -> None:
        if self.state is None:
            return
        turn = self.state.turn
        queued = [prompt.prompt_id for prompt in self.state.queue]
        steering = [] if turn is None else [prompt.prompt_id for prompt in turn.steering]
        active = [] if turn is None else [turn.prompt_id, *turn.more]
        places = [*queued, *steering, *active, *self.over, *self.gone]
        assert sorted(places) == sorted(self.accepted)

    @invariant()
    def the_queue_stays_within_its_limit(self) -> None:
        if self.state is None:
            return
        steering = () if self.state.turn is None else self.state.turn.steering
        asked = [prompt for prompt in (*self.state.queue, *steering) if prompt.answers is None]
        assert len(asked) <= QUEUED_PROMPTS

    @invariant()
    def what_is_due_is_decided(self) -> None:
        """Time never passes in vain: a due time that react ignores would be a session that waits for ever."""
        if self.state is not None:
            due = next_due(self.state)
            assert due is None or react(self.state, due)

    @invariant()
    def work_has_a_future(self) -> None:
        """Whatever is open in a session, there is something to decide now or a time at which there will be."""
        state = self.state
        if state is None or state.phase in ("failed", "terminated"):
            return
        asked = state.notices or state.completing
        if state.queue or state.turn or state.commands or state.late or state.questions or asked:
            assert react(state, self.now) or next_due(state) is not None

    @invariant()
    def what_is_to_be_done_elsewhere_is_found_again(self) -> None:
        """After a crash only what is not at rest is looked at."""
        if self.state is not None and errands(self.state):
            assert not is_at_rest(self.state)

    @invariant()
    def children_stay_within_their_limit(self) -> None:
        if self.state is not None:
            assert sum(child.status != "ended" for child in self.state.children) <= LIVING_CHILDREN
            assert self.state.parent is not None or not self.state.news

    @invariant()
    def the_read_models_say_what_the_state_says(self) -> None:
        state = self.state
        if state is None:
            return
        prompts = {row.prompt_id: row.status for row in self.batch.prompts.values()}
        steering = () if state.turn is None else state.turn.steering
        active = [] if state.turn is None else [state.turn.prompt_id, *state.turn.more]
        assert {key for key, status in prompts.items() if status == "queued"} == {p.prompt_id for p in state.queue}
        assert {key for key, status in prompts.items() if status == "steering"} == {p.prompt_id for p in steering}
        dispatched = {key for key, status in prompts.items() if status == "dispatched"}
        assert dispatched == {*active, *self.over}
        assert dispatched == {row.message_id for row in self.batch.messages.values() if row.role == "user"}
        questions = {row.question_id for row in self.batch.questions.values() if row.status == "open"}
        assert questions == {question.question_id for question in state.questions}
        commands = {row.request_id for row in self.batch.commands.values() if row.status == "requested"}
        assert commands == {command.request_id for command in state.commands}
        present = {(row.user_id, row.role) for row in self.batch.participants.values() if row.present}
        assert present == {(item.user, item.role) for item in state.participants}
        links = {row.link_id for row in self.batch.links.values() if not row.revoked}
        assert links == {link.link_id for link in state.links}

    def teardown(self) -> None:
        limits.QUEUED_PROMPTS = self._most
        limits.LIVING_CHILDREN = self._most_children
        state: SessionState | None = None
        batch = Batch()
        for event in self.log:
            if counts(state, event):
                before, state = state, evolve(state, event)
                assert state is not None
                fold(batch, before, state, event)
        if state is not None:
            assert pack(state) == pack(self.s)
            assert batch.prompts == self.batch.prompts
        ids = Counter(event.id for event in self.log if event.type.startswith("fact."))
        assert all(count == 1 for count in ids.values()), "two facts under one id: the broker would drop the second"
        answered = Counter(
            event.data.question_id for event in self.log if isinstance(event.data, facts.QuestionAnswered)
        )
        assert all(count == 1 for count in answered.values()), "a question was answered twice"


def fold(batch: Batch, before: SessionState | None, after: SessionState, event: Event) -> None:
    project(batch, before or after, after, event)
    touched = Touched(after, event.seq, event.time_ms, event.seq, True)
    session_row(touched)
    state_row(touched)


TestSession = Session.TestCase
TestSession.settings = settings(
    max_examples=400, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
