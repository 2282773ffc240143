"""What a session's agent asks about other sessions, and what these tell of themselves. Pure; refusals are raised."""

import re

from valet_protocol.errors import Conflict, Forbidden, NotFound, TooMany, Unprocessable
from valet_protocol.events import facts
from valet_protocol.events.envelope import Data
from valet_protocol.ids import derived_id
from valet_protocol.requests import NoteParentTold, ReportChild, RequestChild, RequestCompletion

from valet_session_ledger import limits
from valet_session_ledger.decide_prompts import check_hops, check_open, reused
from valet_session_ledger.decide_questions import check_policy
from valet_session_ledger.digests import child_digest
from valet_session_ledger.state import Child, SessionState

_HOST = r"[A-Za-z0-9\[][A-Za-z0-9.:\]-]*"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*@"
_FROM_ELSEWHERE = re.compile(
    rf"https?://{_HOST}/\S+|(?:ssh|git)://(?:{_USER})?{_HOST}/\S+|{_USER}[A-Za-z0-9][A-Za-z0-9.-]*:(?![:-])\S+"
)
"""Repositories an agent may name: never a path of the host, which it might not be meant to read; without a password,
which would stay in the log."""

_BRANCH = re.compile(r"[^\s\x00-\x1f~^:?*\[\\-][^\s\x00-\x1f~^:?*\[\\]*")


def request_child(state: SessionState, command: RequestChild, living: int) -> list[Data]:
    """A session below this one. `living` is how many of its tree have not ended."""
    child_id = derived_id(state.session_id, "child", command.request_id)
    asked = facts.ChildRequested(
        child_id=child_id,
        request_id=command.request_id,
        title=command.title,
        repo=state.repo if command.repo is None else command.repo,
        branch=state.branch if command.branch is None and command.repo in (None, state.repo) else command.branch,
        model=command.model or state.model,
        policy=state.policy if command.policy is None else command.policy,
        orchestrator=command.orchestrator,
        notify=command.notify,
        prompt_id=derived_id(child_id, "prompt"),
        prompt=command.prompt,
    )
    known = child_of(state, child_id)
    if known is not None:
        if known.digest != child_digest(asked):
            raise reused()
        return []
    check_open(state, "child sessions")
    check_hops(state.hops + 1)
    _check_asked(state, asked)
    _check_room(state, living)
    return [asked]


def _check_asked(state: SessionState, asked: facts.ChildRequested) -> None:
    if asked.orchestrator and not state.orchestrator:
        raise Forbidden("not_an_orchestrator", "Only a session that directs others may start one that does.")
    check_policy(asked.policy)
    if asked.repo is not None and asked.repo != state.repo and not _FROM_ELSEWHERE.fullmatch(asked.repo):
        raise Unprocessable(
            "bad_repo",
            "Give the repository as an http, https, ssh or git URL or as git@host:path, or leave it out for this"
            " session's own.",
        )
    if asked.branch is not None and asked.branch != state.branch and not _BRANCH.fullmatch(asked.branch):
        raise Unprocessable("bad_branch", f"{asked.branch!r} is not the name of a branch.")
    provider, _, model = asked.model.partition("/")
    if not provider or not model:
        raise Unprocessable("bad_model", f"{asked.model!r} is not a model; give it as provider/model.")


def _check_room(state: SessionState, living: int) -> None:
    if len(state.ancestors) >= limits.CHILD_DEPTH:
        raise TooMany(
            "too_deep",
            f"There are {limits.CHILD_DEPTH} sessions above this one already; do the work here, or tell the parent.",
        )
    mine = sum(child.status != "ended" for child in state.children)
    if mine >= limits.LIVING_CHILDREN:
        raise TooMany(
            "too_many_children",
            f"{mine} child sessions of this one have not ended; end one that is done (terminate_child), or wait.",
        )
    if living >= limits.LIVING_IN_TREE:
        raise TooMany(
            "tree_too_large",
            f"{living} sessions of this tree have not ended; end some that are done, or wait for them.",
        )


def report_child(state: SessionState, command: ReportChild) -> list[Data]:
    """What became of a child. What is known, or is older than what is, changes nothing."""
    child = child_of(state, command.child_id)
    if child is None:
        raise NotFound("child_not_found", "The session knows no such child.")
    known = child.status != "requested" if command.child_seq == 0 else child.heard_seq >= command.child_seq
    if known or child.status == "ended":
        return []
    return [
        facts.ChildChanged(
            child_id=command.child_id,
            change=command.change,
            child_seq=command.child_seq,
            turn_id=command.turn_id,
            title=command.title,
            detail=command.detail,
            hops=command.hops,
        )
    ]


def note_parent_told(state: SessionState, command: NoteParentTold) -> list[Data]:
    """The parent knows."""
    if all(item.seq > command.child_seq for item in state.news):
        return []
    return [facts.ParentTold(child_seq=command.child_seq)]


def request_completion(state: SessionState, command: RequestCompletion) -> list[Data]:
    """The agent's work is over. The session's end follows when nothing is left to do."""
    if command.request_id in state.completions or state.completed is not None:
        return []
    if state.orchestrator:
        raise Forbidden("orchestrator", "A session that directs others is not ended by its agent; a person ends it.")
    check_open(state, "requests")
    return [facts.CompletionRequested(request_id=command.request_id, outcome=command.outcome, summary=command.summary)]


def check_above(state: SessionState, session: str | None) -> None:
    """Raises `Conflict` when a session that wants to end this one is not above it."""
    if session is not None and session not in state.ancestors:
        raise Conflict("not_a_child", "The session is not below the one that wants to end it.")


def child_of(state: SessionState, child_id: str) -> Child | None:
    """A child the state remembers."""
    return next((child for child in state.children if child.session_id == child_id), None)
