"""A review: what the agent is asked, and what its answer says. Pure.

The schema is part of the prompt and the answer is JSON text: OpenCode's own structured answers make a conversation
unreadable (see `OpencodeClient.prompt`), and this way any model can answer and the agent remembers its findings.
"""

import re

import msgspec
from valet_protocol.events.agent import AgentError, Finding, GitChanged, ReviewCompleted

from valet_runner import limits

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

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)


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


def read(turn_id: str, text: str) -> ReviewCompleted | AgentError:
    """The agent's answer as an event, the most severe findings first; or why it is none."""
    reason = "there is no JSON object in it"
    for candidate in _candidates(text):
        try:
            answer = msgspec.json.decode(candidate, type=_Answer)
        except msgspec.DecodeError as error:
            reason = str(error)
            continue
        findings = sorted(
            answer.findings, key=lambda found: (_ORDER.index(found.severity), found.file, found.line or 0)
        )
        return ReviewCompleted(turn_id=turn_id, summary=answer.summary, findings=findings)
    return AgentError(
        name="review_not_understood",
        message=f"The model answered the review with something else than findings ({reason}). Ask for it again, or with"
        " another model.",
    )


def _candidates(text: str) -> list[str]:
    """Where the JSON may be: models put it in a code block, or a sentence around it, whatever they are told."""
    first, last = text.find("{"), text.rfind("}")
    return [found[1] for found in _FENCED.finditer(text)] + ([text[first : last + 1]] if 0 <= first < last else [])
