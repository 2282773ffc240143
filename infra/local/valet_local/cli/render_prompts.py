"""Prompts on their way to the agent, as lines. Pure."""

from valet_protocol.events import agent, facts

from valet_local.cli.pieces import Span, one_line, printable
from valet_local.cli.transcript import Rendered, Transcript, aside, lines

_MARKS = {"prompt": "> ", "command": "> ", "shell": "$ ", "review": "> "}

_MODES = {"queue": "", "steer": "goes into the running turn", "collect": "collected with others"}


def prompt_accepted(state: Transcript, data: facts.PromptAccepted) -> Rendered:
    words = data.content
    if data.kind == "review":
        words = f"Review what was changed. {words}".rstrip()
    mark = _MARKS[data.kind]
    rows = [(Span(f"{mark}{line}", "prompt"),) for line in printable(words).rstrip("\n").split("\n")]
    rows += [(Span(f"  with {one_line(file.name)} ({file.bytes:,} bytes)", "dim"),) for file in data.attachments]
    notes = [_MODES[data.mode], f"in {data.channel}" if data.channel != "web:default" else ""]
    if any(notes):
        rows.append((Span(f"  {one_line(', '.join(filter(None, notes)))}", "dim"),))
    return lines(state, "prompt", *rows)


def prompt_edited(state: Transcript, data: facts.PromptEdited) -> Rendered:
    rows = [(Span(f"> {line}", "prompt"),) for line in printable(data.content).rstrip("\n").split("\n")]
    return lines(state, "prompt", *rows, (Span("  the text of a prompt that waits is now this", "dim"),))


def prompt_withdrawn(state: Transcript, data: facts.PromptWithdrawn) -> Rendered:
    return aside(state, f"The waiting prompt {one_line(data.prompt_id)} was taken back.")


def queue_reordered(state: Transcript, data: facts.QueueReordered) -> Rendered:
    return aside(state, "The waiting prompts have another order.")


def prompt_steered(state: Transcript, data: facts.PromptSteered) -> Rendered:
    return lines(state, "steer", (Span(f"↪ into the running turn: {one_line(data.content)}", "prompt"),))


def prompt_taken(state: Transcript, data: agent.PromptTaken) -> Rendered:
    words = {
        "delivered": "↪ the agent has it",
        "missed": "↪ the turn had ended; it gets a turn of its own",
        "refused": "↪ the agent cannot take it while it works; its turn is stopped for it",
    }
    return lines(state, "steer", (Span(words[data.outcome], "dim"),))


RENDERERS = {
    facts.PromptAccepted: prompt_accepted,
    facts.PromptEdited: prompt_edited,
    facts.PromptWithdrawn: prompt_withdrawn,
    facts.QueueReordered: queue_reordered,
    facts.PromptSteered: prompt_steered,
    agent.PromptTaken: prompt_taken,
}
