"""Time travel, forks, export and import."""

import json
from pathlib import Path
from typing import Any

from harness import checks
from harness.platform import Model, Platform
from harness.stream import Follower


def ended(follower: Follower, turns: int) -> None:
    follower.wait(lambda _: follower.count("agent.turn_ended") >= turns, what=f"{turns} turns to end")


def conversation(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"], message["text"]) for message in messages]


def test_the_state_at_a_sequence_is_what_it_was_then(platform: Platform) -> None:
    session = platform.create()["id"]
    at = f"/api/sessions/{session}"
    with platform.follow(session) as follower:
        platform.prompt(session, "say first")
        ended(follower, 1)
        then = platform.session(session)
        earlier = conversation(platform.messages(session))
        platform.prompt(session, "say second")
        ended(follower, 2)
    state = platform.request("GET", f"{at}/state", params={"at": then["seq"]}).json()
    assert conversation(state["messages"]) == earlier
    assert (state["session"]["turns"], state["session"]["status"]) == (then["turns"], then["status"])
    now = platform.session(session)
    state = platform.request("GET", f"{at}/state", params={"at": now["seq"]}).json()
    assert conversation(state["messages"]) == conversation(platform.messages(session))


def test_a_fork_has_the_conversation_and_the_files_as_they_were(platform: Platform, sample_repo: Path) -> None:
    session = platform.create(repo=str(sample_repo))["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "write kept.txt kept")
        later = platform.prompt(session, "write later.txt later")["prompt_id"]
        ended(follower, 2)
    made = platform.request("POST", f"/api/sessions/{session}/fork", json={"message_id": later})
    assert made.status_code == 201, made.text
    fork = made.json()["id"]
    whole = platform.messages(session)
    before = whole[: [message["id"] for message in whole].index(later)]
    assert conversation(platform.messages(fork)) == conversation(before)
    with platform.follow(fork) as follower:
        platform.prompt(fork, "ls; git status --short", kind="shell")
        done = follower.wait_type("agent.turn_ended")
        assert done.data["status"] == "completed", done.data
        outputs = [event.data["output"] for event in follower.events if event.type == "agent.tool_updated"]
        assert "kept.txt" in outputs[-1]
        assert "later.txt" not in outputs[-1]
    assert platform.session(fork)["source_session"] == session
    checks.rebuilt_equals_live(platform)


def test_an_export_imported_again_gives_the_same_messages(platform: Platform) -> None:
    session = platform.create(title="to be exported")["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "think about it")
        platform.prompt(session, "bash echo exported")
        ended(follower, 2)
    exported = platform.request("GET", f"/api/sessions/{session}/export")
    lines = [json.loads(line) for line in exported.text.splitlines()]
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)
    assert lines[0]["type"] == "fact.session_requested"
    made = platform.request(
        "POST", "/api/import", content=exported.content, headers={"Content-Type": "application/jsonl"}
    )
    assert made.status_code == 201, made.text
    copy = made.json()["id"]

    def essence(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        strip = ("seq", "created_at")
        return [
            {key: value for key, value in message.items() if key not in (*strip, "parts")}
            | {"parts": [{k: v for k, v in part.items() if k != "seq"} for part in message["parts"]]}
            for message in messages
        ]

    assert essence(platform.messages(copy)) == essence(platform.messages(session))
    checks.rebuilt_equals_live(platform)
    broken = platform.request(
        "POST", "/api/import", content=b'{"type":\n', headers={"Content-Type": "application/jsonl"}
    )
    assert broken.status_code in (400, 422)
    assert "line 1" in broken.json()["detail"]


def test_a_session_that_was_imported_goes_on_with_files_and_memory_or_with_what_was_said(
    platform: Platform, model: Model, tmp_path: Path
) -> None:
    session = platform.create(title="to be moved")["id"]
    uploaded = platform.request(
        "POST", f"/api/sessions/{session}/attachments", params={"name": "notes.txt"}, content=b"a quince as well"
    ).json()
    with platform.follow(session) as follower:
        platform.prompt(session, "say the fruit is kumquat", attachments=[uploaded["attachment_id"]])
        platform.prompt(session, "write kept.txt kept")
        ended(follower, 2)
    whole, events = tmp_path / "whole.jsonl", tmp_path / "events.jsonl"
    assert platform.cli("export", session, "--files", "-o", str(whole)).returncode == 0
    assert platform.cli("export", session, "-o", str(events)).returncode == 0

    moved = platform.cli("import", str(whole)).stdout.strip()
    assert conversation(platform.messages(moved)) == conversation(platform.messages(session))
    at = f"/api/sessions/{moved}/attachments/{uploaded['attachment_id']}"
    assert platform.request("GET", at).content == b"a quince as well"
    with platform.follow(moved) as follower:
        platform.prompt(moved, "count prompts")
        platform.prompt(moved, "cat kept.txt", kind="shell")
        ended(follower, 2)
    assert conversation(platform.messages(moved))[-3] == ("assistant", "scripted-1 sees 3 prompts.")
    outputs = [event.data["output"] for event in follower.events if event.type == "agent.tool_updated"]
    assert "kept" in outputs[-1]

    told = platform.cli("import", str(events)).stdout.strip()
    with platform.follow(told) as follower:
        platform.prompt(told, f"say it is {told}")
        platform.prompt(told, "count prompts")
        ended(follower, 2)
    received = [request["prompt"] for request in model.requests() if told in request["prompt"]]
    assert any("You: the fruit is kumquat" in prompt and "(used write)" in prompt for prompt in received)
    # once, and the next prompt finds it in the agent's own memory
    assert conversation(platform.messages(told))[-1] == ("assistant", "scripted-1 sees 2 prompts.")
    assert not [r for r in model.requests() if "kumquat" in r["prompt"] and r["prompt"].endswith("count prompts")]
    checks.rebuilt_equals_live(platform)
