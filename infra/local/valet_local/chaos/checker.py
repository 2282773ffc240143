"""What must hold of any run, checked from its history alone. Pure, and it shares nothing with the platform's own code:
it knows events by what docs/events.md says about them.
"""

from collections.abc import Callable, Iterable

from valet_local.chaos import check_clients, check_effects, check_prompts, check_terminals, check_tools
from valet_local.chaos.records import History, Violation

_SURPRISES = frozenset({500, 501})
"""Answers that are nobody's decision."""


def check(history: History) -> list[Violation]:
    """Every violation, by rule. None is what is wanted."""
    return [violation for rule in RULES for violation in rule(history)]


def _at_rest(history: History) -> Iterable[Violation]:
    """No session without a future: every one came to rest, and answered its last prompt."""
    for session in history.sessions:
        if session.status == "failed":
            yield _of("no session fails", session.session_id, f"it has failed: {session.detail}")
        elif not session.at_rest:
            yield _of("every session comes to rest", session.session_id, f"it still waits: {session.unrest}")
        elif session.status != "terminated" and session.closing != "completed":
            what = f"its last prompt, given after the faults, was to be completed; it was {session.closing or 'lost'}"
            yield _of("every session has a future", session.session_id, what)


def _rebuilt(history: History) -> Iterable[Violation]:
    """The read models equal a rebuild from the log."""
    if history.rebuild:
        yield _of("read models equal a rebuild", "", history.rebuild)


def _no_surprises(history: History) -> Iterable[Violation]:
    """Every request was granted, refused with a reason, or told to come again."""
    for act in history.acts:
        where = f"{act.kind}: {act.method} …{act.path}"
        if act.status is None:
            yield _of("every request is answered", act.session_id, f"{where} got no answer in {act.attempts} attempts")
        elif act.status in _SURPRISES or act.status == 503:
            yield _of("every request is answered", act.session_id, f"{where} was answered {act.status}: {act.answer}")


def _recovered(history: History) -> Iterable[Violation]:
    """Every part came back."""
    for fault in history.faults:
        if fault.gave_up:
            what = f"{fault.target} did not work again after {fault.kind} number {fault.number} at {fault.began:.1f} s"
            yield _of("every part comes back", fault.session_id, what)


def _of(rule: str, session_id: str, what: str) -> Violation:
    return Violation(rule=rule, session_id=session_id, seq=None, what=what)


RULES: tuple[Callable[[History], Iterable[Violation]], ...] = (
    check_prompts.accepted_prompts_are_in_the_log,
    check_prompts.prompts_end,
    check_prompts.prompts_have_one_turn,
    check_prompts.changes_count,
    check_prompts.commands_end,
    check_prompts.answers_count_once,
    check_prompts.listed_as_they_are,
    check_prompts.ids_are_unique,
    check_clients.each_event_once_and_in_order,
    check_clients.every_event,
    check_clients.texts_add_up,
    check_effects.effects_happen_once,
    check_tools.notes_are_written_once,
    check_tools.children_are_spawned_once,
    check_terminals.output_is_whole,
    _at_rest,
    _rebuilt,
    _no_surprises,
    _recovered,
)
"""All rules, in the order in which they are told."""
