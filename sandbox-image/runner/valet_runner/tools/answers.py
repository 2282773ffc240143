"""What calls with a key of the sandbox's own tools were answered, in a file of the home: a repetition that comes to
another runner gets the same answer.

A runner that was killed before the answer was noted carries the call out again; every tool finds what is there already.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec
from valet_protocol.errors import Unprocessable
from valet_protocol.requests import Reply
from valet_protocol.tools import Tool
from valet_service import logs

from valet_runner.tools import limits

_FILE = Path(".valet") / "tool-answers.json"
_log = logs.get(__name__)


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    reply: msgspec.Raw


class Answers:
    """The latest of them, by request id."""

    def __init__(self, home: Path) -> None:
        self._path = home / _FILE
        self._kept = self._remembered()

    def find(self, request: Tool) -> Reply | None:
        """What this call was answered before. Raises `Unprocessable` where its key was another one's."""
        kept = self._kept.get(request.request_id)
        if kept is None:
            return None
        check_same(request, kept.digest)
        return msgspec.json.decode(kept.reply, type=request.reply)

    def keep(self, request: Tool, reply: Reply) -> None:
        """Note it; the oldest make room. A full disk costs the memory of a restart, not the call."""
        self._kept[request.request_id] = _Kept(digest=digest(request), reply=msgspec.Raw(msgspec.json.encode(reply)))
        for old in list(self._kept)[: -limits.KEPT_ANSWERS]:
            del self._kept[old]
        new = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(msgspec.json.encode(self._kept))
            os.replace(new, self._path)
        except OSError as error:
            _log.warning("answer_not_noted", tool=request.name, error=str(error))

    def _remembered(self) -> dict[str, _Kept]:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Kept])
        return {}


def digest(request: Tool) -> str:
    """What tells one call under a key from another: what the agent said, not what was filled in."""
    said = msgspec.structs.replace(request, session_id="", request_id="", turn_id=None)
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


def check_same(request: Tool, digest_of_first: str) -> None:
    """Whether the key's first call was this one. Raises `Unprocessable`."""
    if digest(request) != digest_of_first:
        raise Unprocessable(
            "idempotency_key_reused",
            f"This Idempotency-Key was used for a different call of {request.name}; use a new one for every call.",
        )
