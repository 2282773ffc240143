"""The calls of OpenCode's HTTP API that the runner makes, each with a time-out."""

from typing import TypeVar

import httpx
import msgspec

from valet_runner import frames, limits
from valet_runner.errors import OpencodeRefused, OpencodeUnavailable

USER = "opencode"
"""OpenCode's fixed user name for HTTP Basic."""


T = TypeVar("T")


class _ModelRef(msgspec.Struct, frozen=True, kw_only=True, rename={"provider_id": "providerID", "model_id": "modelID"}):
    provider_id: str
    model_id: str


class _TextInput(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    type: str = "text"


class _Prompt(msgspec.Struct, frozen=True, kw_only=True, rename={"message_id": "messageID"}):
    message_id: str
    model: _ModelRef
    parts: list[_TextInput]


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

    async def prompt(self, session: str, *, message_id: str, text: str, model: str) -> None:
        """Give it a prompt; returns when OpenCode has stored it. `model` is `provider/model`."""
        provider, _, name = model.partition("/")
        prompt = _Prompt(
            message_id=message_id,
            model=_ModelRef(provider_id=provider, model_id=name),
            parts=[_TextInput(text=text)],
        )
        await self._call(
            "POST",
            f"/session/{session}/prompt_async",
            body=msgspec.json.encode(prompt),
            timeout=limits.PROMPT_TIMEOUT,
        )

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
        self, method: str, path: str, *, body: bytes | None = None, timeout: float = limits.REQUEST_TIMEOUT
    ) -> bytes:
        headers = {"x-opencode-directory": self.directory}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            response = await self._http.request(method, path, content=body, headers=headers, timeout=timeout)
        except (httpx.TransportError, RuntimeError) as error:  # RuntimeError: closed because OpenCode was replaced
            raise OpencodeUnavailable(f"{method} {path}: {error or type(error).__name__}") from error
        if response.status_code >= 400:
            raise OpencodeRefused(response.status_code, response.text[:500])
        return response.content


def _decode(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        raise OpencodeRefused(200, f"an answer this version does not understand: {error}") from error
