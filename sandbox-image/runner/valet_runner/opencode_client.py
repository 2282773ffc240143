"""The calls of OpenCode's HTTP API that the runner makes, each with a time-out."""

import base64
import contextlib
from typing import TypeVar

import httpx
import msgspec

from valet_runner import frames, limits
from valet_runner.errors import OpencodeRefused, OpencodeUnavailable
from valet_runner.prompt_parts import FileInput, InputPart

USER = "opencode"
"""OpenCode's fixed user name for HTTP Basic."""

_AGENT = "build"
"""The agent on whose behalf a person's shell command runs: OpenCode's own default one."""

T = TypeVar("T")


class _ModelRef(msgspec.Struct, frozen=True, kw_only=True, rename={"provider_id": "providerID", "model_id": "modelID"}):
    provider_id: str
    model_id: str


class _Prompt(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"message_id": "messageID", "no_reply": "noReply"},
    omit_defaults=True,
):
    message_id: str
    model: _ModelRef
    parts: list[InputPart]
    variant: str | None = None
    no_reply: bool = False


class _SlashCommand(msgspec.Struct, frozen=True, kw_only=True, rename={"message_id": "messageID"}, omit_defaults=True):
    message_id: str
    command: str
    arguments: str
    model: str
    variant: str | None = None
    parts: list[FileInput] = []


class _Shell(msgspec.Struct, frozen=True, kw_only=True, rename={"message_id": "messageID"}):
    message_id: str
    agent: str
    command: str


class _ToolServer(msgspec.Struct, frozen=True, kw_only=True):
    status: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /global/health`. Any unknown path is answered 200 with a web page, so the body decides."""

    healthy: bool = False
    version: str = ""


class OpencodeClient:
    """One running OpenCode, one working directory. Every call raises `OpencodeUnavailable` when there is no answer and
    `OpencodeRefused` when the answer is an error."""

    def __init__(self, url: str, password: str, directory: str) -> None:
        self.url = url
        self.password = password
        self.directory = directory
        self.authorization = "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()
        """The header with which anybody may call it."""
        # the sandbox's proxy variables are for the world outside
        self._http = httpx.AsyncClient(
            base_url=url, auth=(USER, password), timeout=limits.REQUEST_TIMEOUT, trust_env=False
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def health(self) -> Health:
        """Whether it can be used, and its version."""
        return _decode(await self._call("GET", "/global/health", timeout=limits.PROBE_TIMEOUT), Health)

    async def is_open(self) -> bool:
        """Whether it answers those who do not show its password."""
        try:
            response = await self._http.get(
                "/global/health", auth=httpx.BasicAuth(USER, ""), timeout=limits.PROBE_TIMEOUT
            )
        except httpx.TransportError as error:
            raise OpencodeUnavailable(f"GET /global/health: {str(error) or type(error).__name__}") from error
        return response.status_code != httpx.codes.UNAUTHORIZED

    async def create_session(self) -> frames.Session:
        """A new conversation."""
        return _decode(await self._call("POST", "/session", body=b"{}"), frames.Session)

    async def session(self, session: str) -> frames.Session | None:
        """A conversation by id; none if it is not there."""
        try:
            return _decode(await self._call("GET", f"/session/{session}"), frames.Session)
        except OpencodeRefused as error:
            if error.status == 404:
                return None
            raise

    async def children(self, session: str) -> list[frames.Session]:
        """Conversations of its sub-agents."""
        return _decode(await self._call("GET", f"/session/{session}/children"), list[frames.Session])

    async def messages(self, session: str) -> list[frames.Message]:
        """Its messages with their parts."""
        return _decode(await self._call("GET", f"/session/{session}/message"), list[frames.Message])

    async def statuses(self) -> dict[str, frames.Status]:
        """Conversations that are not idle."""
        return _decode(await self._call("GET", "/session/status"), dict[str, frames.Status])

    async def questions(self) -> list[frames.QuestionAsked]:
        """Questions that wait for an answer — and those of aborted turns, which OpenCode keeps."""
        return _decode(await self._call("GET", "/question"), list[frames.QuestionAsked])

    async def permissions(self) -> list[frames.PermissionAsked]:
        """Permissions that wait for an answer, likewise."""
        return _decode(await self._call("GET", "/permission"), list[frames.PermissionAsked])

    async def prompt(
        self,
        session: str,
        *,
        message_id: str,
        parts: list[InputPart],
        model: str,
        variant: str | None = None,
        unanswered: bool = False,
    ) -> None:
        """Give it a prompt; returns when OpenCode has stored it. `model` is `provider/model`. An `unanswered` one is
        only remembered: no model is asked.

        While the conversation is busy, the prompt is part of the next model step of the same run (measured).

        OpenCode's `format` (an answer by JSON schema) is not for use: once a conversation holds a prompt with one, its
        messages cannot be listed any more (400, measured with 1.18.33).
        """
        provider, _, name = model.partition("/")
        prompt = _Prompt(
            message_id=message_id,
            model=_ModelRef(provider_id=provider, model_id=name),
            parts=parts,
            variant=variant,
            no_reply=unanswered,
        )
        await self._call(
            "POST",
            f"/session/{session}/prompt_async",
            body=msgspec.json.encode(prompt),
            timeout=limits.PROMPT_TIMEOUT,
        )

    async def command(
        self,
        session: str,
        *,
        message_id: str,
        name: str,
        arguments: str,
        files: list[FileInput],
        model: str,
        variant: str | None,
    ) -> None:
        """Run a slash command; returns when its turn is over, however long that takes.

        OpenCode breaks the command off when the connection ends (measured), so the caller must not let go of it.
        """
        command = _SlashCommand(
            message_id=message_id, command=name, arguments=arguments, model=model, variant=variant, parts=files
        )
        await self._call("POST", f"/session/{session}/command", body=msgspec.json.encode(command), timeout=None)

    async def shell(self, session: str, *, message_id: str, command: str) -> None:
        """Run a person's shell command; returns when it has ended. Otherwise like `command`."""
        shell = _Shell(message_id=message_id, agent=_AGENT, command=command)
        await self._call("POST", f"/session/{session}/shell", body=msgspec.json.encode(shell), timeout=None)

    async def commands(self) -> list[frames.Command]:
        """The slash commands there are."""
        return _decode(await self._call("GET", "/command"), list[frames.Command])

    async def revert(self, session: str, message_id: str) -> frames.Session:
        """Take the conversation and its files back to before a user message. One that is not there changes nothing."""
        body = msgspec.json.encode({"messageID": message_id})
        return _decode(
            await self._call("POST", f"/session/{session}/revert", body=body, timeout=limits.PROMPT_TIMEOUT),
            frames.Session,
        )

    async def unrevert(self, session: str) -> None:
        """Undo that; fine when nothing is taken back."""
        await self._call("POST", f"/session/{session}/unrevert", timeout=limits.PROMPT_TIMEOUT)

    async def add_rules(self, session: str, rules: list[frames.Rule]) -> None:
        """Permission rules that count from the conversation's next run on, over all it has had."""
        await self._call("PATCH", f"/session/{session}", body=msgspec.json.encode({"permission": rules}))

    async def warm_up(self) -> None:
        """Have it take the workspace in and set its providers up, which it does with the first question about them. An
        abort in the middle of that leaves it unable to answer any prompt (seen)."""
        await self.statuses()
        with contextlib.suppress(OpencodeRefused):  # a prompt will say what is wrong with them
            await self._call("GET", "/config/providers", timeout=limits.PROMPT_TIMEOUT)

    async def connect_tools(self, server: str) -> None:
        """Have it connect with a server of tools that was not there when it took the workspace in; fine when it has."""
        status = _decode(await self._call("GET", "/mcp"), dict[str, _ToolServer]).get(server)
        if status is not None and status.status != "connected":
            await self._call("POST", f"/mcp/{server}/connect", timeout=limits.PROMPT_TIMEOUT)

    async def dispose(self) -> None:
        """Have OpenCode forget the workspace and read its configuration again with the next question about it. What
        runs is aborted, and the stream of events ends."""
        await self._call("POST", "/instance/dispose", timeout=limits.PROMPT_TIMEOUT)

    async def abort(self, session: str) -> None:
        """Stop what runs; fine when nothing does."""
        await self._call("POST", f"/session/{session}/abort")

    async def answer_question(self, question: str, answers: list[list[str]]) -> None:
        """For each question of the set the labels or the free text."""
        await self._call("POST", f"/question/{question}/reply", body=msgspec.json.encode({"answers": answers}))

    async def answer_permission(self, permission: str, reply: str) -> None:
        """`once`, `always` or `reject`."""
        await self._call("POST", f"/permission/{permission}/reply", body=msgspec.json.encode({"reply": reply}))

    async def _call(
        self, method: str, path: str, *, body: bytes | None = None, timeout: float | None = limits.REQUEST_TIMEOUT
    ) -> bytes:
        headers = {"x-opencode-directory": self.directory}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            response = await self._http.request(method, path, content=body, headers=headers, timeout=timeout)
        except (httpx.TransportError, RuntimeError) as error:  # RuntimeError: closed because OpenCode was replaced
            raise OpencodeUnavailable(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if response.status_code >= 400:
            raise OpencodeRefused(response.status_code, response.text[:500])
        return response.content


def _decode(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        raise OpencodeRefused(200, f"an answer this version does not understand: {error}") from error
