"""A review: what the agent is asked, and what its answer says. Pure.

The schema is part of the prompt and the answer is JSON text: OpenCode's own structured answers make a conversation
unreadable (see `OpencodeClient.prompt`), and this way any model can answer and the agent remembers its findings.
"""

import json
from collections.abc import Iterator, Sequence

import msgspec
from valet_protocol.events.agent import AgentError, Finding, GitChanged, ReviewCompleted

from valet_runner import limits
from valet_runner.cutting import head

_ORDER = ("critical", "major", "minor", "info")

_SHAPE = """{
  "summary": "the review in a few sentences",
  "findings": [
    {
      "file": "path relative to the workspace; empty for a finding about the whole",
      "line": 1,
      "severity": "critical | major | minor | info",
      "text": "what is wrong, why it matters and what to do about it"
    }
  ]
}"""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    summary: str
    findings: list[Finding]


def instructions(wishes: str, changed: GitChanged) -> str:
    """The prompt of a review. `wishes` is what the person wants looked at, if anything."""
    named = changed.files[: limits.REVIEW_FILES]
    files = [f"- {file.path} ({file.status}, +{file.additions} -{file.deletions})" for file in named]
    if len(changed.files) > len(named):
        files.append(f"- and {len(changed.files) - len(named)} more")
    asked = ["The person who asks for the review says:", wishes.strip(), ""] if wishes.strip() else []
    return "\n".join(
        [
            "Review the changes of this session. Change nothing.",
            "",
            *asked,
            f"`git diff {changed.base_commit}` shows them; files that are new and not yet tracked must be read."
            " The files that differ:",
            *files,
            "",
            "Look for mistakes, risks and omissions, and check what you claim. Give every finding the file, the line"
            " as it is now (left out where there is none), and a severity: critical (breaks or endangers something),"
            " major (wrong in a case that occurs), minor (should be better), info. No findings is a fine answer.",
            "",
            "Your last message must be one JSON object of this shape, and nothing else:",
            _SHAPE,
        ]
    )


def nothing_changed(turn_id: str) -> ReviewCompleted:
    """The review of no changes; no model is asked."""
    return ReviewCompleted(turn_id=turn_id, summary="This session has not changed anything yet.", findings=[])


def read(turn_id: str, texts: Sequence[str], earlier: Sequence[str] = ()) -> ReviewCompleted | AgentError:
    """The agent's answer as an event, the most severe findings first; or why it is none, with all that it said.

    `texts` are the agent's messages, the newest last, `earlier` answers that were none before it was asked again.
    """
    answer = _answer(texts)
    if isinstance(answer, _Answer):
        findings = sorted(
            map(_placed, answer.findings),
            key=lambda found: (_ORDER.index(found.severity), found.file, found.line or 0),
        )
        return ReviewCompleted(turn_id=turn_id, summary=answer.summary, findings=findings)
    said = "\n\n".join(head(text, limits.REVIEW_SAID_CHARS) for text in [*earlier, *texts[-1:]] if text)
    return AgentError(
        name="review_not_understood",
        message=f"The model answered the review with something else than findings ({answer}). Ask for it again, or with"
        " another model. " + (f"It said:\n\n{said}" if said else "It said nothing."),
    )


def second_ask(texts: Sequence[str]) -> str:
    """What the agent is told when its answer is none."""
    return "\n".join(
        [
            f"Your last message cannot be read as the review: {_answer(texts)}. Do not look at the changes again. Write"
            " what you have found once more, as one JSON object of this shape and nothing else:",
            _SHAPE,
        ]
    )


def _placed(found: Finding) -> Finding:
    """A finding whose line no file can have is about the file."""
    there = found.line is None or 1 <= found.line <= limits.REVIEW_LINE_MAX
    return found if there else msgspec.structs.replace(found, line=None)


def _answer(texts: Sequence[str]) -> _Answer | str:
    """The newest answer; or why there is none. An agent may say its findings and then that it is done."""
    reasons: list[str] = []
    for text in reversed(texts):
        reason = "there is no JSON object in it"
        for found in _objects(text):
            if isinstance(found, ValueError):
                reason = f"its JSON is broken: {found}"
                continue
            try:
                return msgspec.json.decode(found, type=_Answer)
            except (msgspec.MsgspecError, UnicodeEncodeError) as error:
                reason = str(error)
        reasons.append(reason)
    return reasons[0] if reasons else "there is no answer"


def _objects(text: str) -> Iterator[str | ValueError]:
    """The JSON objects in a text, in order, whatever stands around them: models put them in a code block, or between
    two sentences, whatever they are told. Where none begins well, the first one's error is last."""
    decoder = json.JSONDecoder()
    at, broken, whole = text.find("{"), None, False
    for _ in range(limits.REVIEW_TRIES):
        if at < 0:
            break
        try:
            _, end = decoder.raw_decode(text, at)
            whole = True
            yield text[at:end]
        except ValueError as error:
            broken, end = broken or error, at + 1
        except RecursionError:
            break
        at = text.find("{", end)
    if broken and not whole:
        yield broken
