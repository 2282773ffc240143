"""Appending facts: only if nobody else has appended one to the session since it was read.

Measured (reference, infrastructure 1 and 7): the expectation is over the wildcard of the session's facts; a publish
that timed out may be stored all the same; and the retry of one that was stored is answered "wrong last sequence", not
"duplicate". So after a lost answer, or that refusal, the session's last fact is looked at before anything is
concluded.
"""

import asyncio
import base64
import time

import msgspec
import nats.errors
from nats.aio.client import Client
from valet_protocol import subjects
from valet_protocol.codec import Outgoing, encode
from valet_protocol.events.envelope import Event
from valet_service import logs
from valet_service.errors import AppendConflict, AppendUnknown, EventTooLarge
from valet_service.limits import MAX_EVENT_BYTES

from valet_session_ledger import limits

SOURCE = "/session-ledger"
_WRONG_LAST_SEQUENCE = 10071
_NO_MESSAGE = 10037

_log = logs.get(__name__)


class _Error(msgspec.Struct, kw_only=True):
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct, kw_only=True):
    seq: int = 0
    error: _Error | None = None


class _Message(msgspec.Struct, kw_only=True):
    seq: int
    hdrs: str = ""


class _Got(msgspec.Struct, kw_only=True):
    message: _Message | None = None
    error: _Error | None = None


class Last(msgspec.Struct, frozen=True):
    """The last message under a subject filter."""

    seq: int
    """0 when there is none."""
    msg_id: str = ""


_ack = msgspec.json.Decoder(_Ack)
_got = msgspec.json.Decoder(_Got)


class Appender:
    """Writes facts over one connection."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc

    async def append(self, event: Event, expected: int) -> int:
        """Store a fact after the session's fact `expected` (0: as its first) and give its sequence.

        Raises `AppendConflict` when another fact is there, `AppendUnknown` when no answer could be had in time,
        `EventTooLarge`.
        """
        outgoing = encode(event, source=SOURCE)
        if len(outgoing.payload) > MAX_EVENT_BYTES:
            raise EventTooLarge(outgoing.subject, len(outgoing.payload))
        deadline = time.monotonic() + limits.APPEND_DEADLINE
        while True:
            try:
                return await self._attempt(event.session_id, outgoing, expected)
            except (nats.errors.Error, TimeoutError, OSError) as error:
                # a repetition is harmless: the same id and the same expectation
                _log.info("append_repeated", type=event.type, error=str(error) or type(error).__name__)
                if time.monotonic() > deadline:
                    raise AppendUnknown(f"no answer to the append of {event.type}") from error
                await asyncio.sleep(limits.APPEND_RETRY_WAIT)

    async def last(self, session_id: str, source: subjects.Source | None = None) -> Last:
        """The last event of a session, or of one source of it. Raises nats-py's errors."""
        subject = subjects.session(session_id) if source is None else subjects.source(session_id, source)
        answer = await self._nc.request(
            f"$JS.API.STREAM.MSG.GET.{subjects.STREAM}",
            msgspec.json.encode({"last_by_subj": subject}),
            timeout=limits.APPEND_TIMEOUT,
        )
        got = _got.decode(answer.data)
        if got.message is not None:
            return Last(got.message.seq, _msg_id(got.message.hdrs))
        if got.error is not None and got.error.err_code == _NO_MESSAGE:
            return Last(0)
        raise nats.errors.Error(f"last event of {session_id} not had: {got.error}")

    async def end(self) -> int:
        """Sequence of the log's last event. Raises nats-py's errors."""
        info = await self._nc.jetstream(timeout=limits.APPEND_TIMEOUT).stream_info(subjects.STREAM)
        return info.state.last_seq

    async def _attempt(self, session_id: str, outgoing: Outgoing, expected: int) -> int:
        answer = await self._nc.request(
            outgoing.subject,
            outgoing.payload,
            timeout=limits.APPEND_TIMEOUT,
            headers={
                "Nats-Msg-Id": outgoing.msg_id,
                "Nats-Expected-Last-Subject-Sequence": str(expected),
                "Nats-Expected-Last-Subject-Sequence-Subject": subjects.source(session_id, "fact"),
            },
        )
        ack = _ack.decode(answer.data)
        if ack.error is None:
            return ack.seq
        if ack.error.err_code != _WRONG_LAST_SEQUENCE:
            raise nats.errors.Error(f"append refused: {ack.error.description}")
        last = await self.last(session_id, "fact")
        if last.msg_id == outgoing.msg_id:
            return last.seq
        raise AppendConflict(f"the last fact of {session_id} is {last.seq}, not {expected}")


def _msg_id(headers: str) -> str:
    for line in base64.b64decode(headers).decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.lower() == "nats-msg-id":
            return value.strip()
    return ""
