"""Claims about pictures in what the real OpenCode, configured by us, asks of a model. Real: OpenCode, the tools.
Stand-ins: the model, the object store, the log."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx
from aiohttp import ClientSession, web
from valet_local.model import Scenario, ScriptedModel
from valet_local.model.scenario import Step, Text, Turn
from valet_local.model.scenario import Tool as Use
from valet_protocol.events.envelope import Data
from valet_protocol.events.facts import SessionPolicy
from valet_protocol.ids import derived_id
from valet_protocol.sandbox_spec import ModelSpec, ProviderSpec, RunnerSpec
from valet_runner import opencode_config
from valet_runner.objects import Objects
from valet_runner.testing_objects import ObjectServer
from valet_runner.tools import local, testing
from valet_runner.tools.answers import Answers
from valet_runner.tools.running import Tools
from valet_runner.tools.serving import serving

SESSION = derived_id("a session with pictures")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = "data:image/png;base64," + base64.b64encode(PNG).decode()

DONE = Step(actions=(Text(text="Done."),))
SCENARIO = Scenario(
    turns=(
        Turn(
            when="^show it$", steps=(Step(actions=(Use(name="valet_show_image", arguments={"path": "a.png"}),)), DONE)
        ),
        Turn(when=".", steps=(DONE,)),
    )
)


class Listener:
    """Hands requests on to a model and keeps their messages."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self.asked: list[tuple[str, str]] = []
        """Model and messages (JSON) of every request, titles aside."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application(client_max_size=16 << 20)
        app.add_routes([web.post("/{path:.*}", self._pass_on)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = json.loads(body)
        if asked.get("tools"):
            self.asked.append((asked["model"], json.dumps(asked["messages"])))
        async with (
            ClientSession() as http,
            http.post(f"{self._model.url}/chat/completions", data=body, headers=request.headers) as answer,
        ):
            return web.Response(body=await answer.read(), content_type=answer.content_type, status=answer.status)


def say(items: Iterable[Data], *, id: str | None = None) -> "asyncio.Future[int]":
    stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stored.set_result(1)
    return stored


async def none(request: object) -> Any:
    raise AssertionError(f"{request} is for the sandbox itself")


@contextlib.asynccontextmanager
async def opencode_of(spec: RunnerSpec, binary: Path, folder: Path, model_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """OpenCode with our configuration and the sandbox's own tools."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(ObjectServer(Path(spec.portal_socket), token="token"))
        own = local.handlers(
            spec, env={}, base_commit=None, say=say, objects=Objects(spec.portal_socket, "token"), control_socket=""
        )
        tools = Tools(
            session_id=SESSION,
            orchestrator=False,
            platform=none,
            local=own,
            turn=lambda: None,
            answers=Answers(folder),
        )
        await stack.enter_async_context(serving(folder / "tools.sock", tools))
        url = await stack.enter_async_context(testing.tcp_door(folder / "tools.sock"))
        around = opencode_config.Surroundings(tools=opencode_config.Tools(url=url, token="none"))
        config = json.loads(opencode_config.config(spec, around, policy=SessionPolicy()))
        config["provider"]["scripted"]["options"]["baseURL"] = model_url
        yield await stack.enter_async_context(testing.opencode(binary, folder, config))


async def test_pictures_reach_a_model_that_takes_them_and_another_gets_words(opencode: Path, folder: Path) -> None:
    (folder / "work").mkdir()
    (folder / "work" / "a.png").write_bytes(PNG)
    spec = RunnerSpec(
        session_id=SESSION,
        epoch=1,
        nats_creds="",
        portal_socket=str(folder / "objects.sock"),
        portal_token="token",
        workspace=str(folder / "work"),
        home=str(folder),
        repo=None,
        branch=None,
        model="scripted/sees",
        providers=[ProviderSpec(id="scripted", models=[ModelSpec(id="sees", images=True), ModelSpec(id="blind")])],
        opencode="",
        path="",
    )
    attached = {"type": "file", "mime": "image/png", "filename": "a.png", "url": (folder / "work" / "a.png").as_uri()}

    async with contextlib.AsyncExitStack() as stack:
        listener = Listener(await stack.enter_async_context(ScriptedModel(SCENARIO)))
        url = await stack.enter_async_context(listener.serving())
        http = await stack.enter_async_context(opencode_of(spec, opencode, folder, url))

        async def asked_last(model: str, text: str, *more: object) -> str:
            session = (await http.post("/session", json={})).json()["id"]
            body = {
                "model": {"providerID": "scripted", "modelID": model},
                "parts": [{"type": "text", "text": text}, *more],
            }
            answer = (await http.post(f"/session/{session}/message", json=body)).json()
            assert [part["text"] for part in answer["parts"] if part["type"] == "text"] == ["Done."]
            last_model, messages = listener.asked[-1]
            assert last_model == model
            return messages

        for text, more in (("show it", []), ("look at this", [attached])):
            assert PICTURE in await asked_last("sees", text, *more), text
            words = await asked_last("blind", text, *more)
            assert "image/png;base64" not in words, text
            assert "does not support image input" in words, text
