"""A session from prompt to diff: real NATS, PostgreSQL, bubblewrap and OpenCode; only the model is scripted."""

from pathlib import Path

import httpx
from harness import checks
from harness.platform import Platform


def test_a_prompt_becomes_a_turn_whose_text_streams_and_is_stored(platform: Platform) -> None:
    session = platform.create(title="words")["id"]
    with platform.follow(session) as follower:
        accepted = platform.prompt(session, "stream 40 words")
        ended = follower.wait_type("agent.turn_ended")
        assert ended.data["status"] == "completed"
        assert follower.count("delta.text") > 1, "the text did not stream"
        assert any(event.seq == accepted["seq"] for event in follower.events)
        checks.exactly_once(platform, session, follower)
    messages = platform.messages(session)
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert len(messages[1]["text"].split()) >= 40
    view = platform.session(session)
    assert view["status"] == "ready"
    assert view["cost"] > 0
    assert view["last_turn"]["first_token_ms"] is not None


def test_the_agent_works_on_a_clone_and_the_diff_shows_it(platform: Platform, sample_repo: Path) -> None:
    session = platform.create(repo=str(sample_repo))["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "write note.txt from-the-agent")
        assert follower.wait_type("agent.turn_ended").data["status"] == "completed"
        states = [event.data["status"] for event in follower.events if event.type == "agent.tool_updated"]
        assert states[-1] == "completed"
        assert states == sorted(states, key=["pending", "running", "completed"].index)
        seq = follower.events[-1].seq
        platform.prompt(session, "bash cat hello.txt && git log --oneline | wc -l")
        follower.wait_type("agent.turn_ended", after=seq)
        outputs = [event.data["output"] for event in follower.events if event.type == "agent.tool_updated"]
        assert "hello" in outputs[-1]
    diff = platform.request("GET", f"/api/sessions/{session}/diff").json()
    assert [(file["path"], file["status"]) for file in diff["files"]] == [("note.txt", "added")]
    assert "+from-the-agent" in diff["patch"]
    assert not (sample_repo / "note.txt").exists(), "the agent wrote into the original"


def test_a_question_is_answered_by_a_person_and_a_second_answer_is_refused(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "ask Which colour?")
        asked = follower.wait_type("agent.question_asked")
        label = asked.data["questions"][0]["options"][-1]["label"]
        body = {"question_id": asked.data["question_id"], "answers": [[label]]}
        first = platform.request("POST", f"/api/sessions/{session}/answer", json=body)
        assert first.status_code == 200, first.text
        follower.wait_type("agent.turn_ended")
        body["answers"] = [["something else"]]
        second = platform.request("POST", f"/api/sessions/{session}/answer", json=body)
        assert second.status_code == 409
        facts = [event for event in follower.events if event.type == "fact.question_answered"]
        assert [(fact.data["answers"], fact.data["answered_by"]) for fact in facts] == [([[label]], "person")]


def test_a_question_nobody_answers_gets_its_default(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "ask Which colour?")
        first = follower.wait_type("agent.question_asked").data["questions"][0]["options"][0]["label"]
        answered = follower.wait_type("fact.question_answered")
        assert (answered.data["answers"], answered.data["answered_by"]) == ([[first]], "default")
        assert follower.wait_type("agent.turn_ended").data["status"] == "completed"


def test_a_running_turn_can_be_aborted_and_the_next_prompt_works(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "slow 400 words")
        follower.wait_type("delta.text")
        assert platform.request("POST", f"/api/sessions/{session}/abort").status_code == 202
        ended = follower.wait_type("agent.turn_ended")
        assert ended.data["status"] == "interrupted"
        platform.prompt(session, "say after the abort")
        again = follower.wait_type("agent.turn_ended", after=ended.seq)
        assert again.data["status"] == "completed"
        checks.exactly_once(platform, session, follower)
    assert "after the abort" in checks.assistant_text(platform.messages(session))
    assert platform.request("POST", f"/api/sessions/{session}/abort").status_code == 409


def test_prompts_given_while_busy_wait_in_order(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        for word in ("one", "two", "three"):
            platform.prompt(session, f"say {word}")
        follower.wait(lambda _: follower.count("agent.turn_ended") == 3, what="three turns")
        started = [event.data["content"] for event in follower.events if event.type == "fact.turn_dispatched"]
    assert started == ["say one", "say two", "say three"]


def test_a_provider_that_fails_once_is_retried_and_one_that_cuts_the_stream_loses_nothing(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "fail 429 once")
        ended = follower.wait_type("agent.turn_ended")
        assert ended.data["status"] == "completed", ended.data
        platform.prompt(session, "cut once")
        assert follower.wait_type("agent.turn_ended", after=ended.seq).data["status"] == "completed"
        checks.exactly_once(platform, session, follower)


def test_the_same_idempotency_key_is_the_same_prompt(platform: Platform) -> None:
    session = platform.create()["id"]
    path, key = f"/api/sessions/{session}/messages", {"Idempotency-Key": "once-only"}
    first = platform.request("POST", path, json={"content": "say hello"}, headers=key)
    second = platform.request("POST", path, json={"content": "say hello"}, headers=key)
    assert first.status_code == second.status_code == 202
    assert (first.json()["prompt_id"], first.json()["seq"]) == (second.json()["prompt_id"], second.json()["seq"])
    other = platform.request("POST", path, json={"content": "say something else"}, headers=key)
    assert other.status_code == 422
    with platform.follow(session) as follower:
        follower.wait_type("agent.turn_ended")
        assert follower.count("fact.prompt_accepted") == 1


def test_a_client_resumes_at_any_sequence(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "write a.txt one")
        last = follower.wait_type("agent.turn_ended").seq
        whole = checks.lasting([event for event in follower.events if event.seq <= last])
    for cursor in [0, *(seq for seq, _ in whole)]:
        with platform.follow(session, after=cursor) as resumed:
            if cursor < last:
                resumed.wait(lambda event: event.seq >= last, what="the rest")
            rest = checks.lasting([event for event in resumed.events if event.seq <= last])
        assert rest == [line for line in whole if line[0] > cursor]


def test_a_terminated_session_keeps_its_history_and_takes_no_prompt(platform: Platform) -> None:
    session = platform.create()["id"]
    with platform.follow(session) as follower:
        platform.prompt(session, "say goodbye")
        follower.wait_type("agent.turn_ended")
        assert platform.request("DELETE", f"/api/sessions/{session}").status_code in (200, 202)
        follower.wait_type("sandbox.terminated")
    assert platform.session(session)["status"] == "terminated"
    assert "goodbye" in checks.assistant_text(platform.messages(session))
    refused = platform.request("POST", f"/api/sessions/{session}/messages", json={"content": "say more"})
    assert refused.status_code == 409
    assert not (platform.data_dir / "sandboxes" / session / "workspace").exists()


def test_a_repo_that_cannot_be_cloned_fails_the_session_in_words(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "not-a-repo").mkdir()
    (tmp_path / "not-a-repo" / ".git").write_text("gitdir: /no/such/repository\n")  # looks like one from outside
    session = platform.create(repo=str(tmp_path / "not-a-repo"))["id"]
    with platform.follow(session) as follower:
        failed = follower.wait_type("fact.session_failed")
    assert "not" in failed.data["detail"]
    assert "/no/such/repository" in failed.data["detail"]
    view = platform.session(session)
    assert view["status"] == "failed"
    assert "/no/such/repository" in view["status_detail"]


def test_the_api_describes_itself(platform: Platform) -> None:
    with httpx.Client(base_url=platform.url) as anonymous:
        assert anonymous.get("/health").status_code == 200
        assert anonymous.get("/ready").status_code == 200
        document = anonymous.get("/schema/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/api/sessions/{session_id}/messages" in document["paths"] or any(
        path.endswith("/messages") for path in document["paths"]
    )
    models = platform.request("GET", "/api/models").json()
    assert "scripted/scripted-1" in str(models)
