"""Facts: what the session ledger decided. Only the ledger writes them."""

from typing import Literal

from valet_protocol.events.envelope import Data

PromptMode = Literal["queue", "steer", "collect"]
SandboxReason = Literal["created", "prompt", "recovery"]
EndedBy = Literal["runner_lost", "aborted", "terminated", "failed"]
AnswerSource = Literal["person", "default", "policy"]


class SessionPolicy(Data, frozen=True, kw_only=True):
    """What a session was created with, besides its repository."""

    question_timeout_s: float = 3600.0
    """Seconds a question waits before its default is given."""
    permissions: Literal["auto-approve", "ask"] = "auto-approve"
    """What happens when the agent asks for a permission."""


class SessionRequested(Data, frozen=True, kw_only=True):
    """A person asked for a session. The first event of every session."""

    owner: str
    """User id."""
    title: str = ""
    repo: str | None = None
    """Git URL or absolute host path; none for an empty workspace."""
    branch: str | None = None
    model: str
    """Default model as `provider/model`."""
    policy: SessionPolicy = SessionPolicy()
    idempotency_key: str | None = None


class SandboxRequested(Data, frozen=True, kw_only=True):
    """The session needs a sandbox; the sandbox controller acts on this."""

    epoch: int
    """The epoch its runner will have; one higher than every earlier one."""
    reason: SandboxReason
    repo: str | None = None
    branch: str | None = None
    model: str
    boot_deadline_ms: int
    """When a runner must have attached, else the attempt has failed."""


class SandboxReleaseRequested(Data, frozen=True, kw_only=True):
    """The sandbox is no longer needed; the sandbox controller ends it and removes its workspace if told to."""

    epoch: int
    reason: Literal["terminated", "failed"]
    delete_workspace: bool = False


class RunnerAttached(Data, frozen=True, kw_only=True):
    """The runner of an epoch took the session over. Events of older epochs no longer count."""

    epoch: int
    runner_version: str
    opencode_version: str | None = None


class PromptAccepted(Data, frozen=True, kw_only=True):
    """A prompt was accepted; from here on it is never lost."""

    prompt_id: str
    content: str
    mode: PromptMode = "queue"
    author: str
    channel: str = "web:default"
    model: str
    idempotency_key: str | None = None


class TurnDispatched(Data, frozen=True, kw_only=True):
    """A prompt's turn has come; the runner acts on this."""

    turn_id: str
    prompt_id: str
    content: str
    model: str
    author: str
    channel: str = "web:default"


class TurnInterruptRequested(Data, frozen=True, kw_only=True):
    """A person wants the running turn to stop; the runner acts on this."""

    turn_id: str
    by: str


class TurnInterrupted(Data, frozen=True, kw_only=True):
    """A turn ended without its runner saying so, because there is no such runner any more."""

    turn_id: str
    reason: EndedBy
    detail: str
    """What happened and what can be done, for people."""


class QuestionAnswered(Data, frozen=True, kw_only=True):
    """A question or permission got its answer; the runner passes it to the agent."""

    question_id: str
    answers: list[list[str]]
    """For each question of the set, the labels chosen or the free text.

    For a permission: `once`, `always` or `reject`."""
    answered_by: AnswerSource
    user: str | None = None


class SessionFailed(Data, frozen=True, kw_only=True):
    """The session cannot go on."""

    code: str
    """Stable word, e.g. `clone_failed`, `sandbox_failed`, `boot_timed_out`."""
    detail: str
    """What happened, in the failing program's own words where it has some, and what can be done."""


class SessionTerminated(Data, frozen=True, kw_only=True):
    """A person ended the session."""

    by: str
