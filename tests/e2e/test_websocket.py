"""One WebSocket for many sessions, with the cursor rule of the SSE endpoint."""

import json
from typing import Any

import pytest
from harness import checks, limits
from harness.platform import Platform
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect


def open_socket(platform: Platform, token: str | None = None) -> ClientConnection:
    return connect(
        platform.url.replace("http", "ws", 1) + "/ws",
        additional_headers={"Authorization": f"Bearer {token or platform.token}"},
        open_timeout=limits.REQUEST,
    )


def read_until(socket: ClientConnection, done: Any) -> list[dict[str, Any]]:
    """Frames up to and including the first for which `done` holds."""
    frames: list[dict[str, Any]] = []
    while True:
        frames.append(json.loads(socket.recv(timeout=limits.TURN)))
        if done(frames[-1]):
            return frames


def events(frames: list[dict[str, Any]], session: str) -> list[dict[str, Any]]:
    return [
        event
        for frame in frames
        if frame["type"] == "events" and frame["session_id"] == session
        for event in frame["events"]
    ]


def test_two_sessions_share_a_socket_and_each_resumes_at_its_own_cursor(platform: Platform) -> None:
    first, second = (platform.create()["id"] for _ in range(2))
    with platform.follow(first) as follower:
        platform.prompt(first, "say one")
        last = follower.wait_type("agent.turn_ended").seq
        history = checks.lasting([event for event in follower.events if event.seq <= last])
    middle = history[len(history) // 2][0]
    with open_socket(platform) as socket:
        socket.send(json.dumps({"type": "subscribe", "session_id": first, "after": middle}))
        socket.send(json.dumps({"type": "subscribe", "session_id": second, "after": 0}))
        pending = {first, second}
        frames: list[dict[str, Any]] = []
        while pending:
            frames += read_until(socket, lambda frame: frame["type"] == "synced")
            pending.discard(frames[-1]["session_id"])
        platform.prompt(second, "say two")
        frames += read_until(
            socket,
            lambda frame: any(event["type"] == "agent.turn_ended" for event in events([frame], second)),
        )
    resumed = [
        (event["seq"], event["type"])
        for event in events(frames, first)
        if event["seq"] <= last and not event["type"].startswith("delta.")
    ]
    assert resumed == [line for line in history if line[0] > middle]
    live = [event["seq"] for event in events(frames, second)]
    assert live == sorted(set(live))
    assert events(frames, second)[0]["type"] == "fact.session_requested"


def test_a_session_of_somebody_else_cannot_be_subscribed(platform: Platform) -> None:
    session = platform.create()["id"]
    name = f"ws-{session[-6:].lower()}"
    other = platform.request("POST", "/api/users", json={"name": name}).json()["token"]
    with open_socket(platform, other) as socket:
        socket.send(json.dumps({"type": "subscribe", "session_id": session, "after": 0}))
        frame = json.loads(socket.recv(timeout=limits.REQUEST))
    assert frame["type"] == "error"
    assert frame["problem"]["status"] == 404


def test_nonsense_on_the_socket_is_answered_and_does_not_end_it(platform: Platform) -> None:
    with open_socket(platform) as socket:
        for nonsense in (
            "{",
            "[]",
            '{"type":"dance"}',
            '{"type":"subscribe"}',
            '{"type":"subscribe","session_id":"x","after":-4}',
        ):
            socket.send(nonsense)
            assert json.loads(socket.recv(timeout=limits.REQUEST))["type"] == "error"
        socket.send('{"type":"ping"}')
        assert json.loads(socket.recv(timeout=limits.REQUEST))["type"] == "pong"


def test_a_wrong_token_opens_no_socket(platform: Platform) -> None:
    with pytest.raises(InvalidStatus) as refused:
        open_socket(platform, "wrong")
    assert refused.value.response.status_code == 401
