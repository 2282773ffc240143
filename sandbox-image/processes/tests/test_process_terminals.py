"""A real service: terminals and plain processes over HTTP and WebSocket. Nothing is fake."""

import asyncio
import base64
import json

import pytest
from valet_processes.client import Connection, ProcessesClient
from valet_processes.testing import ProcessService
from valet_protocol.errors import Conflict, NotFound, Refused, Unprocessable

SIZE = {"rows": 24, "cols": 80}
WAIT = 30.0
"""Seconds; generous, nothing here is about speed."""


async def read_until(connection: Connection, wanted: bytes) -> bytes:
    """Output up to and with `wanted`; the connection is not to be iterated again elsewhere meanwhile."""
    got = b""
    async with asyncio.timeout(WAIT):
        async for piece in connection:
            got += piece.data
            if wanted in got:
                return got
    raise AssertionError(f"ended without {wanted!r}: {got!r}")


async def read_all(connection: Connection) -> bytes:
    async with asyncio.timeout(WAIT):
        return b"".join([piece.data async for piece in connection])


async def ended(processes: ProcessesClient, key: str) -> bytes:
    """Wait for its end; all it wrote."""
    async with processes.connect(key) as connection:
        got = await read_all(connection)
        assert connection.exited
        return got


async def test_a_terminal_echoes_and_its_program_sees_a_terminal(processes: ProcessesClient):
    info = await processes.create(command="bash", args=["--norc"], pty=SIZE, label="Terminal 1")
    assert (info.pty, info.rows, info.cols, info.status, info.label) == (True, 24, 80, "running", "Terminal 1")
    async with processes.connect(info.id) as terminal:
        assert terminal.hello.process.id == info.id
        await terminal.write(b"tty && echo is=$((6*7)) $TERM\n")
        seen = await read_until(terminal, b"is=42 xterm-256color\r\n")
        assert b"tty && echo is=$((6*7))" in seen, "what is typed is echoed"
        assert b"/dev/pts/" in seen
        await terminal.write(b"exit 3\n")
        await read_all(terminal)
        assert terminal.exited
        assert (terminal.exited.exit_code, terminal.exited.signal) == (3, None)
        assert terminal.exited.offset == terminal.offset
        assert terminal.socket.close_code == 1000


async def test_a_resize_is_seen_by_the_program_from_either_side(processes: ProcessesClient):
    info = await processes.create(command="sh", pty=SIZE, tag="sized")
    async with processes.connect("sized") as terminal:
        await terminal.write(b"stty size\n")
        await read_until(terminal, b"24 80\r\n")
        assert (await processes.resize("sized", rows=33, cols=111)).rows == 33
        await terminal.write(b"stty size\n")
        await read_until(terminal, b"33 111\r\n")
        await terminal.control(type="resize", rows=50, cols=200)
        await terminal.write(b"stty size\n")
        await read_until(terminal, b"50 200\r\n")
    now = await processes.get(info.id)
    assert (now.rows, now.cols) == (50, 200)


@pytest.mark.parametrize("by", ["key", "request", "message"])
async def test_an_interrupt_reaches_the_program_in_front_of_a_terminal(processes: ProcessesClient, by: str):
    info = await processes.create(command="bash", args=["--norc"], pty=SIZE)
    async with processes.connect(info.id) as terminal:
        # job control gives the inner program a process group of its own: not that of the shell
        await terminal.write(b"sh -c 'echo ready-$((1+1)); exec sleep 1000'; echo code=$?-\n")
        await read_until(terminal, b"ready-2")
        if by == "key":
            await terminal.write(b"\x03")
        elif by == "request":
            await processes.signal(info.id, "SIGINT")
        else:
            await terminal.control(type="signal", signal="SIGINT")
        await terminal.write(b"echo after-$((2+2))\n")
        await read_until(terminal, b"after-4")


async def test_plain_output_keeps_its_streams_apart_and_one_offset(processes: ProcessesClient):
    script = "printf out1; sleep 0.2; printf err1 >&2; sleep 0.2; printf out2"
    info = await processes.create(command="sh", args=["-c", script])
    async with processes.connect(info.id) as connection:
        pieces = [piece async for piece in connection]
    assert [(piece.offset, piece.stream, piece.data) for piece in pieces] == [
        (0, 1, b"out1"),
        (4, 2, b"err1"),
        (8, 1, b"out2"),
    ]
    assert (await processes.output(info.id)).data == b"out1err1out2"
    assert (await processes.output(info.id, stream="stderr")).data == b"err1"
    assert (await processes.output(info.id, 6, stream="stdout")).data == b"out2"
    assert (await processes.get(info.id)).output_bytes == 12


async def test_input_reaches_a_plain_process_and_its_end_can_be_told(processes: ProcessesClient):
    info = await processes.create(command="cat")
    await processes.input(info.id, data="héllo\n")
    await processes.input(info.id, data_base64=base64.b64encode(b"\0\xff").decode(), close=True)
    assert await ended(processes, info.id) == "héllo\n".encode() + b"\0\xff"
    with pytest.raises(Conflict, match="ended"):
        await processes.input(info.id, data="more")

    info = await processes.create(command="cat")
    async with processes.connect(info.id) as connection:
        await connection.write(b"over the socket")
        await connection.control(type="close_stdin")
        assert await read_all(connection) == b"over the socket"
    terminal = await processes.create(command="cat", pty=SIZE)
    await processes.input(terminal.id, close=True)
    await ended(processes, terminal.id)
    assert (await processes.get(terminal.id)).exit_code == 0


async def test_much_input_arrives_whole_however_slowly_it_is_read(processes: ProcessesClient):
    info = await processes.create(command="sh", args=["-c", "sleep 0.3; wc -c"])
    async with processes.connect(info.id) as connection:
        for _ in range(100):
            await connection.write(b"x" * 100_000)
        await connection.control(type="close_stdin")
        assert int(await read_all(connection)) == 10_000_000
        assert not connection.refused


async def test_what_a_connected_client_asks_wrongly_is_refused_and_the_connection_goes_on(processes: ProcessesClient):
    info = await processes.create(command="cat")
    async with processes.connect(info.id) as connection:
        for message in (
            {"type": "resize", "rows": 1, "cols": 1},
            {"type": "signal", "signal": "SIGFOO"},
            {"type": "?"},
        ):
            await connection.control(**message)
        await connection.socket.send_str("no json")
        await connection.write(b"still here")
        await connection.control(type="close_stdin")
        assert await read_all(connection) == b"still here"
        assert [error.code for error in connection.refused] == ["no_terminal", "bad_signal", "bad_value", "bad_json"]


async def test_the_environment_is_what_the_spec_and_the_request_say_and_no_more(
    processes: ProcessesClient, shared_service: ProcessService
):
    info = await processes.create(command="env", env={"MINE": "a=b c", "HOME": "/elsewhere"})
    lines = dict(line.split("=", 1) for line in (await ended(processes, info.id)).decode().splitlines())
    assert lines == {
        **shared_service.spec.environment,
        "MINE": "a=b c",
        "HOME": "/elsewhere",
        "VALET_PROCESS": info.id,
    }


async def test_a_process_starts_in_the_workspace_or_where_it_is_told(
    processes: ProcessesClient, shared_service: ProcessService
):
    (shared_service.workspace / "inner").mkdir(exist_ok=True)
    for cwd, wanted in ((None, ""), ("inner", "/inner"), ("/", None)):
        info = await processes.create(command="pwd", cwd=cwd)
        assert info.cwd == ("/" if wanted is None else f"{shared_service.workspace}{wanted}")
        assert (await ended(processes, info.id)).decode().strip() == info.cwd


CANNOT_START = [
    ({"command": "no-such-program"}, "command_not_found", "PATH="),
    ({"command": "ls -l"}, "command_not_found", "args"),
    ({"command": "./missing"}, "command_not_found", "missing"),
    ({"command": "/etc/passwd"}, "not_executable", "executable"),
    ({"command": "./not-a-program"}, "not_executable", "#!"),
    ({"command": "./no-interpreter"}, "not_executable", "interpreter"),
    ({"command": "ls", "cwd": "/nowhere/at/all"}, "cwd_missing", "/nowhere/at/all"),
    ({"command": "ls", "cwd": "/etc/passwd"}, "cwd_missing", "directory"),
    ({"command": "ls", "args": ["x" * 200_000]}, "too_long", "use a file"),
    ({"command": "ls", "env": {"A": "x" * 200_000}}, "too_long", "kernel"),
    ({"command": "ls", "tag": "no/slash"}, "bad_tag", "letters"),
    ({"command": "ls", "pty": {"rows": 0, "cols": 80}}, "bad_size", "rows"),
    ({"command": "ls", "pty": {"rows": 24}}, "bad_value", "cols"),
    ({"command": "ls", "shell": True}, "bad_value", "shell"),
    ({"command": "ls", "argv": ["ls"]}, "bad_value", "either"),
    ({"command": "ls", "env": {"A": 1}}, "bad_value", "str"),
]


@pytest.mark.parametrize("on_terminal", [False, True])
async def test_what_cannot_be_started_is_a_422_that_says_why(
    processes: ProcessesClient, shared_service: ProcessService, on_terminal: bool
):
    for name, text in (("not-a-program", "\x01\x02"), ("no-interpreter", "#!/no/such/interpreter\n")):
        (shared_service.workspace / name).write_text(text)
        (shared_service.workspace / name).chmod(0o755)
    for request, code, words in CANNOT_START:
        with pytest.raises(Refused) as refused:
            await processes.create(**({"pty": SIZE} if on_terminal else {}) | request)
        assert (refused.value.status, refused.value.code) == (422, code), request
        assert words in refused.value.detail
    assert await processes.list() == [], "nothing is left of it"


BAD_ROUTES = [
    ("GET", "/v1/processes/none", None, 404, "process_not_found"),
    ("GET", "/v1/processes/none/connect", None, 404, "process_not_found"),
    ("DELETE", "/v1/processes/none", None, 404, "process_not_found"),
    ("GET", "/v1/processes?status=dead", None, 422, "bad_query"),
    ("GET", "/v1/processes?colour=red", None, 422, "bad_query"),
    ("GET", "/v1/events?after=x", None, 422, "bad_after"),
    ("GET", "/v1/other", None, 404, "no_such_route"),
    ("PUT", "/v1/processes", "{}", 405, "method_not_allowed"),
    ("POST", "/v1/processes", "{", 400, "bad_json"),
    ("POST", "/v1/processes", "x" * (3 << 20), 413, "body_too_large"),
    ("GET", "/v1/processes/here/connect", None, 400, "websocket_wanted"),
    ("HEAD", "/v1/events", None, 405, None),
    ("OPTIONS", "/v1/processes", None, 405, "method_not_allowed"),
    ("POST", "/v1/processes", "", 400, "bad_json"),
    ("GET", "/v1/processes/here/connect?offset=9", None, 422, "offset_ahead"),
    ("GET", "/v1/processes/here/output?offset=-1", None, 422, "bad_offset"),
    ("GET", "/v1/processes/here/output?stream=both", None, 422, "bad_stream"),
    ("POST", "/v1/processes/here/signal", '{"signal":"99"}', 422, "bad_signal"),
    ("POST", "/v1/processes/here/signal", '{"signal":0}', 422, "bad_signal"),
    ("POST", "/v1/processes/here/signal", '{"signal":"SIGSIGINT"}', 422, "bad_signal"),
    ("POST", "/v1/processes/here/resize", '{"rows":1,"cols":1}', 409, "no_terminal"),
    ("POST", "/v1/processes/here/input", "{}", 422, "bad_value"),
    ("POST", "/v1/processes/here/input", '{"data":"' + "x" * (1 << 20) + 'y"}', 413, "input_too_large"),
    ("PATCH", "/v1/processes/here", '{"label":' + json.dumps("x" * 999) + "}", 422, "bad_value"),
    ("PATCH", "/v1/processes/here", '{"tag":"other"}', 422, "bad_value"),
]


async def test_every_bad_request_is_a_problem_document_with_its_own_code(processes: ProcessesClient):
    await processes.create(command="cat", tag="here")
    for method, path, body, status, code in BAD_ROUTES:
        async with processes.session.request(method, "http://x" + path, data=body) as response:
            content = await response.read()
            assert response.status == status, (method, path)
            assert ("Allow" in response.headers) == (status == 405)
            if method != "HEAD":
                problem = json.loads(content)
                assert problem["code"] == code, (method, path)
                assert response.content_type == "application/problem+json"
                assert problem["detail"]


async def test_program_and_arguments_may_be_one_list(processes: ProcessesClient):
    made = await processes.create(argv=["sh", "-c", "exit 3"])
    assert (made.command, made.args) == ("sh", ["-c", "exit 3"])
    await ended(processes, made.id)
    assert (await processes.get(made.id)).exit_code == 3


async def test_a_tag_finds_its_process_and_no_two_running_ones_have_it(processes: ProcessesClient):
    first = await processes.create(command="cat", tag="web", session_id="s1")
    with pytest.raises(Conflict, match=first.id):
        await processes.create(command="cat", tag="web")
    with pytest.raises(Unprocessable, match="sandbox of session s1"):
        await processes.create(command="cat", session_id="s2")
    await processes.create(command="true", tag="other", pty=SIZE)
    await ended(processes, "other")
    assert [each.id for each in await processes.list(tag="web")] == [first.id]
    assert [each.id for each in await processes.list(session_id="s1")] == [first.id]
    assert [each.id for each in await processes.list(status="running")] == [first.id]
    assert [each.tag for each in await processes.list(pty="true")] == ["other"]
    assert [each.tag for each in await processes.list(pty="false", status="exited")] == []
    await processes.delete("web")
    again = await processes.create(command="cat", tag="web")
    assert (await processes.get("web")).id == again.id


async def test_there_may_be_only_so_many_processes_and_ended_ones_make_room(
    processes: ProcessesClient, shared_service: ProcessService
):
    running = [await processes.create(command="cat") for _ in range(64)]
    with pytest.raises(Refused) as refused:
        await processes.create(command="cat")
    assert (refused.value.status, refused.value.code) == (429, "too_many_processes")
    await processes.input(running[0].id, close=True)
    await ended(processes, running[0].id)
    await processes.create(command="cat")
    with pytest.raises(NotFound):
        await processes.get("proc_none")
