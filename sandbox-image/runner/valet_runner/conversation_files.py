"""A conversation of OpenCode's as a file: written, read back into another OpenCode, and as plain text.

Measured with OpenCode 1.18.33: what `opencode export` writes is what its API gives for a session and its messages;
`opencode import` works without network, while a server runs on the same data, and a second time without effect; it
keeps the ids of session, messages and parts, and puts the session into the directory it is run in.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import httpx
import msgspec
from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import opencode_client, opencode_config, processes, work_limits
from valet_runner.cutting import head, tail
from valet_runner.errors import OpencodeFailed, OpencodeRefused, OpencodeUnavailable
from valet_runner.opencode_client import OpencodeClient

_SNAPSHOT_KEY = "snapshot"
_INTRODUCTION = (
    "The conversation so far could not be put back into your memory. This is its text; the newest is last:\n\n"
)


class _TooLong(OpencodeRefused):
    """More than a conversation may take."""


class _Text(msgspec.Struct):
    type: str = ""
    text: str = ""
    tool: str = ""
    synthetic: bool = False


class _Role(msgspec.Struct):
    role: str = ""


class _Message(msgspec.Struct):
    info: _Role
    parts: list[_Text] = []


class _Export(msgspec.Struct):
    messages: list[_Message] = []


class Exporter:
    """Writes conversations of a running OpenCode to files. One that has not changed since is not written again."""

    def __init__(self) -> None:
        self._written: dict[Path, bytes] = {}

    async def write(self, client: OpencodeClient, session: str, target: Path) -> None:
        """Write one, if it is too long only its latest messages; the file is replaced in one step.

        Raises `OpencodeUnavailable` and `OpencodeRefused`.
        """
        async with httpx.AsyncClient(
            base_url=client.url,
            auth=(opencode_client.USER, client.password),
            headers={"x-opencode-directory": client.directory},
            timeout=work_limits.END_TIMEOUT,
            trust_env=False,
        ) as http:
            info = b"".join([piece async for piece in _read(http, f"/session/{session}")])
            if self._is_written(target, info):
                return
            for latest in (None, *work_limits.CONVERSATION_CUTS):
                try:
                    await _write(http, session, info, latest, fresh := target.with_suffix(".new"))
                except _TooLong:
                    continue
                os.replace(fresh, target)
                self._written[target] = info
                return
        raise OpencodeRefused(200, "even the conversation's last messages are too long to be saved")

    def _is_written(self, target: Path, info: bytes) -> bool:
        return self._written.get(target) == info and target.exists()


async def put_back(spec: RunnerSpec, file: Path, session: str) -> None:
    """Import a conversation into the OpenCode of this home. OpenCode must have started once: both would otherwise make
    its database at the same time. Raises `OpencodeFailed`.

    References to snapshots of OpenCode's own are taken out: it does not have them here, and a revert would take the
    files they are about for new ones and remove them (read in its source).
    """
    _strip(file)
    environ = opencode_config.environment(spec, opencode_config.Surroundings(), config_file="", plugin_dir="")
    # no configuration: what the repository or the agent has put there must not keep the conversation from coming back
    for name in ("OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR"):
        del environ[name]
    environ["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    # it leaves a lock of its own behind when it ends, for which the server would wait with its first answer (measured)
    environ["XDG_STATE_HOME"] = str(file.parent / "state")
    try:
        done = await processes.run(
            spec.opencode,
            "import",
            str(file),
            "--pure",
            env=environ,
            cwd=spec.workspace,
            timeout=work_limits.IMPORT_TIMEOUT,
        )
    except (OSError, TimeoutError) as error:
        raise OpencodeFailed(f"opencode import: {str(error) or type(error).__name__}") from error
    if done.code != 0 or session.encode() not in done.stdout:
        words = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise OpencodeFailed(f"opencode import ended with status {done.code}: {words[-500:]}")


def _strip(file: Path) -> None:
    file.write_bytes(without_snapshots(file.read_bytes()))


def without_snapshots(export: bytes) -> bytes:
    """An export without what refers to OpenCode's snapshots of the files. Raises `OpencodeFailed`."""
    try:
        whole = msgspec.json.decode(export, type=dict[str, object])
        messages = msgspec.convert(whole.get("messages", []), list[dict[str, object]])
        for message in messages:
            parts = msgspec.convert(message.get("parts", []), list[dict[str, object]])
            message["parts"] = [_without(part) for part in parts if part.get("type") != "patch"]
        whole["messages"] = messages
        info = msgspec.convert(whole.get("info"), dict[str, object])
        if "revert" in info:
            revert = msgspec.convert(info["revert"], dict[str, object])
            info["revert"] = {key: value for key, value in revert.items() if key not in (_SNAPSHOT_KEY, "diff")}
        whole["info"] = info
    except msgspec.MsgspecError as error:
        raise OpencodeFailed(f"the saved conversation cannot be read: {error}") from error
    return msgspec.json.encode(whole)


def preamble(export: bytes, earlier: Sequence[str] = ()) -> str:
    """A conversation's latest part as plain text, for an agent that does not remember it; empty if it has none.

    `earlier` are texts of this kind that it was to be told before: they come first, where the conversation has not
    taken them up.
    """
    try:
        messages = msgspec.json.decode(export, type=_Export, strict=False).messages
    except msgspec.MsgspecError:
        messages = []
    held = {part.text for message in messages for part in message.parts}
    said = [told for text in earlier if text not in held and (told := _told_before(text))]
    said += [text for message in messages if (text := _told(message))]
    return as_preamble("\n\n".join(said)) if said else ""


def as_preamble(text: str) -> str:
    """What was said, as the agent is told it."""
    return _INTRODUCTION + tail(text, work_limits.PREAMBLE_CHARS)


def is_preamble(text: str) -> bool:
    """Whether a text tells a conversation."""
    return text.startswith(_INTRODUCTION)


def _told_before(text: str) -> str:
    """What a text tells of a conversation; nothing where it is about something else."""
    return text.removeprefix(_INTRODUCTION) if is_preamble(text) else ""


def _told(message: _Message) -> str:
    before = [told for part in message.parts if part.synthetic and (told := _told_before(part.text))]
    return "\n\n".join(filter(None, [*before, _told_now(message)]))


def _told_now(message: _Message) -> str:
    texts = [part.text for part in message.parts if part.type == "text" and part.text and not part.synthetic]
    tools = [part.tool for part in message.parts if part.type == "tool"]
    text = head("\n".join(texts), work_limits.PREAMBLE_MESSAGE_CHARS)
    used = f"(used {', '.join(tools)})" if tools else ""
    told = "\n".join(piece for piece in (text, used) if piece)
    who = "Person" if message.info.role == "user" else "You"
    return f"{who}: {told}" if told else ""


def _without(part: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in part.items() if key != _SNAPSHOT_KEY}


def _open(target: Path) -> IO[bytes]:
    return target.open("wb")


async def _write(http: httpx.AsyncClient, session: str, info: bytes, latest: int | None, target: Path) -> None:
    query = f"?limit={latest}" if latest else ""
    with _open(target) as file:
        file.write(b'{"info":' + info + b',"messages":')
        async for piece in _read(http, f"/session/{session}/message{query}"):
            file.write(piece)
        file.write(b"}")


async def _read(http: httpx.AsyncClient, path: str) -> AsyncIterator[bytes]:
    size = 0
    try:
        async with http.stream("GET", path) as response:
            if response.status_code != httpx.codes.OK:
                raise OpencodeRefused(response.status_code, (await response.aread())[:500].decode(errors="replace"))
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > work_limits.CONVERSATION_BYTES:
                    raise _TooLong(200, f"{path} has more than {work_limits.CONVERSATION_BYTES} bytes")
                yield piece
    except httpx.HTTPError as error:
        raise OpencodeUnavailable(f"GET {path}: {str(error) or type(error).__name__}") from error
