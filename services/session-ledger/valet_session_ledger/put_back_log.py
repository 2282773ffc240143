"""The log while events are put back into it: closed to everybody else, written at given sequences. No decisions here.

To close it, the stream is told to listen on subjects of its own (`put_back.>`), which it stores under their proper
names. Others' publishes then find no stream, and their outboxes send them again until it is open. The closed stream
says so itself: who is killed in the middle finds it closed and goes on. Measured on 2.15.1: readers, old and new ones,
are not disturbed; a purge of the last messages leaves the last sequence where it is, also over a kill -9.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from valet_protocol import subjects
from valet_service import broker
from valet_service import limits as service_limits

from valet_session_ledger.put_back_plan import FILLERS, Message

_ENTRANCE = "put_back."
_NO_MESSAGE = 10037


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log begins and ends."""

    first_seq: int
    last_seq: int
    closed: bool
    """Whether events are being put back."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What stands at a sequence."""

    subject: str
    payload: bytes


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of some messages."""

    problem: str = ""
    """Why not all are stored; empty when they are."""
    doubled: frozenset[int] = frozenset()
    """Those whose id the broker has already seen at another sequence."""


class _Error(msgspec.Struct, kw_only=True):
    err_code: int = 0
    description: str = ""


class _State(msgspec.Struct, kw_only=True):
    first_seq: int
    last_seq: int


class _Info(msgspec.Struct, kw_only=True):
    state: _State | None = None
    config: dict[str, Any] = {}
    error: _Error | None = None


class _Found(msgspec.Struct, kw_only=True):
    seq: int
    subject: str
    data: str = ""


class _Got(msgspec.Struct, kw_only=True):
    message: _Found | None = None
    error: _Error | None = None


class _Ack(msgspec.Struct, kw_only=True):
    seq: int = 0
    duplicate: bool = False
    error: _Error | None = None


_ack = msgspec.json.Decoder(_Ack)


class PutBackLog:
    """The log's stream over one connection. All methods raise nats-py's errors while the broker is away."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc

    async def state(self) -> LogState:
        """Where it begins and ends, and whether it is closed."""
        info = await self._api("STREAM.INFO", None, _Info)
        assert info.state is not None
        return LogState(
            first_seq=info.state.first_seq,
            last_seq=info.state.last_seq,
            closed=info.config.get("subjects") == [f"{_ENTRANCE}>"],
        )

    async def close(self) -> None:
        """Nobody but who puts back can write from now on."""
        transform = {"src": f"{_ENTRANCE}>", "dest": subjects.EVERYTHING}
        await self._configure({"subjects": [f"{_ENTRANCE}>"], "subject_transform": transform})

    async def open(self) -> None:
        """Everybody can write again."""
        await self._configure({"subjects": [subjects.EVERYTHING], "subject_transform": None})

    async def at(self, seq: int) -> Stored | None:
        """What stands at a sequence; None when that was purged or has expired."""
        got = await self._api("STREAM.MSG.GET", {"seq": seq}, _Got)
        if got.message is None:
            return None
        return Stored(subject=got.message.subject, payload=base64.b64decode(got.message.data))

    async def next(self, subject: str, start: int) -> tuple[int, str]:
        """Sequence and subject of the first message from `start` on under a filter; sequence 0 when there is none."""
        got = await self._api("STREAM.MSG.GET", {"seq": start, "next_by_subj": subject}, _Got)
        return (0, "") if got.message is None else (got.message.seq, got.message.subject)

    async def sweep(self) -> None:
        """Remove fillers. The sequences they hold stay taken."""
        await self._api("STREAM.PURGE", {"filter": FILLERS}, _Info)

    async def write(self, messages: Sequence[Message], doubled: frozenset[int]) -> Written:
        """Store messages, each at its sequence or not at all. Waits until all are, or one is not."""
        waiting = {message.seq for message in messages}
        problems: list[str] = []
        seen: set[int] = set()
        done = asyncio.Event()

        async def receive(answer: Msg) -> None:
            seq = int(answer.subject.rpartition(".")[2])
            if answer.headers and answer.headers.get("Status"):
                problems.append(f"status {answer.headers['Status']}")
            else:
                ack = _ack.decode(answer.data)
                if ack.error is not None:
                    problems.append(ack.error.description)
                elif ack.seq != seq:
                    seen.add(seq)
            waiting.discard(seq)
            if problems or seen or not waiting:
                done.set()

        inbox = self._nc.new_inbox()
        answers = await broker.subscribe(self._nc, f"{inbox}.*", receive)
        try:
            for message in messages:
                headers = {"Nats-Expected-Last-Sequence": str(message.seq - 1)}
                if message.msg_id:
                    own = f"{message.msg_id}.{message.seq}" if message.seq in doubled else message.msg_id
                    headers["Nats-Msg-Id"] = own
                await self._nc.publish(
                    f"{_ENTRANCE}{message.subject.removeprefix('session.')}",
                    message.payload,
                    reply=f"{inbox}.{message.seq}",
                    headers=headers,
                )
            await asyncio.wait_for(done.wait(), service_limits.PUBLISH_TIMEOUT)
        except TimeoutError:
            problems.append("no answer in time")
        finally:
            if not self._nc.is_closed:
                await answers.unsubscribe()
        if seen and not problems:
            problems.append("an id was used before")
        return Written(problem=problems[0] if problems else "", doubled=frozenset(seen))

    async def _configure(self, changes: dict[str, Any]) -> None:
        info = await self._api("STREAM.INFO", None, _Info)
        config = {name: value for name, value in (info.config | changes).items() if value is not None}
        await self._api("STREAM.UPDATE", config, _Info)

    async def _api(self, method: str, body: object, answer: type[Any]) -> Any:
        payload = b"" if body is None else msgspec.json.encode(body)
        reply = await broker.request(
            self._nc, f"$JS.API.{method}.{subjects.STREAM}", payload, timeout=service_limits.REQUEST_TIMEOUT
        )
        decoded = msgspec.json.decode(reply.data, type=answer)
        if decoded.error is not None and decoded.error.err_code != _NO_MESSAGE:
            raise nats.errors.Error(f"{method}: {decoded.error.description}")
        return decoded
