"""What a scenario file says. README.md in the scenarios folder shows one; this module is the reference of its keys.

Texts and tool arguments may hold templates: `{{prompt}}` (the text of the last user message), `{{group:1}}` and
`{{group:name}}` (groups of the turn's `when`), `{{result}}` (the output of the last tool), `{{prompts}}` (how many
prompts the conversation holds), `{{model}}` (the model that is asked) and `{{workdir}}` (the agent's working directory,
as its system prompt states it).
"""

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from valet_local.model import limits
from valet_local.model.errors import ScenarioInvalid, ScenarioUnreadable
from valet_local.model.templates import check_regex, check_templates

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=limits.PAUSE_MS_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the file: a key it does not know is refused, because it is a typing mistake."""


class Text(_Part, frozen=True, kw_only=True, tag="text"):
    """Text of the answer."""

    text: str


class Reasoning(_Part, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning, sent as `reasoning_content` deltas."""

    text: str


class Words(_Part, frozen=True, kw_only=True, tag="words"):
    """Made-up text, one word a chunk: `w1 w2 w3 …`."""

    count: str | int  # how many; a string may hold templates


class Tool(_Part, frozen=True, kw_only=True, tag="tool"):
    """A tool call. Several in one step are called in parallel."""

    name: str
    arguments: dict[str, object] = {}  # as the tool's JSON schema wants them; strings in it may hold templates


Action = Text | Reasoning | Words | Tool


class Pace(_Part, frozen=True, kw_only=True):
    """How fast a step is streamed. What a step leaves out is the scenario's, then the defaults named here."""

    chunk_chars: Annotated[int, msgspec.Meta(ge=1)] | None = None  # characters in a chunk; 16
    delay_ms: Milliseconds | None = None  # between two chunks; 0
    first_delay_ms: Milliseconds | None = None  # before the first; 0


class Usage(_Part, frozen=True, kw_only=True):
    """Tokens to report. Left out, they are estimated as a quarter of the characters."""

    input: Count
    output: Count
    reasoning: Count = 0  # of `output`
    cached: Count = 0  # of `input`


class _Fault(_Part, frozen=True, kw_only=True):
    tries: Annotated[int, msgspec.Meta(ge=1)] | Literal["all"] = 1  # the first so many tries of the step fail


class Status(_Fault, frozen=True, kw_only=True, tag="status"):
    """An HTTP error instead of an answer."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    message: str = "scripted fault"
    body: str | None = None  # the whole body; left out, an OpenAI error object with `message`
    retry_after_s: Annotated[float, msgspec.Meta(ge=0)] | None = None  # the `retry-after` header


class Cut(_Fault, frozen=True, kw_only=True, tag="cut"):
    """The connection is closed in the middle of the stream."""

    after_chunks: Count = 1


class StreamError(_Fault, frozen=True, kw_only=True, tag="error"):
    """An error object in the middle of the stream, which then ends."""

    after_chunks: Count = 1
    message: str = "scripted fault"


class Hang(_Fault, frozen=True, kw_only=True, tag="hang"):
    """Silence in the middle of the stream (after 0 chunks: before the response's headers); then it goes on."""

    ms: Milliseconds
    after_chunks: Count = 0


Fault = Status | Cut | StreamError | Hang


class Step(_Part, frozen=True, kw_only=True, rename={"actions": "action"}):
    """One answer of the model."""

    actions: tuple[Action, ...] = ()  # in the order they are streamed
    only_if: str | None = None  # skipped unless this regex is found in the output of the last tool
    finish: Literal["stop", "tool_calls", "length", "content_filter"] | None = None  # left out: from the actions
    usage: Usage | None = None
    pace: Pace = Pace()
    fault: Fault | None = None

    def __post_init__(self) -> None:
        check_regex(self.only_if)


class Reply(_Part, frozen=True, kw_only=True, rename={"steps": "step"}):
    """The steps of a turn, first to last. After the last of them the model says that it is done."""

    steps: Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]
    name: str = ""  # for records and messages; left out, `when`

    def __post_init__(self) -> None:
        check_templates(msgspec.to_builtins(self.steps), None)


class Turn(Reply, frozen=True, kw_only=True, rename={"steps": "step"}):
    """What the model does about a prompt that `when` is found in (`^` and `$` match at every line)."""

    when: str
    model: str | None = None  # only for models that this regex is found in; left out, for all

    def __post_init__(self) -> None:
        check_regex(self.when)
        check_regex(self.model)
        check_templates(msgspec.to_builtins(self.steps), re.compile(self.when, re.MULTILINE))


_ECHO = Reply(name="default", steps=(Step(actions=(Text(text="The scenario has no turn for: {{prompt}}"),)),))


class Scenario(_Part, frozen=True, kw_only=True, rename={"turns": "turn"}):
    """A scenario: the first turn whose `when` is found answers, else `default`."""

    name: str = "unnamed"
    title: str = "A scripted session"  # the answer to a request for a session title
    models: tuple[str, ...] = ("scripted-1",)  # ids listed by GET /v1/models; any id is answered
    pace: Pace = Pace()
    turns: tuple[Turn, ...] = ()
    default: Reply = _ECHO


def parse(text: str, file: str) -> Scenario:
    """The scenario in TOML text; `file` is named in errors.

    Raises ScenarioUnreadable for text that is not TOML and ScenarioInvalid for a wrong key.
    """
    try:
        return msgspec.convert(tomllib.loads(text), Scenario)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioUnreadable(file, f"not TOML: {error}") from None
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise ScenarioInvalid(file, path.rstrip("`").lstrip("."), reason) from None


def load(path: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ScenarioUnreadable(str(path), reason or str(error)) from None
    return parse(text, str(path))


def load_builtin(name: str) -> Scenario:
    """One of the scenarios that come with Valet: `demo` or `tests`. Raises ScenarioUnreadable for another name."""
    file = resources.files("valet_local") / "scenarios" / f"{name}.toml"
    if not file.is_file():
        raise ScenarioUnreadable(f"{name}.toml", "no scenario of that name comes with Valet")
    return parse(file.read_text(encoding="utf-8"), f"{name}.toml")
