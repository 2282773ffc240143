"""Claims about the tools that the sandbox answers itself. Real: git, files, sockets. Stand-ins: the gateway's control
socket, the portal's object store; events are caught where the log would take them."""

import asyncio
import base64
import hashlib
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import msgspec
import pytest
import pytest_asyncio
from valet_protocol.errors import Problem
from valet_protocol.events.agent import GitChanged
from valet_protocol.events.envelope import Data
from valet_protocol.events.machine import ChannelReplied, ImageShown, Tunnel, TunnelsChanged
from valet_protocol.ids import derived_id, is_ulid
from valet_protocol.sandbox_spec import ModelSpec, ProviderSpec, RunnerSpec
from valet_protocol.tools import TOOLS
from valet_runner.objects import Objects
from valet_runner.testing import condition, search_path
from valet_runner.testing_objects import ObjectServer
from valet_runner.tools import limits, local, testing
from valet_runner.tools.answers import Answers
from valet_runner.tools.running import Tools
from valet_runner.tools.serving import serving

SESSION = derived_id("a session")
TURN = derived_id("a turn")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Log:
    """Where events go."""

    def __init__(self) -> None:
        self.events: list[Data] = []
        self.held: list[asyncio.Future[int]] | None = None
        """Where a list is, events wait in it to be stored."""

    def say(self, items: Iterable[Data], *, id: str | None = None) -> asyncio.Future[int] | None:
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.events += items
        if self.held is None:
            stored.set_result(len(self.events))
        else:
            self.held.append(stored)
        return stored


class Sandbox:
    """One sandbox's own tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.log = Log()
        self.gateway = testing.ControlSocket(str(folder / "control.sock"), refused_ports=(9000,))
        self.objects = ObjectServer(folder / "portal.sock", token="token")
        self.spec = RunnerSpec(
            session_id=SESSION,
            epoch=1,
            nats_creds="",
            portal_socket=str(self.objects.path),
            portal_token="token",
            workspace=str(self.workspace),
            home=str(folder / "home"),
            repo=None,
            branch=None,
            model="scripted/one",
            providers=[
                ProviderSpec(id="scripted", models=[ModelSpec(id="one", name="One", context=9, cost_input=1.5)]),
                ProviderSpec(id="anthropic", builtin=True),
            ],
            opencode="",
            path=search_path(),
        )
        self.env = {"PATH": search_path(), "HOME": str(folder / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
        self.http: httpx.AsyncClient

    async def call(self, verb: str, path: str, body: object = None, **more: Any) -> Any:
        """The reply of a call that succeeds."""
        response = await self.http.request(verb, path, json=body, **more)
        assert response.status_code == 200, response.text
        return response.json()

    async def refused(self, verb: str, path: str, body: object = None) -> Problem:
        """The problem of a call that does not."""
        response = await self.http.request(verb, path, json=body)
        assert response.status_code >= 400, response.text
        return msgspec.json.decode(response.content, type=Problem)


@pytest.fixture
def folder() -> Iterator[Path]:
    # unix sockets' paths are short, pytest's folders are not
    with tempfile.TemporaryDirectory(prefix="vr-") as path:
        yield Path(path)


@pytest_asyncio.fixture
async def sandbox(folder: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(folder)
    sandbox.workspace.mkdir()
    (folder / "home").mkdir()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(sandbox.gateway.serving())
        await stack.enter_async_context(sandbox.objects)
        handlers = local.handlers(
            sandbox.spec,
            env=sandbox.env,
            base_commit=None,
            say=sandbox.log.say,
            objects=Objects(sandbox.spec.portal_socket, sandbox.spec.portal_token),
            control_socket=str(folder / "control.sock"),
        )
        await stack.enter_async_context(serve(sandbox, handlers))
        sandbox.http = await stack.enter_async_context(testing.http_client(folder / "tools.sock"))
        yield sandbox


def serve(sandbox: Sandbox, handlers: Any) -> Any:
    async def none(request: object) -> Any:
        raise AssertionError(f"{request} is for the sandbox itself")

    tools = Tools(
        session_id=SESSION,
        orchestrator=False,
        platform=none,
        local=handlers,
        turn=lambda: TURN,
        answers=Answers(sandbox.folder / "home"),
    )
    return serving(sandbox.folder / "tools.sock", tools)


async def test_every_tool_of_the_sandbox_has_somebody_who_answers_it(folder: Path) -> None:
    sandbox = Sandbox(folder)
    handlers = local.handlers(
        sandbox.spec, env={}, base_commit=None, say=sandbox.log.say, objects=Objects("", ""), control_socket=""
    )
    assert set(handlers) == {tool for tool in TOOLS if tool.served_by == "runner"}


# -- tunnels


async def test_a_tunnel_is_registered_listed_looked_at_and_deleted(sandbox: Sandbox) -> None:
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    body = {"name": "preview", "port": port, "description": "The page"}
    registered = await sandbox.call("POST", "/api/tunnels", body)
    assert registered == {
        "tunnel": {
            "name": "preview",
            "port": port,
            "protocol": "http",
            "description": "The page",
            "keep_prefix": False,
            "path": "/t/preview/",
        },
        "listening": True,
    }
    assert await sandbox.call("POST", "/api/tunnels", body) == registered
    assert (await sandbox.call("GET", "/api/tunnels"))["tunnels"] == [registered["tunnel"]]
    listener.close()
    await listener.wait_closed()
    assert (await sandbox.call("GET", "/api/tunnels/preview"))["listening"] is False
    assert await sandbox.call("DELETE", "/api/tunnels/preview") == {"name": "preview", "deleted": True}
    assert await sandbox.call("DELETE", "/api/tunnels/preview") == {"name": "preview", "deleted": False}
    assert (await sandbox.refused("GET", "/api/tunnels/preview")).code == "tunnel_not_found"
    there = TunnelsChanged(tunnels=[Tunnel(name="preview", port=port, description="The page")])
    gone = TunnelsChanged(tunnels=[])
    assert sandbox.log.events == [there, there, gone, gone]


async def test_a_port_that_the_gateway_refuses_is_refused_and_not_said_to_be_open(sandbox: Sandbox) -> None:
    refused = await sandbox.refused("POST", "/api/tunnels", {"name": "own", "port": 9000})
    assert (refused.status, refused.code) == (422, "port_refused")
    assert sandbox.log.events == []


async def test_a_gateway_that_is_gone_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GATEWAY_TIMEOUT", 0.3)
    sandbox = Sandbox(folder)
    handlers = local.handlers(
        sandbox.spec,
        env={},
        base_commit=None,
        say=sandbox.log.say,
        objects=Objects("", ""),
        control_socket=str(folder / "control.sock"),
    )
    async with serve(sandbox, handlers), testing.http_client(folder / "tools.sock") as sandbox.http:
        refused = await sandbox.refused("GET", "/api/tunnels")
        assert (refused.status, refused.code) == (503, "unavailable")
        assert "gateway" in refused.detail
        async with sandbox.gateway.serving():
            assert await sandbox.call("GET", "/api/tunnels") == {"tunnels": []}


# -- pictures


async def test_a_picture_of_the_workspace_is_stored_and_shown(sandbox: Sandbox) -> None:
    (sandbox.workspace / "page.png").write_bytes(PNG)
    stored = await sandbox.call("POST", "/api/image", {"path": "page.png", "caption": "The page"})
    assert stored["object"] == f"sessions/{SESSION}/images/{stored['image_id']}"
    assert is_ulid(stored["image_id"])
    assert sandbox.objects.stored == {stored["object"]: PNG}
    shown = ImageShown(
        turn_id=TURN,
        image_id=stored["image_id"],
        object=stored["object"],
        media_type="image/png",
        bytes=len(PNG),
        sha256=hashlib.sha256(PNG).hexdigest(),
        caption="The page",
    )
    assert sandbox.log.events == [shown]


ONE = ModelSpec(id="one")


@pytest.mark.parametrize(
    ("provider", "seen"),
    [
        (ProviderSpec(id="some", builtin=True), True),  # OpenCode knows
        (ProviderSpec(id="some", models=[ONE]), False),
        (ProviderSpec(id="some", models=[msgspec.structs.replace(ONE, images=True)]), True),
        (ProviderSpec(id="other", models=[msgspec.structs.replace(ONE, images=True)]), False),
    ],
)
async def test_a_picture_is_given_to_a_model_that_takes_pictures_and_any_other_is_told_that_it_does_not_see_it(
    folder: Path, provider: ProviderSpec, seen: bool
) -> None:
    sandbox = Sandbox(folder)
    spec = msgspec.structs.replace(sandbox.spec, model="some/one", providers=[provider])
    handlers = local.handlers(
        spec,
        env={},
        base_commit=None,
        say=sandbox.log.say,
        objects=Objects(str(sandbox.objects.path), "token"),
        control_socket="",
    )
    path = folder / "tools.sock"
    async with sandbox.objects, serve(sandbox, handlers), testing.mcp_client(path) as mcp:
        result = await mcp.call_tool("show_image", {"data": base64.b64encode(PNG).decode()})
    assert not result.is_error
    images = [content for content in result.content if isinstance(content, types.ImageContent)]
    assert [(base64.b64decode(image.data), image.mime_type) for image in images] == [(PNG, "image/png")] * seen
    texts = [content.text for content in result.content if isinstance(content, types.TextContent)]
    assert ["takes no pictures" in text for text in texts] == ([False] if seen else [False, True])


async def test_a_picture_in_base64_is_stored_once_for_one_key(sandbox: Sandbox) -> None:
    body = {"data": base64.b64encode(PNG).decode()}
    first = await sandbox.call("POST", "/api/image", body, headers={"Idempotency-Key": "k"})
    assert await sandbox.call("POST", "/api/image", body, headers={"Idempotency-Key": "k"}) == first
    assert list(sandbox.objects.stored) == [first["object"]]
    assert len(sandbox.log.events) == 1


async def test_a_picture_is_shown_once_the_object_store_is_back(sandbox: Sandbox) -> None:
    sandbox.objects.failures = [503]
    stored = await sandbox.call("POST", "/api/image", {"data": base64.b64encode(PNG).decode()})
    assert sandbox.objects.stored == {stored["object"]: PNG}


async def test_a_picture_that_is_refused_by_the_object_store_is_not_shown(sandbox: Sandbox) -> None:
    sandbox.objects.failures = [403]
    refused = await sandbox.refused("POST", "/api/image", {"data": base64.b64encode(PNG).decode()})
    assert refused.code == "not_stored"
    assert sandbox.log.events == []


async def test_what_is_no_picture_of_the_workspace_is_refused(sandbox: Sandbox) -> None:
    outside = sandbox.folder / "outside.png"
    outside.write_bytes(PNG)
    (sandbox.workspace / "link.png").symlink_to(outside)
    (sandbox.workspace / "text.png").write_text("no picture")
    (sandbox.workspace / "cut.png").write_bytes(PNG[:40])
    (sandbox.workspace / "large.png").write_bytes(PNG + bytes(limits.IMAGE_BYTES))
    os.mkfifo(sandbox.workspace / "pipe.png")
    for body, code in (
        ({}, "bad_field"),
        ({"path": "text.png", "data": "aaaa"}, "bad_field"),
        ({"data": "not base64!"}, "bad_field"),
        ({"data": base64.b64encode(b"no picture").decode()}, "not_an_image"),
        ({"path": "absent.png"}, "file_not_found"),
        ({"path": "."}, "not_a_file"),
        ({"path": "pipe.png"}, "not_a_file"),
        ({"path": "text.png"}, "not_an_image"),
        ({"path": "cut.png"}, "not_an_image"),
        ({"path": "large.png"}, "image_too_large"),
        ({"path": "../outside.png"}, "outside_workspace"),
        ({"path": str(outside)}, "outside_workspace"),
        ({"path": "link.png"}, "outside_workspace"),
        ({"path": "a\0b"}, "bad_field"),
    ):
        assert (await sandbox.refused("POST", "/api/image", body)).code == code, body
    assert sandbox.objects.stored == {}
    assert sandbox.log.events == []


# -- channels


async def test_a_reply_to_a_channel_is_an_event(sandbox: Sandbox) -> None:
    image = derived_id("an image")
    body = {"channel": "slack:C123:17.2", "text": "Done.", "image_ids": [image]}
    sent = await sandbox.call("POST", "/api/channel-reply", body)
    said = ChannelReplied(
        turn_id=TURN, reply_id=sent["reply_id"], channel="slack:C123:17.2", text="Done.", image_ids=[image]
    )
    assert sandbox.log.events == [said]


@pytest.mark.parametrize("channel", ["slack", "slack:", ":C1", "Slack:C1", "slack: C1", "slack:C 1"])
async def test_a_channel_of_unknown_shape_is_refused(sandbox: Sandbox, channel: str) -> None:
    refused = await sandbox.refused("POST", "/api/channel-reply", {"channel": channel, "text": "x"})
    assert refused.code == "unknown_channel"
    refused = await sandbox.refused(
        "POST", "/api/channel-reply", {"channel": "web:default", "text": "x", "image_ids": ["../x"]}
    )
    assert refused.code == "unknown_image"
    assert sandbox.log.events == []


async def test_nothing_is_said_to_be_done_before_the_log_has_it(sandbox: Sandbox) -> None:
    sandbox.log.held = []
    calling = asyncio.create_task(sandbox.call("POST", "/api/channel-reply", {"channel": "web:default", "text": "x"}))
    await condition(lambda: bool(sandbox.log.held))
    await sandbox.call("GET", "/api/models")
    assert not calling.done()
    sandbox.log.held[0].set_result(1)
    assert (await calling)["channel"] == "web:default"


# -- git, models, recordings


async def test_the_state_of_the_working_copy_is_told_and_logged(folder: Path) -> None:
    sandbox = Sandbox(folder)
    sandbox.workspace.mkdir()
    (folder / "home").mkdir()

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *words]
        done = subprocess.run(
            command, cwd=sandbox.workspace, env=sandbox.env, check=True, capture_output=True, timeout=20
        )
        return done.stdout.decode().strip()

    git("init", "-b", "main")
    git("commit", "--allow-empty", "-m", "First")
    base = git("rev-parse", "HEAD")
    handlers = local.handlers(
        sandbox.spec,
        env=sandbox.env,
        base_commit=base,
        say=sandbox.log.say,
        objects=Objects("", ""),
        control_socket="",
    )
    async with serve(sandbox, handlers), testing.http_client(folder / "tools.sock") as sandbox.http:
        git("switch", "-c", "topic")
        unchanged = {"branch": "topic", "head_commit": base, "base_commit": base, "files": [], "files_changed": 0}
        assert await sandbox.call("POST", "/api/git-state") == unchanged
        (sandbox.workspace / "new.txt").write_text("new\n")
        state = await sandbox.call("POST", "/api/git-state")
        assert (state["files"], state["files_changed"]) == (["new.txt"], 1)
    first, second = sandbox.log.events
    assert first == GitChanged(base_commit=base, head_commit=base, branch="topic", files=[], patch="")
    assert isinstance(second, GitChanged)
    assert "+new" in second.patch


async def test_the_models_are_those_of_the_session(sandbox: Sandbox) -> None:
    assert await sandbox.call("GET", "/api/models") == {
        "default": "scripted/one",
        "models": [
            {
                "model": "scripted/one",
                "title": "One",
                "context": 9,
                "reasoning": False,
                "cost_input": 1.5,
                "cost_output": 0.0,
            }
        ],
        "providers": ["anthropic"],
    }


async def test_a_sandbox_without_speech_recognition_says_so(sandbox: Sandbox) -> None:
    (sandbox.workspace / "talk.wav").write_bytes(b"RIFF")
    assert (await sandbox.refused("POST", "/api/transcribe", {"path": "talk.wav"})).code == "not_transcribed"
    assert (await sandbox.refused("POST", "/api/transcribe", {"path": "none.wav"})).code == "file_not_found"
