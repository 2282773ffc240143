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
    """The person's title; empty until the agent gives one."""
    repo: str | None = None
    """Git URL or absolute host path; none for an empty workspace."""
    branch: str | None = None
    """Branch, none for the repository's default."""
    model: str
    """Default model as `provider/model`."""
    policy: SessionPolicy = SessionPolicy()
    """How its questions and permissions are treated."""
    idempotency_key: str | None = None
    """The client's `Idempotency-Key`, where it sent one."""


class SandboxRequested(Data, frozen=True, kw_only=True):
    """The session needs a sandbox; the sandbox controller acts on this."""

    epoch: int
    """The epoch its runner will have; one higher than every earlier one."""
    reason: SandboxReason
    """What made it necessary: a new session, a prompt for a sleeping one, or a loss."""
    repo: str | None = None
    """Git URL or absolute host path; none for an empty workspace."""
    branch: str | None = None
    """Branch, none for the repository's default."""
    model: str
    """Default model as `provider/model`."""
    boot_deadline_ms: int
    """When a runner must have attached, else the attempt has failed."""


class SandboxReleaseRequested(Data, frozen=True, kw_only=True):
    """The sandbox is no longer needed; the sandbox controller ends it and removes its workspace if told to."""

    epoch: int
    """The epoch of the sandbox to end; newer ones are left alone."""
    reason: Literal["terminated", "failed"]
    """Whether the session was ended or has failed."""
    delete_workspace: bool = False
    """Whether its files are to go as well."""


class RunnerAttached(Data, frozen=True, kw_only=True):
    """The runner of an epoch took the session over. Events of older epochs no longer count."""

    epoch: int
    """The epoch that holds the session from here on."""
    runner_version: str
    """Version of the runner's package."""
    opencode_version: str | None = None
    """Version of OpenCode, where it is known already."""


class PromptAccepted(Data, frozen=True, kw_only=True):
    """A prompt was accepted; from here on it is never lost."""

    prompt_id: str
    """The prompt's id, made by whoever submitted it."""
    content: str
    """The prompt's text."""
    mode: PromptMode = "queue"
    """Whether it waits its turn, steers the running one, or is collected with others."""
    author: str
    """User id."""
    channel: str = "web:default"
    """Where the prompt came from, `<surface>:<name>`."""
    model: str
    """Model of its turn as `provider/model`."""
    idempotency_key: str | None = None
    """The client's `Idempotency-Key`, where it sent one."""


class TurnDispatched(Data, frozen=True, kw_only=True):
    """A prompt's turn has come; the runner acts on this."""

    turn_id: str
    """The turn's id, derived from the session and the prompt."""
    prompt_id: str
    """The prompt's id, made by whoever submitted it."""
    content: str
    """The prompt's text."""
    model: str
    """Model as `provider/model`."""
    author: str
    """User id."""
    channel: str = "web:default"
    """Where the prompt came from, `<surface>:<name>`."""


class TurnInterruptRequested(Data, frozen=True, kw_only=True):
    """A person wants the running turn to stop; the runner acts on this."""

    turn_id: str
    """The turn's id, derived from the session and the prompt."""
    by: str
    """User id."""


class TurnInterrupted(Data, frozen=True, kw_only=True):
    """A turn ended without its runner saying so, because there is no such runner any more."""

    turn_id: str
    """The turn's id, derived from the session and the prompt."""
    reason: EndedBy
    """Why nobody else will end it."""
    detail: str
    """What happened and what can be done, for people."""


class QuestionAnswered(Data, frozen=True, kw_only=True):
    """A question or permission got its answer; the runner passes it to the agent."""

    question_id: str
    """OpenCode's id of the question or permission."""
    answers: list[list[str]]
    """For each question of the set, the labels chosen or the free text.

    For a permission: `once`, `always` or `reject`."""
    answered_by: AnswerSource
    """A person, the default at its deadline, or the session's policy."""
    user: str | None = None
    """User id, when a person answered."""


class SessionFailed(Data, frozen=True, kw_only=True):
    """The session cannot go on."""

    code: str
    """Stable word, e.g. `clone_failed`, `sandbox_failed`, `boot_timed_out`."""
    detail: str
    """What happened, in the failing program's own words where it has some, and what can be done."""


class SessionTerminated(Data, frozen=True, kw_only=True):
    """A person ended the session."""

    by: str
    """User id."""
