"""The portal as a process, used from inside a real sandbox (and, for odd cases, straight at its socket)."""

import asyncio
import json
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import nats
import pytest
from valet_protocol import subjects
from valet_sandbox_controller import portal_token
from valet_sandbox_controller.testing import LocalProvider, answer, local_provider, start, until
from valet_service import broker, credentials

SESSION = "01JABCDEFGHJKMNPQRSTVWXYZ0"

INSIDE = """
import base64, os, socket, sys, time
spec = json.load(sys.stdin)
def portal(request, body=b''):
    s = socket.socket(socket.AF_UNIX); s.settimeout(10)
    s.connect('/run/valet/portal/portal.sock')
    s.sendall(request.encode() + body)
    return s
def connect(target, auth=None):
    auth = 'Bearer ' + spec['token'] if auth is None else auth
    s = portal(f'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\nProxy-Authorization: {auth}\\r\\n\\r\\n')
    head = b''
    while b'\\r\\n\\r\\n' not in head:
        got = s.recv(1)
        if not got: break
        head += got
    return s, head.decode()
def rest(s):
    data = b''
    while got := s.recv(65536): data += got
    return data.decode()
"""


class FakeProvider:
    """An OpenAI-compatible server that streams on command, and remembers what it was sent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.go_on = asyncio.Event()
        self.abandoned = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *fields = head.strip().split("\r\n")
                named = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
                body = await reader.readexactly(int(named.get("content-length", "0")))
                self.requests.append((line, named, body))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                writer.write(b"b\r\ndata: one\n\n\r\n")
                await writer.drain()
                waiting = asyncio.ensure_future(self.go_on.wait())
                closed = asyncio.ensure_future(reader.read(1))
                done, _ = await asyncio.wait((waiting, closed), return_when=asyncio.FIRST_COMPLETED)
                if closed in done:
                    self.abandoned.set()
                    waiting.cancel()
                    return
                closed.cancel()
                await asyncio.gather(closed, return_exceptions=True)
                writer.write(b"b\r\ndata: two\n\n\r\n0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def model() -> AsyncIterator[FakeProvider]:
    fake = FakeProvider()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    yield fake
    server.close()


@pytest.fixture
def portal(servers, start_service, model: FakeProvider, tmp_path: Path):
    config = tmp_path / "valet.toml"
    config.write_text(
        f"""
[providers.fake]
base_url = "http://127.0.0.1:{model.port}/v1"
api_key_env = "FAKE_KEY"
models = ["m"]

[providers.down]
base_url = "http://127.0.0.1:{_closed_port()}/v1"
models = ["m"]
"""
    )
    return start_service("portal", VALET_CONFIG=str(config), FAKE_KEY="the-real-key")


@pytest.fixture
def sandboxes(servers, portal) -> LocalProvider:
    return local_provider("bwrap", servers.places.data, servers.places.run)


@pytest.fixture
def spec(servers) -> bytes:
    secret = (servers.places.keys / "secret").read_bytes()
    account = credentials.key_from_seed((servers.places.keys / "account.seed").read_text())
    token = portal_token.mint(secret, SESSION, 1, int(time.time()) + 60)
    creds = credentials.creds(
        account, "runner", credentials.runner_permissions(SESSION), entropy=b"7" * 32, now=int(time.time())
    )
    return msgspec.json.encode({"token": token, "creds": creds})


async def test_a_models_answer_streams_through_with_the_real_key(
    sandboxes: LocalProvider, model: FakeProvider, spec: bytes
) -> None:
    task = (
        INSIDE
        + """
body = json.dumps({'model': 'm', 'pad': 'x' * 300000}).encode()
s = portal('POST /model/fake/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n'
           f'Authorization: Bearer {spec["token"]}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n', body)
data = b''
while b'data: one' not in data: data += s.recv(65536)
open('first', 'w').close()
while b'0\\r\\n\\r\\n' not in data: data += s.recv(65536)
answer([data.decode(), spec['token']])
"""
    )
    pending = asyncio.create_task(answer(sandboxes, SESSION, task, list[str], runner_spec=spec))
    # the first chunk arrives while the provider is still holding back the second
    await until((sandboxes.storage.of(SESSION).workspace / "first").exists)
    model.go_on.set()
    received, token = await pending
    assert received.startswith("HTTP/1.1 200 OK")
    assert received.count("data: ") == 2
    line, fields, body = model.requests[0]
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert fields["authorization"] == "Bearer the-real-key"
    assert fields["host"] == f"127.0.0.1:{model.port}"
    assert len(body) > 300_000
    assert token not in str(fields)


async def test_a_connection_serves_one_request_after_another(portal, servers, model: FakeProvider, spec: bytes) -> None:
    model.go_on.set()
    reader, writer = await _socket(servers)
    for _ in range(3):
        writer.write(_model_request(spec))
        received = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 10)
        assert b"data: two" in received
    assert len(model.requests) == 3
    writer.close()


async def test_an_agent_that_hangs_up_ends_the_providers_request(
    portal, servers, model: FakeProvider, spec: bytes
) -> None:
    reader, writer = await _socket(servers)
    writer.write(_model_request(spec))
    await asyncio.wait_for(reader.readuntil(b"data: one"), 10)
    writer.close()
    await asyncio.wait_for(model.abandoned.wait(), 5)


async def test_a_provider_that_is_down_is_an_error_the_sdk_understands(portal, servers, spec: bytes) -> None:
    reader, writer = await _socket(servers)
    writer.write(_model_request(spec, provider="down"))
    received = await asyncio.wait_for(reader.read(), 10)
    assert received.startswith(b"HTTP/1.1 502 ")
    error = json.loads(received.partition(b"\r\n\r\n")[2])["error"]
    assert "'down' cannot be reached" in error["message"]
    assert error["code"] == "provider_unreachable"
    writer.close()


async def test_a_model_request_without_the_token_is_refused(portal, servers, model: FakeProvider) -> None:
    reader, writer = await _socket(servers)
    writer.write(_model_request(b'{"token": "wrong"}'))
    received = await asyncio.wait_for(reader.read(), 10)
    assert received.startswith(b"HTTP/1.1 401 ")
    assert model.requests == []


async def test_connect_refuses_the_hosts_loopback_and_metadata_and_wrong_tokens(
    sandboxes: LocalProvider, model: FakeProvider, spec: bytes
) -> None:
    task = (
        INSIDE
        + f"""
hosts = ['127.0.0.1', 'localhost', '[::1]', '169.254.169.254', '0.0.0.0']
targets = [host + ':{model.port}' for host in hosts]
answer([connect(t)[1].split(' ')[1] for t in targets] + [connect('1.1.1.1:80', auth='Bearer x')[1].split(' ')[1],
       connect('1.1.1.1:80', auth='')[1].split(' ')[1], connect('nats.valet:4222', auth='Bearer x')[1].split(' ')[1]])
"""
    )
    codes = await answer(sandboxes, SESSION, task, list[str], runner_spec=spec)
    assert codes == ["403"] * 5 + ["407"] * 3
    assert model.requests == []


async def test_connect_and_plain_http_reach_an_address_of_the_network(sandboxes: LocalProvider, spec: bytes) -> None:
    address = _own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(head), head))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, address, 0)
    port = server.sockets[0].getsockname()[1]
    task = (
        INSIDE
        + f"""
basic = base64.b64encode(b'valet:' + spec['token'].encode()).decode()
tunnel, head = connect('{address}:{port}', auth='Basic ' + basic)
tunnel.sendall(b'GET /tunnel HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n')
plain = portal('GET http://{address}:{port}/plain?x=1 HTTP/1.1\\r\\nHost: {address}:{port}\\r\\n'
               f'Proxy-Authorization: Bearer {{spec["token"]}}\\r\\n\\r\\n')
answer([head.split('\\r\\n')[0], rest(tunnel), rest(plain), spec['token']])
"""
    )
    established, tunnel, plain, token = await answer(sandboxes, SESSION, task, list[str], runner_spec=spec)
    assert established == "HTTP/1.1 200 Connection established"
    assert "GET /tunnel HTTP/1.1" in tunnel
    assert "GET /plain?x=1 HTTP/1.1" in plain
    assert token not in plain
    server.close()


async def test_a_runner_speaks_to_the_broker_through_the_portal_with_its_own_credentials(
    sandboxes: LocalProvider, servers, spec: bytes
) -> None:
    nc = await nats.connect(servers.broker.url, user_credentials=str(servers.creds("session-ledger")))
    await broker.ensure_stream(nc)
    subject = subjects.event(SESSION, "agent", "runner_ready")
    other = subjects.event("01JZZZZZZZZZZZZZZZZZZZZZZZ", "agent", "runner_ready")
    task = (
        INSIDE
        + f"""
import asyncio, nats, threading
listener = socket.create_server(('127.0.0.1', 0))
def relay():
    while True:
        inner, _ = listener.accept()
        outer, head = connect('nats.valet:4222')
        assert ' 200 ' in head, head
        outer.settimeout(None)
        def pump(a, b):
            while got := a.recv(65536): b.sendall(got)
        for a, b in ((inner, outer), (outer, inner)): threading.Thread(target=pump, args=(a, b), daemon=True).start()
threading.Thread(target=relay, daemon=True).start()
open('/home/agent/creds', 'w').write(spec['creds'])
async def main():
    refused = []
    async def note(error): refused.append(str(error))
    nc = await nats.connect(f'nats://127.0.0.1:{{listener.getsockname()[1]}}', user_credentials='/home/agent/creds',
                            inbox_prefix='_INBOX_{SESSION}', error_cb=note, allow_reconnect=False)
    js = nc.jetstream()
    ack = await js.publish({subject!r}, b'from inside')
    took = []
    for _ in range(50):
        began = time.perf_counter(); await nc.flush(); took.append(time.perf_counter() - began)
    await nc.publish({other!r}, b'not mine'); await nc.flush(); await nc.flush()
    answer([ack.seq, sorted(took)[25] * 1e6, ' '.join(refused)])
asyncio.run(main())
"""
    )
    seq, median_us, refused = await answer(sandboxes, SESSION, task, list[int | float | str], runner_spec=spec)
    stored = await nc.jetstream().get_msg(subjects.STREAM, int(seq))
    assert (stored.subject, stored.data) == (subject, b"from inside")
    assert "permissions violation" in str(refused).lower()
    print(f"round trip through two relays: {median_us:.0f} µs")
    await broker.close(nc)


async def test_a_restarted_portal_serves_the_sandboxes_that_already_run(
    sandboxes: LocalProvider, portal, start_service: Callable[..., object], spec: bytes
) -> None:
    task = (
        "import json, os, time\ndef answer(v): open('answer.json.new', 'w').write(json.dumps(v)); "
        "os.rename('answer.json.new', 'answer.json')\n"
        + INSIDE
        + """
first = connect('127.0.0.1:1')[1]
open('started', 'w').close()
while not os.path.exists('go'): time.sleep(0.01)
answer([first, connect('127.0.0.1:1')[1]])
"""
    )
    ref = await start(sandboxes, "S9", task, runner_spec=spec)
    workspace = sandboxes.storage.of("S9").workspace
    await until((workspace / "started").exists)
    portal.process.kill()
    portal.process.wait()
    start_service("portal")
    (workspace / "go").touch()
    await until((workspace / "answer.json").exists)
    first, second = msgspec.json.decode((workspace / "answer.json").read_bytes(), type=list[str])
    assert " 403 " in first
    assert " 403 " in second
    await sandboxes.terminate(ref, grace=0)


async def test_a_sandbox_that_does_not_read_does_not_fill_the_portals_memory(portal, servers, spec: bytes) -> None:
    address = _own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    offered = 200 << 20
    taken = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        while taken < offered:
            writer.write(bytes(1 << 20))
            await writer.drain()
            taken += 1 << 20
        writer.close()

    server = await asyncio.start_server(pour, address, 0)
    port = server.sockets[0].getsockname()[1]
    token = msgspec.json.decode(spec, type=dict[str, str])["token"]
    reader, writer = await _socket(servers)
    before = _memory(portal.process.pid)
    writer.write(f"CONNECT {address}:{port} HTTP/1.1\r\nProxy-Authorization: Bearer {token}\r\n\r\n".encode())
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    last = -1
    while last != taken:  # until nothing more is taken: the pipe is full from end to end
        last = taken
        await asyncio.sleep(0.3)
    assert taken < offered / 4
    assert _memory(portal.process.pid) - before < 20 << 20
    total = 0
    while chunk := await asyncio.wait_for(reader.read(1 << 20), 10):
        total += len(chunk)
    assert total == offered
    writer.close()
    server.close()


@pytest.mark.parametrize("text", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nbroken\r\n\r\n", b"x" * 70_000])
async def test_garbage_is_answered_and_the_connection_closed(portal, servers, text: bytes) -> None:
    reader, writer = await _socket(servers)
    writer.write(text)
    received = await asyncio.wait_for(reader.read(), 10)
    assert received[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431")
    writer.close()


async def _socket(servers) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(str(servers.places.run / "portal" / "portal.sock"))


def _model_request(spec: bytes, provider: str = "fake") -> bytes:
    token = msgspec.json.decode(spec, type=dict[str, str])["token"]
    return (
        f"POST /model/{provider}/chat/completions HTTP/1.1\r\nHost: x\r\nx-api-key: {token}\r\n"
        "Content-Length: 2\r\n\r\n{}"
    ).encode()


def _memory(pid: int) -> int:
    """Resident bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _own_address() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: asks which of our addresses would be used
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") else address
