"""What an agent asks of the platform, the whole way: the sandbox's gateway, the runner, the broker, the service.

Every tool is called once by the real OpenCode in sandbox-image/runner/tests/test_runner_tools_opencode.py; here the
services that answer are the real ones.
"""

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from harness import limits
from harness.platform import Platform
from harness.waiting import until

_ASKS = """
import json, os, sys, urllib.error, urllib.parse, urllib.request
at, bearer = os.environ["VALET_API_URL"], {"Authorization": "Bearer " + os.environ["VALET_API_TOKEN"]}
door = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for line in sys.stdin:
    verb, path, fields = json.loads(line)
    query = "?" + urllib.parse.urlencode(fields) if verb == "GET" and fields else ""
    body = None if verb == "GET" else json.dumps(fields).encode()
    head = bearer if body is None else {**bearer, "Content-Type": "application/json"}
    try:
        answer = door.open(urllib.request.Request(at + path + query, body, head, method=verb))
    except urllib.error.HTTPError as refused:
        answer = refused
    print(json.dumps([answer.status, answer.read().decode()]), flush=True)
"""
"""A program in the sandbox that asks what it is told to: nobody outside may ask as the agent does."""


class Agent:
    """A session's agent, for what its programs may ask: the address and the token are in their environment."""

    def __init__(self, platform: Platform, session: str) -> None:
        self.session = session
        until(lambda: platform.session(session)["status"] == "ready", limits.TURN, "the end of the boot")

        def way_in() -> dict[str, Any] | None:
            response = platform.request("GET", f"/api/sessions/{session}/sandbox-token")
            return response.json() if response.status_code == 200 else None

        way = until(way_in, limits.TURN, "the sandbox's gateway")
        self._client = httpx.Client(
            base_url=way["urls"]["gateway"],
            headers={"Authorization": f"Bearer {way['token']}"},
            timeout=limits.REQUEST,
        )

        def started() -> str | None:
            response = self._client.post("/v1/processes", json={"command": "python3", "args": ["-c", _ASKS]})
            assert response.status_code in (201, 502, 503), response.text
            return f"/v1/processes/{response.json()['id']}" if response.status_code == 201 else None

        self._program = until(started, limits.TURN, "the process service")
        self._read = 0

    def call(self, route: str, expected: int = 200, /, **fields: Any) -> Any:
        self.tell(route, **fields)

        def answer() -> bytes | None:
            output = self._client.get(f"{self._program}/output", params={"offset": self._read})
            return output.content if output.content.endswith(b"\n") else None

        said = until(answer, limits.REQUEST, f"the answer to {route}")
        self._read += len(said)
        status, text = json.loads(said)
        assert status == expected, f"{route}: {status} {text}"
        return json.loads(text)

    def tell(self, route: str, /, **fields: Any) -> None:
        """Ask without waiting for the answer."""
        told = json.dumps([*route.split(), fields]) + "\n"
        assert self._client.post(f"{self._program}/input", json={"data": told}).is_success

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def parent(platform: Platform) -> Iterator[Agent]:
    agent = Agent(platform, platform.create(title="asks the platform")["id"])
    yield agent
    agent.close()


def test_a_child_is_spawned_works_reports_and_is_done(platform: Platform, parent: Agent) -> None:
    spawned = parent.call("POST /api/spawn-child", prompt="say the child is here", title="a child")
    child = spawned["child_session"]
    assert [item["session"] for item in parent.call("GET /api/child-sessions")["items"]] == [child]

    def answered() -> bool:
        report = parent.call("GET /api/session-status", target_session=child)
        return report["last_turn"] == "completed" and not report["turn_running"]

    until(answered, limits.TURN, "the child's first turn")
    texts = [message["text"] for message in parent.call("GET /api/session-messages", target_session=child)["items"]]
    assert any("the child is here" in text for text in texts)
    # what one session says to another is a prompt that says where it comes from
    sent = parent.call("POST /api/session-message", target_session=child, content="say heard by the child")
    assert sent["session"] == child
    until(
        lambda: any(
            "heard by the child" in message["text"] and message["role"] == "assistant"
            for message in parent.call("GET /api/session-messages", target_session=child)["items"]
        ),
        limits.TURN,
        "the child's answer",
    )
    agent = Agent(platform, child)
    try:
        assert agent.call("POST /api/notify-parent", content="say the parent knows")["session"] == parent.session
        agent.tell("POST /api/complete-session", summary="all is said")  # its sandbox may be gone before the answer
    finally:
        agent.close()
    until(lambda: platform.session(child)["status"] == "terminated", limits.TURN, "the child's end")
    until(
        lambda: any("the parent knows" in message["text"] for message in platform.messages(parent.session)),
        limits.TURN,
        "what the child told its parent",
    )


def test_a_child_is_ended_by_its_parent_and_by_nobody_elses(platform: Platform, parent: Agent) -> None:
    other = parent.call("GET /api/child-sessions")["items"][0]["session"]
    child = parent.call("POST /api/spawn-child", prompt="slow 2000 words")["child_session"]
    # what one child has found goes to another, word for word, although the first one is over
    forwarded = parent.call("POST /api/forward-messages", from_session=other, to_session=child, limit=1)
    assert (forwarded["session"], forwarded["forwarded"]) == (child, 1)
    stranger = platform.create(title="somebody else's work")["id"]
    assert parent.call("POST /api/terminate-child", 404, child_session=stranger)["code"]
    assert parent.call("POST /api/terminate-child", child_session=child) == {"session": child, "already": False}
    until(lambda: platform.session(child)["status"] == "terminated", limits.TURN, "the child's end")
    assert platform.session(stranger)["status"] != "terminated"


def test_memories_and_tasks_are_kept_and_found(parent: Agent) -> None:
    written = parent.call("POST /api/memories", content="The parser is generated; edit grammar.txt", category="project")
    found = parent.call("GET /api/memories/search", query="generated parsers")["items"]
    assert [memory["id"] for memory in found] == [written["id"]]
    assert parent.call(f"DELETE /api/memories/{written['id']}")["deleted"] is True
    first = parent.call("POST /api/tasks", title="Write the parser", assigned_session=parent.session)
    second = parent.call("POST /api/tasks", title="Test the parser", blocked_by=[first["id"]])
    assert parent.call(f"PUT /api/tasks/{second['id']}", 409, status="in_progress")["code"] == "task_waits"
    assert [task["title"] for task in parent.call("GET /api/my-tasks")["items"]] == ["Write the parser"]
    assert parent.call(f"PUT /api/tasks/{first['id']}", status="done")["status"] == "done"
    assert parent.call(f"PUT /api/tasks/{second['id']}", status="in_progress")["status"] == "in_progress"


def test_people_and_sessions_are_told(platform: Platform, parent: Agent) -> None:
    parent.call("POST /api/notifications/emit", title="Half done", text="The parser works.")
    listed = platform.request("GET", "/api/notifications").json()["items"]
    assert ["Half done" in note["text"] for note in listed if note["kind"] == "agent"] == [True]
    parent.call("POST /api/notifications/emit", title="To myself", target_session=parent.session)
    note = parent.call("GET /api/notifications")["items"][0]
    assert note["title"] == "To myself"
    assert parent.call("POST /api/notifications/read", ids=[note["id"]])["unread"] == 0


def test_a_picture_and_a_reply_are_in_the_conversation(platform: Platform, parent: Agent) -> None:
    picture = _png()
    shown = parent.call("POST /api/image", data=base64.b64encode(picture).decode(), caption="one pixel")
    image = platform.request("GET", f"/api/sessions/{parent.session}/images/{shown['image_id']}")
    assert (image.status_code, image.content, image.headers["content-type"]) == (200, picture, "image/png")
    reply = parent.call("POST /api/channel-reply", channel="web:default", text="Look:", image_ids=[shown["image_id"]])
    with platform.follow(parent.session) as follower:
        said = follower.wait_type("agent.channel_replied")
    assert (said.data["reply_id"], said.data["image_ids"]) == (reply["reply_id"], [shown["image_id"]])


def test_what_no_service_answers_yet_says_so(parent: Agent) -> None:
    refused = parent.call("POST /api/create-pull-request", 503, title="A change", head="change")
    assert refused["code"] == "unavailable"
    assert "integrations" in refused["detail"]


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    )
