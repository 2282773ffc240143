"""Replaced runners at the portal: a real portal, a real broker with its log; the ledger's facts are written here."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import nats
import pytest
from nats.aio.client import Client
from valet_protocol import codec, ids
from valet_protocol.events.envelope import Data
from valet_protocol.events.facts import SandboxReleaseRequested, SandboxRequested
from valet_sandbox_controller import portal_token
from valet_sandbox_controller.errors import BadPortalRequest
from valet_sandbox_controller.portal.epochs import Epochs
from valet_sandbox_controller.portal_token import Bearer
from valet_service import broker

BROKER = "nats.valet:4222"


class Session:
    """A session as the ledger makes it, and its runners' connections to the portal."""

    def __init__(self, servers, nc: Client) -> None:
        self._servers = servers
        self._socket = str(servers.places.run / "portal" / "portal.sock")
        self._secret = (servers.places.keys / "secret").read_bytes()
        self._nc = nc
        self.id = ids.new_id()

    def another(self) -> "Session":
        return Session(self._servers, self._nc)

    async def requests(self, epoch: int) -> None:
        await self._append(
            SandboxRequested(epoch=epoch, reason="recovery", model="fake/m", boot_deadline_ms=2_000_000_000_000)
        )

    async def releases(self, epoch: int) -> None:
        await self._append(SandboxReleaseRequested(epoch=epoch, reason="terminated", delete_workspace=True))

    def token(self, epoch: int) -> str:
        return portal_token.mint(self._secret, self.id, epoch, int(time.time()) + 60)

    async def connect(self, epoch: int, where: str = BROKER) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        """A tunnel: the status line with its reason, and the open connection."""
        head = f"CONNECT {where} HTTP/1.1\r\nProxy-Authorization: Bearer {self.token(epoch)}\r\n\r\n"
        return await self._say(head.encode())

    async def asks_model(self, epoch: int) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        fields = f"Host: x\r\nx-api-key: {self.token(epoch)}\r\nContent-Length: 2"
        head = f"POST /model/fake/x HTTP/1.1\r\n{fields}\r\n\r\n{{}}"
        return await self._say(head.encode())

    async def reads(self, epoch: int) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        target = f"/objects/sessions/{self.id}/saved/x"
        return await self._say(f"GET {target} HTTP/1.1\r\nAuthorization: Bearer {self.token(epoch)}\r\n\r\n".encode())

    async def until_refused(self, epoch: int) -> str:
        """The reason, once there is one."""
        deadline = time.monotonic() + 10
        while True:
            try:
                line, reader, writer = await self.connect(epoch)
            except (ConnectionError, EOFError):
                line = "cut before it was answered"  # the portal learned of it in that moment
            else:
                reason = await asyncio.wait_for(reader.read(), 10) if " 407 " in line else None
                writer.close()
                if reason is not None:
                    return reason.decode()
            assert time.monotonic() < deadline, line
            await asyncio.sleep(0.02)

    async def _say(self, head: bytes) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        writer.write(head)
        answer = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode()
        return answer.partition("\r\n")[0], reader, writer

    async def _append(self, data: Data) -> None:
        event = codec.new_event(data, id=ids.new_id(), session_id=self.id, now_ms=int(time.time() * 1000))
        out = codec.encode(event, source="/session-ledger")
        await self._nc.jetstream().publish(out.subject, out.payload)


@pytest.fixture
async def session(servers) -> AsyncIterator[Session]:
    nc = await nats.connect(servers.broker.url, user_credentials=str(servers.creds("session-ledger")))
    await broker.ensure_stream(nc)
    yield Session(servers, nc)
    await broker.close(nc)


@pytest.fixture
def portal(start_service: Callable[..., object]) -> object:
    return start_service("portal")


@pytest.fixture
async def silent_model() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A model provider that begins to answer and then says nothing; its port, and whether it was hung up on."""
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        await writer.drain()
        while await reader.read(100):
            pass
        hung_up.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], hung_up
    server.close()


async def test_everything_an_old_runner_has_open_is_cut_within_a_second_of_the_newer_ones_request(
    start_service: Callable[..., object], session: Session, silent_model: tuple[int, asyncio.Event], tmp_path
) -> None:
    port, hung_up = silent_model
    config = tmp_path / "valet.toml"
    config.write_text(f'[providers.fake]\nbase_url = "http://127.0.0.1:{port}/v1"\nmodels = ["m"]\n')
    start_service("portal", VALET_CONFIG=str(config))
    await session.requests(1)
    opened = [await session.connect(1), await session.connect(1), await session.asks_model(1)]
    assert all(" 200 " in line for line, _, _ in opened)
    for _, reader, _ in opened:
        await asyncio.wait_for(reader.read(1), 10)
    _, untouched, writer = await session.another().connect(1)
    await asyncio.wait_for(untouched.readuntil(b"\r\n"), 10)

    began = time.monotonic()
    await session.requests(2)
    for _, reader, _ in opened:
        with pytest.raises((ConnectionError, EOFError)):
            await asyncio.wait_for(_to_the_end(reader), 5)
    took = time.monotonic() - began
    print(f"newer epoch requested → all cut: {took * 1000:.0f} ms")
    assert took < 1
    await asyncio.wait_for(hung_up.wait(), 1)
    writer.write(b"PING\r\n")
    assert await asyncio.wait_for(untouched.read(1), 10), "another session's tunnel was cut as well"


async def test_an_old_token_is_refused_with_the_reason_and_the_newer_one_works(
    portal: object, session: Session
) -> None:
    await session.requests(1)
    assert " 200 " in (await session.connect(1))[0]
    await session.requests(3)
    reason = await session.until_refused(1)
    assert "epoch 1" in reason
    assert "at 3" in reason
    for ask in (session.connect, session.asks_model, session.reads):
        for epoch in (1, 2):
            assert " 407 " in (await ask(epoch))[0]
    line, reader, _ = await session.connect(3)
    assert " 200 " in line
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)).startswith(b"INFO ")
    assert " 404 " in (await session.reads(3))[0]
    await session.requests(2)  # delivered late: nothing changes
    assert " 200 " in (await session.connect(3))[0]


async def test_a_terminated_sessions_token_is_refused(portal: object, session: Session) -> None:
    await session.requests(1)
    await session.releases(1)
    assert "released" in await session.until_refused(1)
    assert " 407 " in (await session.reads(1))[0]


async def test_a_portal_that_starts_late_knows_what_was_said_before(
    start_service: Callable[..., object], session: Session
) -> None:
    ended = session.another()
    await session.requests(1)
    await session.requests(2)
    await ended.requests(1)
    await ended.releases(1)
    start_service("portal")
    assert "replaced" in await session.until_refused(1)
    assert "released" in await ended.until_refused(1)
    assert " 200 " in (await session.connect(2))[0]


async def test_a_runner_of_a_session_nothing_is_known_of_is_served(portal: object, session: Session) -> None:
    assert " 200 " in (await session.connect(7))[0]
    await session.requests(7)
    line, reader, _ = await session.connect(7)
    assert " 200 " in line
    assert await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)


async def test_a_portal_without_a_broker_serves_all_the_same(
    start_service: Callable[..., object], session: Session
) -> None:
    start_service("portal", VALET_NATS_URL="nats://127.0.0.1:9")
    # a place nobody may go to: the token was taken
    assert " 403 " in (await session.connect(1, "127.0.0.1:1"))[0]


def test_a_released_runner_may_finish_what_it_has_open_until_it_is_cut() -> None:
    epochs, cut = Epochs(), list[str]()
    leave = epochs.admit(Bearer(session_id="S", epoch=2))
    leave.hold(lambda: cut.append("S"))
    epochs.admit(Bearer(session_id="T", epoch=1)).hold(lambda: cut.append("T"))
    epochs.released("S", 2)
    assert cut == []
    with pytest.raises(BadPortalRequest, match="released"):
        epochs.admit(Bearer(session_id="S", epoch=2))
    assert epochs.cut_released("S") == 1
    assert epochs.cut_released("S") == 0
    assert cut == ["S"]


def test_a_failed_session_that_goes_on_has_a_new_epoch() -> None:
    epochs = Epochs()
    epochs.requested("S", 1)
    epochs.released("S", 1)
    epochs.requested("S", 2)
    assert epochs.cut_released("S") == 0
    epochs.admit(Bearer(session_id="S", epoch=2))
    with pytest.raises(BadPortalRequest, match="replaced"):
        epochs.admit(Bearer(session_id="S", epoch=1))


def test_what_is_over_is_not_cut_and_not_remembered() -> None:
    epochs, cut = Epochs(), list[int]()
    with epochs.admit(Bearer(session_id="S", epoch=1)) as leave:
        leave.hold(lambda: cut.append(1))
    leave.end()
    epochs.requested("S", 2)
    assert cut == []
    assert not epochs._open


async def _to_the_end(reader: asyncio.StreamReader) -> None:
    """Raises `EOFError` or `ConnectionError` when the connection is cut."""
    while await reader.read(65536):
        pass
    raise EOFError
