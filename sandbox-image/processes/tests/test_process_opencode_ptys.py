"""OpenCode's `/pty` routes on our processes, checked with what its clients send and expect. A real service."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from valet_processes.client import ProcessesClient
from valet_processes.testing import ProcessService

WAIT = 30.0

PTY_KEYS = {"id", "title", "command", "args", "cwd", "status", "pid"}
"""Of OpenCode's `Pty`; nothing else is allowed but `exitCode`."""


async def ask(processes: ProcessesClient, method: str, path: str, body: object = None, **more) -> tuple[int, Any]:
    async with processes.session.request(method, "http://x" + path, json=body, **more) as response:
        return response.status, json.loads(await response.read())


async def create(processes: ProcessesClient, **body: object) -> dict[str, Any]:
    status, pty = await ask(processes, "POST", "/pty", body)
    assert status == 200, pty
    return pty


@contextlib.asynccontextmanager
async def connect(
    processes: ProcessesClient, id: str, query: str = ""
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with processes.session.ws_connect(f"http://x/pty/{id}/connect{query}") as socket:
        yield socket


async def read_until(socket: aiohttp.ClientWebSocketResponse, wanted: str) -> tuple[str, int | None]:
    """Text up to and with `wanted`, and the cursor that was told meanwhile."""
    text, cursor = "", None
    async with asyncio.timeout(WAIT):
        while wanted not in text:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.TEXT:
                text += message.data
            else:
                assert message.type is aiohttp.WSMsgType.BINARY, f"{message} after {text!r}"
                assert message.data[:1] == b"\0"
                cursor = json.loads(message.data[1:])["cursor"]
    return text, cursor


async def test_a_terminal_is_made_listed_changed_and_removed_in_opencodes_shapes(
    processes: ProcessesClient, shared_service: ProcessService
):
    assert await ask(processes, "GET", "/pty?directory=/tmp") == (200, [])
    pty = await create(processes, command="/bin/bash", args=["--norc"], title="t1", env={"A": "b"})
    assert set(pty) == PTY_KEYS
    assert re.match("^pty", pty["id"])
    assert (pty["title"], pty["command"], pty["args"]) == ("t1", "/bin/bash", ["--norc", "-l"])
    assert (pty["cwd"], pty["status"]) == (str(shared_service.workspace), "running")
    path = f"/pty/{pty['id']}"
    assert await ask(processes, "GET", path) == (200, pty)
    assert await ask(processes, "GET", "/pty") == (200, [pty])
    changed = {"title": "t2", "size": {"rows": 30, "cols": 100}}
    assert await ask(processes, "PUT", path, changed) == (200, {**pty, "title": "t2"})
    ours = (await processes.list(pty="true"))[0]
    assert (ours.label, ours.rows, ours.cols) == ("t2", 30, 100)
    assert await ask(processes, "DELETE", path) == (200, True)
    status, gone = await ask(processes, "GET", path)
    assert (status, gone) == (404, {"_tag": "PtyNotFoundError", "ptyID": pty["id"], "message": gone["message"]})


async def test_a_body_may_be_missing_and_a_terminal_is_then_a_shell(processes: ProcessesClient):
    async with processes.session.post("http://x/pty", params={"directory": "/"}) as response:
        pty = json.loads(await response.read())
    assert pty["cwd"] == "/"
    assert pty["args"] == ["-l"]
    assert pty["title"].startswith("Terminal ")
    status, shells = await ask(processes, "GET", "/pty/shells")
    assert status == 200
    assert all(set(shell) == {"path", "name", "acceptable"} for shell in shells)
    assert pty["command"] in [shell["path"] for shell in shells] + ["sh"]


async def test_bad_requests_have_opencodes_shape(processes: ProcessesClient):
    for method, path, body in (
        ("POST", "/pty", {"command": "no-such-program"}),
        ("POST", "/pty", {"colour": "red"}),
        ("POST", "/pty", {"cwd": "/nowhere"}),
    ):
        status, error = await ask(processes, method, path, body)
        assert status == 400
        assert error["_tag"] == "InvalidRequestError"
        assert set(error) == {"_tag", "message", "kind"}
    plain = await processes.create(command="cat")
    for id in ("pty_none", plain.id, plain.id.replace("proc_", "pty_")):
        status, error = await ask(processes, "GET", f"/pty/{id}")
        assert (status, error["_tag"], error["message"]) == (404, "PtyNotFoundError", f"PTY session not found: {id}")
        assert (await ask(processes, "GET", f"/pty/{id}/connect"))[1]["name"] == "NotFoundError"


async def test_keystrokes_and_output_are_text_and_the_cursor_counts_as_javascript_does(processes: ProcessesClient):
    pty = await create(processes, command="cat", title="echo")
    async with connect(processes, pty["id"]) as socket:
        message = await socket.receive(WAIT)
        assert message.data == b'\0{"cursor":0}', "nothing to replay"
        await socket.send_str("né𝄞x\r")
        text, _ = await read_until(socket, "x\r\nné𝄞x\r\n")
    seen = len(text.encode("utf-16-le")) // 2
    async with connect(processes, pty["id"]) as socket:
        replayed, cursor = await read_until(socket, "x\r\nné𝄞x\r\n")
        assert replayed == text
        assert json.loads((await socket.receive(WAIT)).data[1:]) == {"cursor": seen}
    at = len("né𝄞x\r\n".encode("utf-16-le")) // 2
    async with connect(processes, pty["id"], f"?cursor={at}") as socket:
        assert (await socket.receive(WAIT)).data == "né𝄞x\r\n"
    async with connect(processes, pty["id"], "?cursor=-1") as socket:
        assert json.loads((await socket.receive(WAIT)).data[1:]) == {"cursor": seen}
        await socket.send_str("new\r")
        text, cursor = await read_until(socket, "new\r\nnew\r\n")
        assert text == "new\r\nnew\r\n"
        assert cursor is None


async def test_the_socket_of_an_ended_terminal_closes_normally_and_it_is_gone(processes: ProcessesClient):
    pty = await create(processes, command="sh", args=["-c", "read x; echo end-$x; exit 7"])
    async with connect(processes, pty["id"]) as socket:
        await socket.send_str("now\r")
        await read_until(socket, "end-now\r\n")
        async with asyncio.timeout(WAIT):
            while (await socket.receive()).type is not aiohttp.WSMsgType.CLOSE:
                pass
        assert socket.close_code == 1000
    assert (await ask(processes, "GET", f"/pty/{pty['id']}"))[0] == 404
    assert await ask(processes, "GET", "/pty") == (200, [])
    assert [info.exit_code for info in await processes.list(pty="true")] == [7], "with us its record stays"


async def test_a_ticket_is_given_for_the_header_and_lets_in_once(processes: ProcessesClient):
    pty = await create(processes, command="cat")
    path = f"/pty/{pty['id']}/connect-token"
    status, refused = await ask(processes, "POST", path)
    assert (status, refused["_tag"]) == (403, "PtyForbiddenError")
    status, ticket = await ask(processes, "POST", path, headers={"x-opencode-ticket": "1"})
    assert (status, set(ticket), ticket["expires_in"]) == (200, {"ticket", "expires_in"}, 60)
    async with connect(processes, pty["id"], f"?ticket={ticket['ticket']}") as socket:
        assert (await socket.receive(WAIT)).type is aiohttp.WSMsgType.BINARY
    with pytest.raises(aiohttp.WSServerHandshakeError) as again:
        async with connect(processes, pty["id"], f"?ticket={ticket['ticket']}"):
            pass
    assert again.value.status == 403
