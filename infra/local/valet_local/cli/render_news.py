"""News of the session and of the platform below it: what happened beside the conversation. Pure."""

import msgspec
from valet_protocol.events import agent, facts, sandbox

from valet_local.cli.pieces import Span, one_line, printable, seconds
from valet_local.cli.transcript import Rendered, Transcript, aside, lines


def session_requested(state: Transcript, data: facts.SessionRequested) -> Rendered:
    state = msgspec.structs.replace(
        state, question_timeout_s=data.policy.question_timeout_s, permissions=data.policy.permissions
    )
    where = f"{one_line(data.repo)}{f' at {data.branch}' if data.branch else ''}" if data.repo else "an empty workspace"
    return lines(state, "head", (Span(f"{where} · {data.model}", "dim"),))


def session_failed(state: Transcript, data: facts.SessionFailed) -> Rendered:
    rows = printable(data.detail).rstrip("\n").split("\n")
    return lines(
        state,
        "end",
        *((Span(f"{'✗ the session failed: ' if n == 0 else '  '}{line}", "bad"),) for n, line in enumerate(rows)),
    )


def session_terminated(state: Transcript, data: facts.SessionTerminated) -> Rendered:
    return lines(state, "end", (Span("■ the session was ended", "dim"),))


def sandbox_requested(state: Transcript, data: facts.SandboxRequested) -> Rendered:
    words = {
        "created": "The sandbox is being made …",
        "prompt": "The sandbox is being brought back …",
        "recovery": "The sandbox is being replaced …",
    }
    return aside(state, words[data.reason])


def sandbox_failed(state: Transcript, data: sandbox.SandboxFailed) -> Rendered:
    return aside(state, f"The sandbox could not be made: {one_line(data.detail, 400)}", "bad")


def sandbox_lost(state: Transcript, data: sandbox.SandboxLost) -> Rendered:
    return aside(state, f"The sandbox is gone: {one_line(data.detail, 400)}", "bad")


def sandbox_hibernated(state: Transcript, data: sandbox.SandboxHibernated) -> Rendered:
    return aside(state, f"The sandbox was put to rest ({one_line(data.reason)}); a prompt brings it back.")


def runner_ready(state: Transcript, data: agent.RunnerReady) -> Rendered:
    return aside(state, f"The agent is ready: OpenCode {data.opencode_version}, after {seconds(data.boot_ms)}.")


def opencode_restarted(state: Transcript, data: agent.OpencodeRestarted) -> Rendered:
    return aside(state, f"OpenCode was started again: {one_line(data.detail)}")


def status_changed(state: Transcript, data: agent.StatusChanged) -> Rendered:
    if data.status != "retrying":
        return state, ()
    attempt = f" (try {data.attempt + 1})" if data.attempt is not None else ""
    return aside(state, f"The model's provider did not answer, trying again{attempt}: {one_line(data.message)}")


def work_saved(state: Transcript, data: agent.WorkSaved) -> Rendered:
    if not data.left_out:
        return state, ()
    return aside(state, f"Too large to be saved with the work: {one_line(', '.join(data.left_out), 400)}", "bad")


def interrupt_requested(state: Transcript, data: facts.TurnInterruptRequested) -> Rendered:
    words = {
        "person": "The turn is being stopped …",
        "silent": "The agent has been silent for too long; its turn is being stopped …",
        "steer": "The agent cannot take the prompt while it works; its turn is being stopped for it …",
    }
    return aside(state, words[data.reason])


def session_renamed(state: Transcript, data: facts.SessionRenamed) -> Rendered:
    return aside(state, f"The session is called {one_line(data.title)!r} now.")


def policy_changed(state: Transcript, data: facts.PolicyChanged) -> Rendered:
    policy = data.policy
    state = msgspec.structs.replace(state, question_timeout_s=policy.question_timeout_s, permissions=policy.permissions)
    rules = f" with {len(policy.permission_rules)} rules" if policy.permission_rules else ""
    return aside(state, f"Permissions from now on: {policy.permissions}{rules}.")


def participant_added(state: Transcript, data: facts.ParticipantAdded) -> Rendered:
    return aside(state, f"{one_line(data.user)} takes part as {data.role}.")


def participant_removed(state: Transcript, data: facts.ParticipantRemoved) -> Rendered:
    return aside(state, f"{one_line(data.user)} takes part no more.")


def link_created(state: Transcript, data: facts.ShareLinkCreated) -> Rendered:
    return aside(state, f"There is a share link for a {data.role}: {one_line(data.link_id)}")


def link_revoked(state: Transcript, data: facts.ShareLinkRevoked) -> Rendered:
    return aside(state, f"The share link {one_line(data.link_id)} is void; who came by it takes part no more.")


RENDERERS = {
    facts.SessionRequested: session_requested,
    facts.SessionFailed: session_failed,
    facts.SessionTerminated: session_terminated,
    facts.SessionRenamed: session_renamed,
    facts.PolicyChanged: policy_changed,
    facts.ParticipantAdded: participant_added,
    facts.ParticipantRemoved: participant_removed,
    facts.ShareLinkCreated: link_created,
    facts.ShareLinkRevoked: link_revoked,
    facts.SandboxRequested: sandbox_requested,
    facts.TurnInterruptRequested: interrupt_requested,
    agent.RunnerReady: runner_ready,
    agent.OpencodeRestarted: opencode_restarted,
    agent.StatusChanged: status_changed,
    agent.WorkSaved: work_saved,
    sandbox.SandboxFailed: sandbox_failed,
    sandbox.SandboxLost: sandbox_lost,
    sandbox.SandboxHibernated: sandbox_hibernated,
}
