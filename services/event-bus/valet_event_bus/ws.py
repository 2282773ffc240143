"""Many sessions over one WebSocket. The frames' grammar is the `websockets` library's; the rest is here.

Client: `subscribe {session_id, after}`, `unsubscribe {session_id}`, `presence {session_id, state}`, `ping`.
Server: `events`, `synced`, `presence`, `notification`, `notifications_read`, `error`, `pong` (see `frames`).
"""

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec
from nats.aio.client import Client as Broker
from valet_protocol.errors import BadRequest, Conflict, Forbidden, Refused, TooMany
from valet_service import logs
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side
from websockets.utils import accept_key

from valet_event_bus import frames, limits
from valet_event_bus.access import Access
from valet_event_bus.attendance import Attendance
from valet_event_bus.client import Client
from valet_event_bus.errors import Gone
from valet_event_bus.follow import follow
from valet_event_bus.frames import Batch
from valet_event_bus.hub import Channel, Hub
from valet_event_bus.presence import State

_log = logs.get(__name__)


class Subscribe(msgspec.Struct, frozen=True, tag="subscribe", tag_field="type"):
    """Send everything of a session above `after`, then keep sending."""

    session_id: str
    after: Annotated[int, msgspec.Meta(ge=0)] = 0


class Unsubscribe(msgspec.Struct, frozen=True, tag="unsubscribe", tag_field="type"):
    """No more of that session."""

    session_id: str


class Presence(msgspec.Struct, frozen=True, tag="presence", tag_field="type"):
    """What the person does in a session that is subscribed. Typing is to be said again every few seconds."""

    session_id: str
    state: State


class Ping(msgspec.Struct, frozen=True, tag="ping", tag_field="type"):
    """Browsers cannot send the protocol's own ping."""


class _Grammar(Protocol):
    """The server's side. Its own words for a message that is too large are those of a programmer."""

    def __init__(self) -> None:
        super().__init__(Side.SERVER, max_size=limits.WS_MESSAGE_IN)

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        """End the connection with a reason."""
        if code == CloseCode.MESSAGE_TOO_BIG:
            reason = f"a message may have {limits.WS_MESSAGE_IN:,} bytes"
        super().fail(code, reason)


_decoder = msgspec.json.Decoder(Subscribe | Unsubscribe | Presence | Ping)


class Subscription:
    """One session on one WebSocket."""

    def __init__(self, client: "WsClient", hub: Hub, attendance: Attendance, session_id: str) -> None:
        self._client = client
        self._hub = hub
        self._attendance = attendance
        self._session_id = session_id
        self._state: State = "active"
        self.channel: Channel = hub.join(session_id, self)
        self.task: asyncio.Task[None] | None = None
        self.ended = False

    @property
    def user(self) -> str:
        return self._client.user

    def check(self) -> None:
        if self.ended:
            raise Gone
        self._client.check()

    def send(self, batch: Batch) -> None:
        self._client.write(batch.ws)

    def synced(self, seq: int) -> None:
        self._client.write(frames.synced_ws(self._session_id, seq))
        # not before: who has not been given the session yet is not shown to others
        self._attendance.join(self._session_id, self, self.user, self._client.name, self._state)

    def present(self, frame: bytes) -> bool:
        return self._client.write_if_idle(frame)

    def say(self, state: State) -> None:
        """The person does this now."""
        self._state = state
        self._attendance.say(self._session_id, self, state)

    def revoked(self) -> None:
        self._client.revoke(self._session_id)

    def end(self) -> None:
        """Nothing more of it."""
        self.ended = True
        if self.task is not None:
            self.task.cancel()
        self._hub.leave(self.channel, self)
        self._attendance.leave(self._session_id, self)

    async def drained(self) -> None:
        self.check()
        await self._client.drained()


class WsClient(Client):
    """Completes the upgrade and then serves subscriptions."""

    def __init__(
        self,
        nc: Broker,
        hub: Hub,
        access: Access,
        attendance: Attendance,
        user: str,
        name: str,
        key: str,
        closed: Callable[[Client], None],
    ) -> None:
        super().__init__(user, closed)
        self.name = name
        self._nc = nc
        self._hub = hub
        self._access = access
        self._attendance = attendance
        self._key = key
        self._grammar = _Grammar()
        self._fragments: list[bytes] = []
        self._subscriptions: dict[str, Subscription] = {}
        self._heard = True
        self._unanswered = 0

    def opened(self) -> None:
        self.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: " + accept_key(self._key).encode() + b"\r\n\r\n"
        )

    def connection_lost(self, exc: Exception | None) -> None:
        for session_id in list(self._subscriptions):
            self._drop(session_id)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._grammar.receive_data(data)
        self._pump()

    def eof_received(self) -> bool:
        self._grammar.receive_eof()
        self._pump()
        return False

    def keep_alive(self) -> None:
        self._unanswered = 0 if self._heard else self._unanswered + 1
        self._heard = False
        if self._unanswered >= 2:
            self.abort()
        elif not self._gone:
            self.write(b"\x89\x00")  # ping without content

    def bid_farewell(self) -> None:
        self.write(b"\x88\x02" + int(CloseCode.SERVICE_RESTART).to_bytes(2, "big"))
        self.close()

    def _pump(self) -> None:
        """Handle what the grammar made of the client's bytes, and send what it wants sent."""
        for event in self._grammar.events_received():
            if isinstance(event, Frame):
                self._frame(event)
        failed = self._grammar.parser_exc is not None
        end = self.part if failed else self.close
        for data in self._grammar.data_to_send():
            if data:
                self.write(data)
            else:
                end()
        if self._grammar.close_expected():
            end()

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY:
            self._grammar.fail(CloseCode.UNSUPPORTED_DATA, "send text")
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                message = b"".join(self._fragments)
                self._fragments.clear()
                self._message(message)

    def _message(self, message: bytes) -> None:
        try:
            request = _decoder.decode(message)
        except msgspec.MsgspecError as error:
            code = "bad_cursor" if "$.after" in str(error) else "malformed_message"
            self._refuse(None, BadRequest(code, f"{error}. Send subscribe, unsubscribe, presence or ping as JSON."))
            return
        match request:
            case Subscribe(session_id=session_id, after=after):
                self._subscribe(session_id, after)
            case Unsubscribe(session_id=session_id):
                self._drop(session_id)
            case Presence(session_id=session_id, state=state):
                self._say(session_id, state)
            case Ping():
                self.write(frames.PONG_WS)

    def _subscribe(self, session_id: str, after: int) -> None:
        self._drop(session_id)
        if len(self._subscriptions) >= limits.WS_SUBSCRIPTIONS:
            self._refuse(
                session_id,
                TooMany("too_many_subscriptions", f"One connection may watch {limits.WS_SUBSCRIPTIONS} sessions."),
            )
            return
        subscription = Subscription(self, self._hub, self._attendance, session_id)
        self._subscriptions[session_id] = subscription
        subscription.task = asyncio.create_task(self._follow(subscription, session_id, after))

    async def _follow(self, subscription: Subscription, session_id: str, after: int) -> None:
        try:
            await self._access.check(self.user, session_id)
            await follow(self._nc, self._hub, subscription.channel, subscription, after)
        except Gone:
            return
        except Refused as refusal:
            if not subscription.ended:
                subscription.task = None
                self._drop(session_id)
                self._refuse(session_id, refusal)

    def revoke(self, session_id: str) -> None:
        """The user may no longer watch a session; the others go on."""
        _log.info("access_revoked", session=session_id, user=self.user)
        self._drop(session_id)
        self._refuse(session_id, Forbidden("access_revoked", "You no longer take part in this session."))

    def _say(self, session_id: str, state: State) -> None:
        subscription = self._subscriptions.get(session_id)
        if subscription is None:
            detail = "Subscribe to the session before saying what you do in it."
            self._refuse(session_id, Conflict("not_subscribed", detail))
            return
        subscription.say(state)

    def _drop(self, session_id: str) -> None:
        subscription = self._subscriptions.pop(session_id, None)
        if subscription is not None:
            subscription.end()

    def _refuse(self, session_id: str | None, refusal: Refused) -> None:
        self.write(frames.error_ws(session_id, refusal.problem()))
