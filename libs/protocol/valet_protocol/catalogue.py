"""Which struct belongs to which event type, and its present version.

Adding an event is adding a struct and a line here; the generated reference and the test of it follow.
"""

import msgspec

from valet_protocol.events import agent, delta, facts, machine, sandbox
from valet_protocol.events.envelope import Data
from valet_protocol.subjects import Source


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the catalogue."""

    source: Source
    name: str
    data: type[Data]
    version: int = 1

    @property
    def type(self) -> str:
        """`<source>.<name>`, the event's `type`."""
        return f"{self.source}.{self.name}"


def _line(source: Source, name: str, data: type[Data], version: int = 1) -> EventType:
    return EventType(source=source, name=name, data=data, version=version)


EVENTS: tuple[EventType, ...] = (
    _line("fact", "session_requested", facts.SessionRequested),
    _line("fact", "sandbox_requested", facts.SandboxRequested),
    _line("fact", "sandbox_release_requested", facts.SandboxReleaseRequested),
    _line("fact", "runner_attached", facts.RunnerAttached),
    _line("fact", "prompt_accepted", facts.PromptAccepted, version=2),
    _line("fact", "turn_dispatched", facts.TurnDispatched),
    _line("fact", "turn_interrupt_requested", facts.TurnInterruptRequested),
    _line("fact", "turn_interrupted", facts.TurnInterrupted),
    _line("fact", "question_answered", facts.QuestionAnswered),
    _line("fact", "session_failed", facts.SessionFailed),
    _line("fact", "session_terminated", facts.SessionTerminated),
    _line("fact", "prompt_edited", facts.PromptEdited),
    _line("fact", "prompt_withdrawn", facts.PromptWithdrawn),
    _line("fact", "queue_reordered", facts.QueueReordered),
    _line("fact", "prompt_steered", facts.PromptSteered),
    _line("fact", "session_renamed", facts.SessionRenamed),
    _line("fact", "policy_changed", facts.PolicyChanged),
    _line("fact", "participant_added", facts.ParticipantAdded),
    _line("fact", "participant_removed", facts.ParticipantRemoved),
    _line("fact", "share_link_created", facts.ShareLinkCreated),
    _line("fact", "share_link_revoked", facts.ShareLinkRevoked),
    _line("fact", "command_requested", facts.CommandRequested),
    _line("fact", "command_timed_out", facts.CommandTimedOut),
    _line("fact", "session_imported", facts.SessionImported),
    _line("fact", "event_imported", facts.EventImported),
    _line("fact", "import_completed", facts.ImportCompleted),
    _line("fact", "child_requested", facts.ChildRequested),
    _line("fact", "child_changed", facts.ChildChanged),
    _line("fact", "parent_told", facts.ParentTold),
    _line("fact", "completion_requested", facts.CompletionRequested),
    _line("agent", "runner_ready", agent.RunnerReady),
    _line("agent", "boot_failed", agent.BootFailed),
    _line("agent", "turn_started", agent.TurnStarted),
    _line("agent", "message_created", agent.MessageCreated),
    _line("agent", "text_completed", agent.TextCompleted),
    _line("agent", "tool_updated", agent.ToolUpdated),
    _line("agent", "message_completed", agent.MessageCompleted),
    _line("agent", "question_asked", agent.QuestionAsked),
    _line("agent", "question_resolved", agent.QuestionResolved),
    _line("agent", "todo_updated", agent.TodoUpdated),
    _line("agent", "git_changed", agent.GitChanged),
    _line("agent", "status_changed", agent.StatusChanged),
    _line("agent", "session_titled", agent.SessionTitled),
    _line("agent", "opencode_restarted", agent.OpencodeRestarted),
    _line("agent", "turn_ended", agent.TurnEnded),
    _line("agent", "work_saved", agent.WorkSaved),
    _line("agent", "turn_changed", agent.TurnChanged),
    _line("agent", "model_switched", agent.ModelSwitched),
    _line("agent", "prompt_taken", agent.PromptTaken),
    _line("agent", "command_completed", agent.CommandCompleted),
    _line("agent", "conversation_reverted", agent.ConversationReverted),
    _line("agent", "conversation_unreverted", agent.ConversationUnreverted),
    _line("agent", "review_completed", agent.ReviewCompleted),
    _line("agent", "boot_step_completed", machine.BootStepCompleted),
    _line("agent", "service_changed", machine.ServiceChanged),
    _line("agent", "process_created", machine.ProcessCreated),
    _line("agent", "process_updated", machine.ProcessUpdated),
    _line("agent", "process_exited", machine.ProcessExited),
    _line("agent", "process_deleted", machine.ProcessDeleted),
    _line("agent", "tunnels_changed", machine.TunnelsChanged),
    _line("agent", "image_shown", machine.ImageShown),
    _line("agent", "channel_replied", machine.ChannelReplied),
    _line("sandbox", "provisioning", sandbox.SandboxProvisioning),
    _line("sandbox", "ready", sandbox.SandboxReady),
    _line("sandbox", "failed", sandbox.SandboxFailed),
    _line("sandbox", "lost", sandbox.SandboxLost),
    _line("sandbox", "hibernated", sandbox.SandboxHibernated),
    _line("sandbox", "terminated", sandbox.SandboxTerminated),
    _line("delta", "text", delta.Delta),
    _line("delta", "reasoning", delta.Delta),
)

BY_TYPE: dict[str, EventType] = {line.type: line for line in EVENTS}
"""Catalogue by short type, e.g. `agent.turn_ended`."""

_BY_FACT: dict[type[Data], EventType] = {line.data: line for line in EVENTS if line.source != "delta"}


def type_of(data: Data) -> EventType:
    """The catalogue line of a struct that has just one (every one but a delta's)."""
    return _BY_FACT[type(data)]
