"""For tests of decisions: one session's log as it grows, without a broker, a database or a clock. Pure."""

from msgspec.structs import replace
from valet_protocol.codec import new_event
from valet_protocol.events import agent, facts, sandbox
from valet_protocol.events.envelope import Data
from valet_protocol.requests import AttachRunner, CreateSession, Request, SubmitPrompt

from valet_session_ledger.decide import decide
from valet_session_ledger.evolve import counts, evolve
from valet_session_ledger.react import react
from valet_session_ledger.stamp import stamp
from valet_session_ledger.state import SessionState


class Story:
    """A session's log as it grows: commands are decided, events arrive, `settle` lets react act."""

    def __init__(self, **fields: object) -> None:
        self.state: SessionState | None = None
        self.seq = 0
        self.now = 1_000
        self.log: list[Data] = []
        self.do(CreateSession(session_id="S", owner="ada", model="m/x", **fields))  # type: ignore[arg-type]

    @property
    def s(self) -> SessionState:
        """The state; there is one."""
        assert self.state is not None
        return self.state

    def happen(self, data: Data, *, epoch: int | None = None, turn: str | None = None) -> None:
        """An event is stored and folded."""
        self.seq += 1
        event = new_event(data, id=str(self.seq), session_id="S", now_ms=self.now, turn=turn, epoch=epoch)
        if counts(self.state, event):
            self.state = evolve(self.state, replace(event, seq=self.seq))
        self.log.append(data)

    def runner(self, data: Data, epoch: int | None = None) -> None:
        """The attached runner says something of the present turn."""
        turn = self.s.turn.turn_id if self.s.turn else None
        self.happen(data, epoch=epoch or self.s.attached_epoch, turn=turn)

    def do(self, command: Request) -> list[Data]:
        """A command is decided and carried out; its facts. Raises `Refused`."""
        decided = decide(self.state, command, now_ms=self.now)
        for data in decided:
            self.happen(data, turn=stamp("S", self.state, data, self.now).turn)
        return decided

    def settle(self) -> list[Data]:
        """Let react act until it rests; what it decided."""
        decided: list[Data] = []
        while now := react(self.s, self.now):
            assert len(decided) < 50, f"react does not come to rest: {decided[-5:]}"
            decided.append(now[0])
            self.happen(now[0], turn=stamp("S", self.state, now[0], self.now).turn)
        return decided

    def boot(self) -> None:
        """The sandbox asked for comes up, and its runner is ready."""
        epoch = self.s.requested_epoch
        self.happen(sandbox.SandboxProvisioning(epoch=epoch, provider="t"))
        self.happen(sandbox.SandboxReady(epoch=epoch, provider="t", sandbox_id="x", isolation="none"))
        self.do(AttachRunner(session_id="S", epoch=epoch, runner_version="t"))
        self.runner(agent.RunnerReady(opencode_version="1", base_commit="base", boot_ms=1))

    def prompt(self, prompt_id: str = "p1", content: str = "Hi", user: str = "ada", **fields: object) -> None:
        """A prompt, of ada's if nobody else's."""
        self.do(
            SubmitPrompt(session_id="S", user=user, prompt_id=prompt_id, content=content, **fields)  # type: ignore[arg-type]
        )

    def start(self) -> None:
        """The runner begins the present turn."""
        turn = self.s.turn
        assert turn
        self.runner(agent.TurnStarted(turn_id=turn.turn_id, prompt_id=turn.prompt_id, opencode_session="o"))

    def taken(self, prompt_id: str, outcome: str) -> None:
        """The runner says what became of a prompt that was to go into the present turn."""
        turn = self.s.turn
        assert turn
        self.runner(agent.PromptTaken(turn_id=turn.turn_id, prompt_id=prompt_id, outcome=outcome))  # type: ignore[arg-type]

    def end(self) -> None:
        """The runner ends the present turn."""
        turn = self.s.turn
        assert turn
        self.runner(agent.TurnEnded(turn_id=turn.turn_id, status="completed"))

    def ask(self, question_id: str = "q1", kind: str = "question", *labels: str) -> None:
        """The agent asks a question, or for a permission."""
        options = [agent.QuestionOption(label=label) for label in labels or ("yes", "no")]
        question = agent.Question(question="Which?", options=options)
        self.runner(
            agent.QuestionAsked(question_id=question_id, kind=kind, questions=[question])  # type: ignore[arg-type]
        )

    def lose(self, detail: str = "killed") -> None:
        """The sandbox is gone."""
        self.happen(sandbox.SandboxLost(epoch=self.s.requested_epoch, kind="gone", detail=detail))


def stamp_seq(event: object, seq: int):
    from msgspec.structs import replace

    return replace(event, seq=seq)  # type: ignore[type-var]


def ready() -> Story:
    """A session that waits for its first prompt."""
    story = Story()
    story.settle()
    story.boot()
    story.settle()
    return story


def running(*, policy: facts.SessionPolicy | None = None) -> Story:
    """A session in the middle of its first turn."""
    story = Story(policy=policy) if policy else Story()
    story.settle()
    story.boot()
    story.prompt()
    story.settle()
    story.start()
    return story


def kinds(decided: list[Data]) -> list[str]:
    """The names of some facts."""
    return [type(data).__name__ for data in decided]
