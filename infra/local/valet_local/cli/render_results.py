"""What came of things: commands, reverts, reviews, another model, an import. Pure."""

import msgspec
from valet_protocol.events import agent, facts
from valet_protocol.events.agent import FileChange, Finding

from valet_local.cli.pieces import Span, Style, one_line, printable
from valet_local.cli.transcript import Rendered, Transcript, aside, lines

_DOING = {
    "revert": "Going back to before a message …",
    "unrevert": "Taking the revert back …",
    "new_conversation": "The conversation starts afresh with the next prompt …",
    "list_commands": "Asking the agent for its commands …",
}

_SEVERITIES: dict[str, Style] = {"critical": "bad", "major": "bad", "minor": "ask", "info": "dim"}


class _Command(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    commands: list[_Command] = []


def model_switched(state: Transcript, data: agent.ModelSwitched) -> Rendered:
    why = one_line(data.error.message, 200)
    return lines(
        state,
        "model",
        (Span(f"⇄ {one_line(data.from_model)} could not answer: {why}", "bad"),),
        (Span(f"  {one_line(data.to_model)} goes on", "strong"),),
    )


def command_requested(state: Transcript, data: facts.CommandRequested) -> Rendered:
    state = msgspec.structs.replace(state, commands={**state.commands, data.request_id: data.command})
    return aside(state, _DOING[data.command])


def command_completed(state: Transcript, data: agent.CommandCompleted) -> Rendered:
    state, command = _over(state, data.request_id)
    if data.error is not None:
        return lines(state, "command", (Span(f"✗ {command}: {one_line(data.error, 400)}", "bad"),))
    if command != "list_commands":
        return state, ()  # its effect is an event of its own
    try:
        listed = msgspec.convert(data.result, _Listed)
    except msgspec.ValidationError:
        return state, ()  # a result of a later version
    rows = [
        (Span(f"/{one_line(one.name, 40)}", "strong"), Span(f"  {one_line(one.description)}", "dim"))
        for one in listed.commands
    ]
    return lines(state, "command", *rows)


def command_timed_out(state: Transcript, data: facts.CommandTimedOut) -> Rendered:
    state, command = _over(state, data.request_id)
    return lines(state, "command", (Span(f"✗ {command}: {one_line(data.detail, 400)}", "bad"),))


def _over(state: Transcript, request_id: str) -> tuple[Transcript, str]:
    rest = {id: command for id, command in state.commands.items() if id != request_id}
    return msgspec.structs.replace(state, commands=rest), state.commands.get(request_id, "the command")


def conversation_reverted(state: Transcript, data: agent.ConversationReverted) -> Rendered:
    head = (Span("↶ taken back", "strong"), Span(f"  everything from message {one_line(data.message_id)} on", "dim"))
    return lines(state, "revert", head, *(_changed_back(file) for file in data.files))


def conversation_unreverted(state: Transcript, data: agent.ConversationUnreverted) -> Rendered:
    return lines(state, "revert", (Span("↷ what was taken back counts again", "strong"),))


def _changed_back(file: FileChange) -> tuple[Span, ...]:
    return (
        Span(f"  {one_line(file.path)}  "),
        Span(f"+{file.additions}", "added"),
        Span(" "),
        Span(f"−{file.deletions}", "removed"),
    )


def review_completed(state: Transcript, data: agent.ReviewCompleted) -> Rendered:
    rows: list[tuple[Span, ...]] = [(Span(line, "strong"),) for line in printable(data.summary).strip().split("\n")]
    if not data.findings:
        rows.append((Span("No findings.", "good"),))
    where = [_place(finding) for finding in data.findings]
    width = max(map(len, where), default=0)
    for finding, place in zip(data.findings, where, strict=True):
        first, *rest = printable(finding.text).strip().split("\n")
        rows.append(
            (Span(f"{finding.severity:<8}  ", _SEVERITIES[finding.severity]), Span(f"{place:<{width}}  "), Span(first))
        )
        rows += ((Span(f"{'':<{width + 12}}{line}"),) for line in rest)
    return lines(state, "review", *rows)


def _place(finding: Finding) -> str:
    if not finding.file:
        return "–"
    return one_line(finding.file, 60) + (f":{finding.line}" if finding.line is not None else "")


def session_imported(state: Transcript, data: facts.SessionImported) -> Rendered:
    state = msgspec.structs.replace(
        state, question_timeout_s=data.policy.question_timeout_s, permissions=data.policy.permissions
    )
    how = "a fork of" if data.forked else "imported from"
    return lines(state, "head", (Span(f"{how} {one_line(data.source_session)} · {one_line(data.model)}", "dim"),))


def import_completed(state: Transcript, data: facts.ImportCompleted) -> Rendered:
    return lines(state, "head", (Span(f"so far taken over ({data.events} events); from here on it is its own", "dim"),))


RENDERERS = {
    agent.ModelSwitched: model_switched,
    agent.CommandCompleted: command_completed,
    agent.ConversationReverted: conversation_reverted,
    agent.ConversationUnreverted: conversation_unreverted,
    agent.ReviewCompleted: review_completed,
    facts.CommandRequested: command_requested,
    facts.CommandTimedOut: command_timed_out,
    facts.SessionImported: session_imported,
    facts.ImportCompleted: import_completed,
}
