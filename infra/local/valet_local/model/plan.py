"""Deciding the answer: a pure function of the scenario, the request, and how often this request was tried before."""

import re

import msgspec

from valet_local.model import limits
from valet_local.model.errors import ScenarioUnplayable
from valet_local.model.request import ChatRequest
from valet_local.model.scenario import (
    Fault,
    Pace,
    Reasoning,
    Reply,
    Scenario,
    Step,
    Text,
    Tool,
    Turn,
    Usage,
    Words,
)
from valet_local.model.templates import Values

_DONE = Step(actions=(Text(text="Done."),))
_CHUNK_CHARS = 16


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call with its values filled in."""

    id: str  # `call_<8 hex digits>_<step>_<position>`: the next request tells by it which step was played
    name: str
    arguments: str  # JSON


class WordRun(msgspec.Struct, frozen=True, kw_only=True):
    """So many made-up words, one a chunk."""

    count: int


Piece = Text | Reasoning | WordRun | Call


class Pacing(msgspec.Struct, frozen=True, kw_only=True):
    """How the answer is streamed."""

    chunk_chars: int
    delay_ms: int
    first_delay_ms: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, complete: what is sent, how fast, and what goes wrong on the way."""

    id: str  # of the completion
    model: str
    turn: str  # name of the scenario's turn; "title" for a session title
    step: int  # index in the turn; the number of steps when the turn is over
    pieces: tuple[Piece, ...]
    finish: str
    usage: Usage
    pacing: Pacing
    fault: Fault | None  # only if this try is one that fails


def plan_response(scenario: Scenario, request: ChatRequest, tries: int, session: str = "") -> Plan:
    """The answer to a request that was tried `tries` times before.

    `session` separates the tool-call ids of two sessions with the same conversation.
    Raises ScenarioUnplayable when the prompt fills a template with something unusable.
    """
    digest = request.digest(session)
    if request.wants_title:
        step = Step(actions=(Text(text=scenario.title),))
        return _plan(scenario, request, step, name="title", index=0, values=Values(request), digest=digest)
    reply, match = _choose(scenario, request)
    name = reply.name or (reply.when if isinstance(reply, Turn) else "default")
    index = _next_step(reply, request)
    step = reply.steps[index] if index < len(reply.steps) else _DONE
    plan = _plan(scenario, request, step, name=name, index=index, values=Values(request, match), digest=digest)
    fault = step.fault
    if fault is None or (fault.tries != "all" and tries >= fault.tries):
        return plan
    return msgspec.structs.replace(plan, fault=fault)


def _choose(scenario: Scenario, request: ChatRequest) -> tuple[Reply, re.Match[str] | None]:
    for turn in scenario.turns:
        if turn.model is not None and not re.search(turn.model, request.model):
            continue
        match = re.search(turn.when, request.prompt, re.MULTILINE)
        if match:
            return turn, match
    return scenario.default, None


def _next_step(reply: Reply, request: ChatRequest) -> int:
    index = request.steps_done
    while index < len(reply.steps):
        condition = reply.steps[index].only_if
        if condition is None or re.search(condition, request.result):
            return index
        index += 1
    return len(reply.steps)


def _plan(
    scenario: Scenario, request: ChatRequest, step: Step, *, name: str, index: int, values: Values, digest: str
) -> Plan:
    pieces: list[Piece] = []
    for action in step.actions:
        match action:
            case Text() | Reasoning():
                pieces.append(msgspec.structs.replace(action, text=values.fill(action.text)))
            case Words():
                pieces.append(WordRun(count=_count(values.fill(str(action.count)), name, index)))
            case Tool():
                arguments = msgspec.json.encode(values.fill_all(action.arguments)).decode()
                call_id = f"call_{digest[:8]}_{index}_{len(pieces)}"
                pieces.append(Call(id=call_id, name=values.fill(action.name), arguments=arguments))
    calls = any(isinstance(piece, Call) for piece in pieces)
    return Plan(
        id=f"chatcmpl-{digest[:24]}",
        model=request.model,
        turn=name,
        step=index,
        pieces=tuple(pieces),
        finish=step.finish or ("tool_calls" if calls else "stop"),
        usage=step.usage or _estimate(request, pieces),
        pacing=_pacing(step.pace, scenario.pace),
        fault=None,
    )


def _count(text: str, turn: str, step: int) -> int:
    if not text.isdecimal() or int(text) > limits.WORDS_MAX:
        reason = f"a number of words must be 0 to {limits.WORDS_MAX}, not {text[:40]!r}"
        raise ScenarioUnplayable(turn, step, reason)
    return int(text)


def _pacing(step: Pace, scenario: Pace) -> Pacing:
    def first(*values: int | None) -> int:
        return next((value for value in values if value is not None), 0)

    return Pacing(
        chunk_chars=first(step.chunk_chars, scenario.chunk_chars, _CHUNK_CHARS),
        delay_ms=first(step.delay_ms, scenario.delay_ms),
        first_delay_ms=first(step.first_delay_ms, scenario.first_delay_ms),
    )


def _estimate(request: ChatRequest, pieces: list[Piece]) -> Usage:
    def tokens(characters: int) -> int:
        return max(1, characters // 4)

    reasoning = sum(tokens(len(piece.text)) for piece in pieces if isinstance(piece, Reasoning))
    output = reasoning
    for piece in pieces:
        match piece:
            case Text():
                output += tokens(len(piece.text))
            case WordRun():
                output += piece.count
            case Call():
                output += tokens(len(piece.arguments))
            case Reasoning():
                pass
    return Usage(
        input=tokens(sum(len(message.text) for message in request.messages)), output=output, reasoning=reasoning
    )
