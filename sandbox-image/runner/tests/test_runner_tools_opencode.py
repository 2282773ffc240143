"""Claims about the tools in the hands of the real OpenCode, which the scripted model has call every one of them."""

import contextlib
from pathlib import Path

from valet_local.model import Scenario, ScriptedModel
from valet_local.model.scenario import Step, Text, Turn
from valet_local.model.scenario import Tool as Use
from valet_protocol import ids
from valet_protocol.tools import TOOLS, Tool
from valet_runner.testing import Broker
from valet_runner.tools import testing
from valet_runner.tools.answers import Answers
from valet_runner.tools.platform import Platform
from valet_runner.tools.running import Answer, Image, Tools
from valet_runner.tools.serving import serving
from valet_service import broker

SESSION = ids.derived_id("a session of OpenCode")
AT_ONCE = 17
"""Calls in one answer of the model: four answers for all of them."""

PIXEL = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00" + (
    b"\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)


def scenario() -> Scenario:
    """Every tool in one turn, several at once."""
    uses = [Use(name=f"valet_{tool.name}", arguments=testing.values(tool)) for tool in TOOLS]
    steps = [Step(actions=tuple(uses[at : at + AT_ONCE])) for at in range(0, len(uses), AT_ONCE)]
    done = Step(actions=(Text(text="All used."),))
    # OpenCode gives a picture to such models as if a person had said something more
    pictures = Turn(when="^Attached media from tool result", steps=(done,))
    return Scenario(turns=(Turn(when="^use every tool$", steps=(*steps, done)), pictures))


async def test_every_tool_is_called_once_by_opencode(opencode: Path, nats: Broker, folder: Path) -> None:
    here: list[Tool] = []

    async def handle(request: Tool) -> Answer:
        here.append(request)
        image = Image(media_type="image/gif", content=PIXEL) if request.name == "show_image" else None
        return Answer(reply=testing.reply(type(request)), image=image)

    async with contextlib.AsyncExitStack() as stack:
        nc = await broker.connect(nats.url, name="test tools")
        stack.push_async_callback(broker.close, nc)
        services = testing.Services(nc, SESSION)
        await services.serve_all()
        tools = Tools(
            session_id=SESSION,
            orchestrator=False,
            platform=Platform(nc).call,
            local={tool: handle for tool in TOOLS if tool.served_by == "runner"},
            turn=lambda: None,
            answers=Answers(folder),
        )
        await stack.enter_async_context(serving(folder / "tools.sock", tools))
        url = await stack.enter_async_context(testing.tcp_door(folder / "tools.sock"))
        model = await stack.enter_async_context(ScriptedModel(scenario()))
        config = {
            "model": "scripted/scripted-1",
            "small_model": "scripted/scripted-1",
            "enabled_providers": ["scripted"],
            "autoupdate": False,
            "share": "disabled",
            "provider": {
                "scripted": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "scripted",
                    "options": {"baseURL": model.url, "apiKey": "none"},
                    "models": {
                        "scripted-1": {
                            "name": "scripted-1",
                            "limit": {"context": 128000, "output": 8000},
                            "attachment": True,
                            "modalities": {"input": ["text", "image"], "output": ["text"]},
                        }
                    },
                }
            },
            "mcp": {"valet": {"type": "remote", "url": f"{url}/mcp", "oauth": False, "enabled": True}},
        }
        http = await stack.enter_async_context(testing.opencode(opencode, folder, config))
        assert (await http.get("/mcp")).json() == {"valet": {"status": "connected"}}
        listed = {skill["name"] for skill in (await http.get("/skill")).json()}
        assert listed >= {"browser", "sandbox-tunnels", "workflows"}
        session = (await http.post("/session", json={})).json()["id"]
        prompt = {"parts": [{"type": "text", "text": "use every tool"}]}
        last = (await http.post(f"/session/{session}/message", json=prompt)).json()
        assert [part["text"] for part in last["parts"] if part["type"] == "text"] == ["All used."]
        messages = (await http.get(f"/session/{session}/message")).json()
    calls = [part for message in messages for part in message["parts"] if part["type"] == "tool"]
    failed = {call["tool"]: call["state"] for call in calls if call["state"]["status"] != "completed"}
    assert failed == {}
    assert sorted(call["tool"] for call in calls) == sorted(f"valet_{tool.name}" for tool in TOOLS)
    assert sorted(request.name for request in services.asked + here) == sorted(tool.name for tool in TOOLS)
    (shown,) = [call for call in calls if call["tool"] == "valet_show_image"]
    assert [file["mime"] for file in shown["state"]["attachments"]] == ["image/gif"]
