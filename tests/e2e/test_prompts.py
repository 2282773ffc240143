"""Prompt modes, the queue, kinds of prompts, failover and channels, over HTTP with the real OpenCode."""

from typing import Any

from harness import checks
from harness.platform import Platform
from harness.stream import Follower


def turn_of(platform: Platform, session: str, prompt_id: str) -> dict[str, Any]:
    turns = platform.request("GET", f"/api/sessions/{session}/turns").json()["items"]
    return next(turn for turn in turns if prompt_id in (turn["prompt_id"], *turn["prompt_ids"]))


def prompts(platform: Platform, session: str) -> dict[str, dict[str, Any]]:
    items = platform.request("GET", f"/api/sessions/{session}/prompts").json()["items"]
    return {item["prompt_id"]: item for item in items}


def ended(follower: Follower, turns: int) -> None:
    follower.wait(lambda _: follower.count("agent.turn_ended") >= turns, what=f"{turns} turns to end")


def test_waiting_prompts_can_be_edited_reordered_and_withdrawn(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "slow 60 words")
        follower.wait_type("delta.text")
        edited, withdrawn, last = (platform.prompt(session, f"say {word}")["prompt_id"] for word in ("one", "two", "x"))
        at = f"/api/sessions/{session}"
        assert platform.request("PATCH", f"{at}/prompts/{edited}", json={"content": "say edited"}).status_code == 200
        assert platform.request("DELETE", f"{at}/prompts/{withdrawn}").status_code == 200
        assert platform.request("POST", f"{at}/queue", json={"prompt_ids": [last, edited]}).status_code == 200
        ended(follower, 3)
        checks.exactly_once(platform, session, follower)
        late = platform.request("PATCH", f"{at}/prompts/{edited}", json={"content": "say too late"})
        assert (late.status_code, late.json()["code"]) == (409, "not_waiting")
    said = [message["text"] for message in platform.messages(session) if message["role"] == "user"]
    assert said == ["slow 60 words", "say x", "say edited"]
    states = prompts(platform, session)
    assert (states[edited]["status"], states[withdrawn]["status"]) == ("done", "withdrawn")
    assert states[withdrawn]["turn_id"] is None


def test_a_steering_prompt_reaches_the_running_turn(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        first = platform.prompt(session, "work a.txt")["prompt_id"]
        follower.wait_type("agent.tool_updated")
        steering = platform.prompt(session, "say I was steered", mode="steer")["prompt_id"]
        taken = follower.wait_type("agent.prompt_taken")
        assert (taken.data["prompt_id"], taken.data["outcome"]) == (steering, "delivered")
        ended(follower, 1)
        assert follower.count("fact.turn_dispatched") == 1, "it became a turn of its own"
    assert turn_of(platform, session, steering)["turn_id"] == turn_of(platform, session, first)["turn_id"]
    assert "I was steered" in checks.assistant_text(platform.messages(session))


def test_a_steering_prompt_while_nothing_runs_is_an_ordinary_one(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "say hello", mode="steer")
        ended(follower, 1)
    assert "hello" in checks.assistant_text(platform.messages(session))


def test_collected_prompts_become_one_turn(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        ids = [platform.prompt(session, f"say part {n}", mode="collect")["prompt_id"] for n in range(3)]
        ended(follower, 1)
        dispatched = [event.data for event in follower.events if event.type == "fact.turn_dispatched"]
        assert [fact["prompt_ids"] for fact in dispatched] == [ids]
    messages = platform.messages(session)
    assert [message["id"] for message in messages if message["role"] == "user"] == ids
    assert {prompt["turn_id"] for prompt in prompts(platform, session).values()} == {messages[0]["turn_id"]}


def test_a_person_s_shell_command_is_part_of_what_the_agent_knows(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "echo from-a-person > made.txt; cat made.txt", kind="shell")
        ended(follower, 1)
        assert [event.data["status"] for event in follower.events if event.type == "agent.turn_ended"] == ["completed"]
        outputs = [event.data["output"] for event in follower.events if event.type == "agent.tool_updated"]
        assert "from-a-person" in (outputs[-1] or "")
        platform.prompt(session, "say noted")
        ended(follower, 2)


def test_channels_are_conversations_of_their_own_in_one_workspace(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "write shared.txt seen", channel="slack:one")
        platform.prompt(session, "bash cat shared.txt", channel="api")
        ended(follower, 2)
        started = [event.data["opencode_session"] for event in follower.events if event.type == "agent.turn_started"]
        assert len(set(started)) == 2
        outputs = [event.data["output"] for event in follower.events if event.type == "agent.tool_updated"]
        assert "seen" in (outputs[-1] or "")
    assert {message["channel"] for message in platform.messages(session)} == {"slack:one", "api"}


def test_what_a_turn_changed_and_what_the_session_changed_are_two_diffs(platform: Platform, sample_repo: Any) -> None:
    session = platform.create(repo=str(sample_repo))["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "write one.txt 1")
        second = platform.prompt(session, "write two.txt 2")["prompt_id"]
        ended(follower, 2)
    at = f"/api/sessions/{session}/diff"
    whole = platform.request("GET", at).json()
    turn = turn_of(platform, session, second)["turn_id"]
    own = platform.request("GET", at, params={"turn": turn}).json()
    assert [file["path"] for file in whole["files"]] == ["one.txt", "two.txt"]
    assert [file["path"] for file in own["files"]] == ["two.txt"]


def test_a_reverted_message_takes_its_files_with_it_and_unrevert_brings_them_back(
    platform: Platform, sample_repo: Any
) -> None:
    session = platform.create(repo=str(sample_repo))["id"]
    at = f"/api/sessions/{session}"
    with platform.follow(session) as follower:
        platform.prompt(session, "write keep.txt kept")
        undone = platform.prompt(session, "write undone.txt gone")["prompt_id"]
        ended(follower, 2)
        reverted = platform.request("POST", f"{at}/revert", json={"message_id": undone})
        assert (reverted.status_code, reverted.json()["status"]) == (200, "completed"), reverted.text
        flags = {message["text"]: message["reverted"] for message in platform.messages(session)}
        assert (flags["write keep.txt kept"], flags["write undone.txt gone"]) == (False, True)
        platform.prompt(session, "ls", kind="shell")
        ended(follower, 3)
        outputs = [event.data["output"] for event in follower.events if event.type == "agent.tool_updated"]
        assert "keep.txt" in outputs[-1]
        assert "undone.txt" not in outputs[-1]


def test_the_same_key_on_any_post_is_done_once(platform: Platform) -> None:
    session = platform.create()["id"]
    at = f"/api/sessions/{session}"
    key = {"Idempotency-Key": "one key"}
    first = platform.request("POST", f"{at}/links", json={"role": "viewer"}, headers=key)
    again = platform.request("POST", f"{at}/links", json={"role": "viewer"}, headers=key)
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    other = platform.request("POST", f"{at}/links", json={"role": "collaborator"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
