"""Claims about calls of the sandbox's own tools that are repeated after the runner was killed. Real: the broker, the
runner's way into the log, the tools in a process of their own, SIGKILL. Stand-ins: the gateway's control socket, the
portal's object store."""

import asyncio
import base64
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import msgspec
import pytest
from valet_protocol import codec, subjects
from valet_protocol.events.machine import ChannelReplied, ImageShown
from valet_protocol.ids import derived_id
from valet_protocol.tools import ChannelReply, Tool
from valet_runner.testing import WAIT, Broker, condition
from valet_runner.testing_objects import ObjectServer
from valet_runner.tools import testing
from valet_runner.tools.answers import Answers
from valet_runner.tools.running import Answer, Tools
from valet_runner.tools.serving import serving
from valet_service import broker
from valet_service.log_reader import LogReader

SESSION = derived_id("a session whose runner is killed")
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
CALLS: dict[str, Any] = {
    "image": {"path": "page.gif", "caption": "A page"},
    "channel-reply": {"channel": "web:default", "text": "Done."},
    "tunnels": {"name": "web", "port": 3000},
}

RUNNER = """
import asyncio, os, signal, sys, time
from pathlib import Path
import msgspec
from valet_protocol import ids
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner.objects import Objects
from valet_runner.publisher import Publisher
from valet_runner.tools import local
from valet_runner.tools.answers import Answers
from valet_runner.tools.running import Tools
from valet_runner.tools.serving import serving
from valet_service import broker
from valet_service.outbox import Outbox

folder, url, calls = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

class Killed(Answers):
    def keep(self, request, reply):
        global calls
        calls -= 1
        if not calls:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    spec = msgspec.json.decode(sys.argv[4], type=RunnerSpec)
    async with Outbox(lambda: broker.connect(url, name="killed", reconnect=False)) as outbox:
        now = lambda: time.time_ns() // 1_000_000
        publisher = Publisher(outbox, session_id=spec.session_id, epoch=spec.epoch, now_ms=now, new_id=ids.new_id)
        objects = Objects(spec.portal_socket, spec.portal_token)
        own = local.handlers(
            spec, env={}, base_commit=None, say=publisher.say, objects=objects,
            control_socket=str(folder / "control.sock"),
        )
        kept = (Killed if calls else Answers)(Path(spec.home))
        tools = Tools(
            session_id=spec.session_id, orchestrator=False, platform=None, local=own, turn=lambda: None, answers=kept
        )
        async with serving(folder / "tools.sock", tools):
            await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def running(folder: Path, url: str, epoch: int, *, kill_at: int) -> AsyncIterator[httpx.AsyncClient]:
    """The tools in a process of their own, which is killed when its answer of this number is to be noted."""
    spec = {
        "session_id": SESSION,
        "epoch": epoch,
        "nats_creds": "",
        "portal_socket": str(folder / "portal.sock"),
        "portal_token": "token",
        "workspace": str(folder / "workspace"),
        "home": str(folder / "home"),
        "repo": None,
        "branch": None,
        "model": "scripted/one",
        "providers": [],
        "opencode": "",
        "path": "",
    }
    (folder / "tools.sock").unlink(missing_ok=True)
    arguments = [str(folder), url, str(kill_at), msgspec.json.encode(spec).decode()]
    process = subprocess.Popen([sys.executable, "-c", RUNNER, *arguments])  # noqa: ASYNC220 - it is killed from here
    try:
        await condition(lambda: (folder / "tools.sock").exists() or process.poll() is not None)
        async with testing.http_client(folder / "tools.sock") as http:
            yield http
        if kill_at:
            assert process.wait(WAIT) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait(WAIT)


async def all_at_once(http: httpx.AsyncClient) -> list[Any]:
    """Every call, with its own key; none for one without an answer."""

    async def one(path: str) -> Any:
        try:
            response = await http.post(f"/api/{path}", json=CALLS[path], headers={"Idempotency-Key": path})
        except httpx.TransportError:
            return None
        assert response.status_code == 200, response.text
        return response.json()

    return await asyncio.gather(*map(one, CALLS))


async def logged(url: str) -> list[Any]:
    """What the session's log says."""
    nc = await broker.connect(url, name="test log")
    try:
        async with LogReader(nc, [subjects.session(SESSION)], start=1) as reader, asyncio.timeout(WAIT):
            found: list[Any] = []
            while not any(getattr(data, "tunnels", None) for data in found[-1:]) or len(found) < 3:
                found += [codec.decode(entry.payload, entry.seq).data for entry in await reader.batch(100)]
            return found
    finally:
        await broker.close(nc)


async def test_what_a_killed_runner_has_done_is_not_done_again_and_is_answered(nats: Broker, folder: Path) -> None:
    (folder / "workspace").mkdir()
    (folder / "home").mkdir()
    picture = folder / "workspace" / "page.gif"
    picture.write_bytes(GIF)
    nc = await broker.connect(nats.url, name="test stream")
    await broker.ensure_stream(nc)
    await broker.close(nc)
    gateway = testing.ControlSocket(str(folder / "control.sock"))
    async with gateway.serving(), ObjectServer(folder / "portal.sock", token="token") as objects:
        async with running(folder, nats.url, 1, kill_at=len(CALLS)) as http:
            assert None in await all_at_once(http)
        stored = dict(objects.stored)
        assert list(stored.values()) == [GIF]
        picture.write_bytes(b"something else by now")
        async with running(folder, nats.url, 2, kill_at=0) as http:
            image, reply, tunnel = await all_at_once(http)
            again = await all_at_once(http)
    assert [image, reply, tunnel] == again
    assert objects.stored == stored == {image["object"]: GIF}
    assert gateway.tunnels.keys() == {"web"}
    said = await logged(nats.url)
    (shown,) = [data for data in said if isinstance(data, ImageShown)]
    assert (shown.image_id, shown.sha256, shown.caption) == (image["image_id"], image["sha256"], "A page")
    (replied,) = [data for data in said if isinstance(data, ChannelReplied)]
    assert (replied.reply_id, replied.text) == (reply["reply_id"], "Done.")


# -- one runner after another, without the killing


class Life:
    """The tools of one runner on a home."""

    def __init__(self, folder: Path) -> None:
        self.done: list[Tool] = []
        self.path = folder / "life.sock"
        self._tools = Tools(
            session_id=SESSION,
            orchestrator=False,
            platform=self._none,
            local={ChannelReply: self._do},
            turn=lambda: None,
            answers=Answers(folder / "home"),
        )

    def serving(self) -> contextlib.AbstractAsyncContextManager[None]:
        return serving(self.path, self._tools)

    async def _none(self, request: Tool) -> Any:
        raise AssertionError(f"{request} is for the sandbox itself")

    async def _do(self, request: ChannelReply) -> Answer:
        self.done.append(request)
        return Answer(reply=msgspec.structs.replace(testing.reply(ChannelReply), reply_id=request.request_id))


async def test_an_answer_that_was_noted_is_given_by_the_next_runner_over_http_and_mcp(tmp_path: Path) -> None:
    arguments = {"channel": "web:default", "text": "x"}
    first, second = Life(tmp_path), Life(tmp_path)
    async with first.serving(), testing.http_client(first.path) as http:
        answer = await http.post("/api/channel-reply", json=arguments, headers={"Idempotency-Key": "one"})
    second = Life(tmp_path)
    async with second.serving(), testing.mcp_client(second.path) as mcp:
        results = [
            await mcp.call_tool("channel_reply", {**arguments, **more}, meta={"valet/idempotency-key": key})  # type: ignore[typeddict-unknown-key]
            for key, more in (("one", {}), ("two", {}), ("two", {}), ("two", {"text": "y"}), ("k" * 201, {}))
        ]
    texts = [block.text for result in results for block in result.content if isinstance(block, types.TextContent)]
    assert msgspec.json.decode(texts[0]) == answer.json()
    assert texts[1] == texts[2] != texts[0]
    assert [result.is_error for result in results] == [False, False, False, True, True]
    assert "idempotency_key_reused" in texts[3]
    assert "bad_key" in texts[4]
    assert (len(first.done), len(second.done)) == (1, 1)


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b"[]", b"\xff"])
def test_a_damaged_memory_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ".valet" / "tool-answers.json"
    path.parent.mkdir()
    path.write_bytes(content)
    request = ChannelReply(channel="web:default", text="x", request_id="one")
    answers = Answers(tmp_path)
    assert answers.find(request) is None
    answers.keep(request, testing.reply(ChannelReply))
    assert Answers(tmp_path).find(request) == testing.reply(ChannelReply)
