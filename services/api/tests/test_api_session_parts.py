"""Claims about the queue, commands, turns, the past, policy and people: what is asked of whom, and what is refused."""

import asyncio
from typing import Any

import httpx
import pytest
from nats.aio.client import Client
from valet_api import limits
from valet_api.log_end import last_seq
from valet_api.testing import FakeLedger, problem
from valet_protocol import subjects
from valet_protocol.errors import Conflict, Forbidden
from valet_protocol.events.facts import PermissionRule
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    ChangePolicy,
    CreateSession,
    EditPrompt,
    GetDiff,
    GetState,
    ListMessages,
    ListNotifications,
    MarkNotificationsRead,
    NotificationPage,
    NotificationsRead,
    ReorderQueue,
    Reply,
    RequestCommand,
    SubmitPrompt,
    WithdrawPrompt,
)
from valet_service import rpc
from valet_service.testing import until


async def test_a_prompt_carries_everything_that_was_said_about_it(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    body = {
        "content": "Fix it.",
        "mode": "collect",
        "channel": "slack:C1/170.5",
        "model": "scripted/one",
        "fallbacks": ["scripted/two"],
        "variant": "high",
    }
    assert (await client.post(f"/api/sessions/{session}/messages", json=body)).status_code == 202
    (command,) = ledger.all(SubmitPrompt)
    assert isinstance(command, SubmitPrompt)
    assert {name: getattr(command, name) for name in body} == body
    assert (command.kind, command.author_name, command.author_email) == ("prompt", "owner", "")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"content": "", "kind": "shell"}, 422, "empty_prompt"),
        ({"content": "init", "kind": "command"}, 422, "bad_command"),
        ({"content": "/ init", "kind": "command"}, 422, "bad_command"),
        ({"content": "ls", "kind": "shell", "attachments": ["a"]}, 422, "attachments_not_possible"),
        ({"content": "x", "attachments": ["nobody-s"]}, 422, "unknown_attachment"),
        ({"content": "x", "attachments": ["a\0b"]}, 422, "unknown_attachment"),
        ({"content": "x", "attachments": ["a"] * 21}, 400, "bad_request"),
        ({"content": "x", "fallbacks": ["nobody/nothing"]}, 422, "unknown_model"),
        ({"content": "x", "fallbacks": ["scripted/one"] * 6}, 400, "bad_request"),
        ({"content": "x", "variant": "hi gh"}, 400, "bad_request"),
        ({"content": "x", "channel": "no good"}, 400, "bad_request"),
        ({"content": "x", "channel": "web:"}, 400, "bad_request"),
        ({"content": "x", "channel": "web:" + "a" * 200}, 400, "bad_request"),
        ({"content": "x", "mode": "now"}, 400, "bad_request"),
        ({"content": "x", "kind": "wish"}, 400, "bad_request"),
    ],
    ids=str,
)
async def test_a_prompt_that_cannot_be_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, body: Any, status: int, code: str
) -> None:
    problem(await client.post(f"/api/sessions/{session}/messages", json=body), status, code)
    assert not ledger.prompts


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "review"},
        {"kind": "review", "content": "Only security."},
        {"kind": "command", "content": "/init now\nand here"},
        {"kind": "shell", "content": "git status"},
    ],
    ids=str,
)
async def test_every_kind_of_prompt_is_taken(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, body: Any
) -> None:
    assert (await client.post(f"/api/sessions/{session}/messages", json=body)).status_code == 202
    (command,) = ledger.prompts.values()
    assert (command.kind, command.content) == (body["kind"], body.get("content", ""))


@pytest.mark.parametrize("body", [{"answer": None}, {"answers": None}, {"answers": []}], ids=str)
async def test_an_answer_of_nothing_is_refused_with_what_to_send(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, body: Any
) -> None:
    document = problem(await client.post(f"/api/sessions/{session}/answer", json=body), 400, "bad_answer")
    assert '"answers"' in document["detail"]


async def test_waiting_prompts_are_listed_edited_withdrawn_and_reordered(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    base = f"/api/sessions/{session}"
    ids = [(await client.post(f"{base}/messages", json={"content": content})).json()["prompt_id"] for content in "ab"]
    page = (await client.get(f"{base}/prompts?limit=1")).json()
    assert [item["prompt_id"] for item in page["items"]] == ids[:1]
    edited = await client.patch(f"{base}/prompts/{ids[0]}", json={"content": "c"})
    assert (edited.status_code, edited.json()) == (200, {"seq": 6})
    assert (await client.delete(f"{base}/prompts/{ids[1]}")).status_code == 200
    assert (await client.post(f"{base}/queue", json={"prompt_ids": ids[::-1]})).status_code == 200
    (edit,), (withdrawal,), (order,) = (ledger.all(kind) for kind in (EditPrompt, WithdrawPrompt, ReorderQueue))
    assert (edit.content, withdrawal.prompt_id, order.prompt_ids) == ("c", ids[1], ids[::-1])  # type: ignore[attr-defined]
    problem(await client.patch(f"{base}/prompts/none", json={"content": "c"}), 409, "not_waiting")
    problem(await client.patch(f"{base}/prompts/{ids[0]}", json={"content": " "}), 422, "empty_prompt")
    problem(await client.patch(f"{base}/prompts/{ids[0]}", json={"content": "\0"}), 422, "nul_character")
    problem(await client.delete(f"{base}/prompts/%00"), 422, "nul_character")
    problem(await client.post(f"{base}/queue", json={"prompt_ids": []}), 400)


# -- commands ----------------------------------------------------------------------------------------------


async def test_a_revert_waits_for_its_end_and_says_how_it_went(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    asking = asyncio.create_task(client.post(f"/api/sessions/{session}/revert", json={"message_id": "m"}))
    await until(lambda: ledger.commands, "the revert is requested")
    assert not asking.done()
    (request_id,) = ledger.commands
    ledger.complete(request_id, error="there is no such message")
    response = await asking
    assert response.status_code == 200
    assert (response.json()["status"], response.json()["error"]) == ("failed", "there is no such message")
    (command,) = ledger.all(RequestCommand)
    assert (command.command, command.message_id) == ("revert", "m")  # type: ignore[attr-defined]


async def test_a_command_without_a_result_is_202_and_can_be_looked_at(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    base = f"/api/sessions/{session}"
    response = await client.post(f"{base}/commands", json={"command": "list_commands", "channel": "slack:C1"})
    assert (response.status_code, response.json()["status"]) == (202, "requested")
    place = f"{base}/commands/{response.json()['request_id']}"
    assert (await client.get(place)).json() == response.json()
    waited = await client.post(f"{base}/unrevert?wait=0.3")
    assert (waited.status_code, waited.json()["status"]) == (202, "requested")
    ledger.complete(response.json()["request_id"])
    assert (await client.get(place)).json()["status"] == "completed"
    problem(await client.get(f"{base}/commands/none"), 404, "command_not_found")
    problem(await client.post(f"{base}/commands?wait=61", json={"command": "list_commands"}), 400)
    problem(await client.post(f"{base}/commands", json={"command": "revert"}), 400)


async def test_the_same_key_is_the_same_command(client: httpx.AsyncClient, ledger: FakeLedger, session: str) -> None:
    key = {"Idempotency-Key": new_id()}
    path = f"/api/sessions/{session}/commands"
    replies = [await client.post(path, json={"command": "new_conversation"}, headers=key) for _ in range(2)]
    assert replies[0].json() == replies[1].json()
    assert len(ledger.commands) == 1


async def test_a_command_while_a_turn_runs_is_refused_as_the_ledger_says(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.refuse[RequestCommand] = Conflict("turn_running", "Stop the turn first.")
    problem(await client.post(f"/api/sessions/{session}/unrevert"), 409, "turn_running")


# -- looking closer ----------------------------------------------------------------------------------------


async def test_turns_reviews_one_turn_s_diff_and_the_past_are_read(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    base = f"/api/sessions/{session}"
    assert (await client.get(f"{base}/turns")).json() == {"items": [], "next": None}
    assert (await client.get(f"{base}/review?turn=T1")).json()["turn_id"] == "T1"
    patch = await client.get(f"{base}/diff?turn=T1", headers={"Accept": "text/x-diff"})
    assert patch.text.startswith("---")
    assert ledger.all(GetDiff)[0].turn_id == "T1"  # type: ignore[attr-defined]
    state = (await client.get(f"{base}/state?at=1&limit=5&after=2")).json()
    assert set(state) == {"at", "session", "messages", "next", "diff"}
    (query,) = ledger.all(GetState)
    assert (query.at, query.limit, query.after, query.nested) == (1, 5, 2, False)  # type: ignore[attr-defined]


async def test_sub_agents_are_asked_for_nested_or_one_by_one(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    base = f"/api/sessions/{session}"
    for query in ("", "?nested=true&limit=3", "?conversation=ses_1&after=7"):
        assert (await client.get(f"{base}/messages{query}")).status_code == 200
    asked = [
        (query.nested, query.conversation, query.limit, query.after)  # type: ignore[attr-defined]
        for query in ledger.all(ListMessages)
    ]
    assert asked == [(False, None, 100, 0), (True, None, 3, 0), (False, "ses_1", 100, 7)]
    assert (await client.get(f"{base}/state?at=1&nested=true")).status_code == 200
    assert ledger.all(GetState)[0].nested  # type: ignore[attr-defined]
    problem(await client.get(f"{base}/messages?nested=perhaps"), 400)
    problem(await client.get(f"{base}/messages?conversation=%00"), 422, "nul_character")


async def test_the_api_says_what_parts_messages_and_sandboxes_have(client: httpx.AsyncClient) -> None:
    """A part may hold messages, which hold parts: the document has both, each once."""
    schemas = (await client.get("/schema/openapi.json")).json()["components"]["schemas"]
    part, message, view = schemas["PartView"], schemas["MessageView"], schemas["SandboxView"]
    assert part["properties"]["messages"]["items"] == {"$ref": "#/components/schemas/MessageView"}
    assert message["properties"]["parts"]["items"] == {"$ref": "#/components/schemas/PartView"}
    assert set(part["properties"]["kind"]["enum"]) == {"text", "reasoning", "tool", "image", "channel_reply"}
    assert set(view["properties"]) == {"tunnels", "processes", "services", "boot"}


@pytest.mark.parametrize("query", ["", "at=0", "at=x", "at=-1", "at=1&limit=0", "at=9007199254740993"])
async def test_a_state_at_no_sequence_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, query: str
) -> None:
    problem(await client.get(f"/api/sessions/{session}/state?{query}"), 400)


@pytest.mark.parametrize(("query", "code"), [("state?at=", "bad_sequence"), ("events?after=", "bad_cursor")])
async def test_what_is_beyond_the_end_of_the_log_is_refused_with_where_that_is(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, nc: Client, query: str, code: str
) -> None:
    end = await last_seq(nc)
    said = problem(await client.get(f"/api/sessions/{session}/{query}999999"), 400, code)
    assert said["detail"] == f"999999 is beyond the end of the log, which is {end}; use a sequence you were given."


# -- title and policy --------------------------------------------------------------------------------------


async def test_a_session_is_renamed_and_its_policy_changed_in_part(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    rule = {"permission": "bash", "pattern": "git push*", "action": "ask"}
    body = {"title": " New ", "policy": {"permission_rules": [rule], "permission_timeout_s": 60}}
    view = (await client.patch(f"/api/sessions/{session}", json=body)).json()
    assert view["title"] == "New"
    assert view["policy"]["permission_rules"] == [rule]
    (command,) = ledger.all(ChangePolicy)
    assert isinstance(command, ChangePolicy)
    assert (command.policy.permission_timeout_s, command.policy.question_timeout_s) == (60, 300)
    again = (await client.patch(f"/api/sessions/{session}", json={"policy": {"permissions": "ask"}})).json()
    assert (again["policy"]["permissions"], again["policy"]["permission_rules"]) == ("ask", [rule])


async def test_a_session_begins_with_the_policy_that_was_asked_for(
    client: httpx.AsyncClient, ledger: FakeLedger
) -> None:
    policy = {"permissions": "ask", "permission_rules": [{"action": "deny"}], "permission_default": "once"}
    assert (await client.post("/api/sessions", json={"policy": policy})).status_code == 201
    (command,) = ledger.all(CreateSession)
    assert isinstance(command, CreateSession)
    assert command.policy.permission_rules == [PermissionRule(permission="*", pattern="*", action="deny")]
    assert (command.policy.permissions, command.policy.question_timeout_s) == ("ask", 300)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"title": None}, 400),
        ({"title": "  "}, 422),
        ({"title": "a\0"}, 422),
        ({"title": "x" * 201}, 400),
        ({"policy": {"question_timeout_s": 0}}, 400),
        ({"policy": {"question_timeout_s": 1e12}}, 400),
        ({"policy": {"permissions": "never"}}, 400),
        ({"policy": {"permission_default": "always"}}, 400),
        ({"policy": {"permission_rules": [{"permission": "bash"}]}}, 400),
        ({"policy": {"permission_rules": [{"action": "allow", "patern": "x"}]}}, 400),
        ({"policy": {"permission_rules": [{"action": "allow", "pattern": "\0"}]}}, 422),
        ({"policy": {"permission_rules": [{"action": "allow", "pattern": ""}]}}, 400),
        ({"policy": {"permission_rules": [{"action": "allow"}] * 101}}, 400),
        ({"policy": {"unknown": 1}}, 400),
    ],
    ids=str,
)
async def test_a_change_that_cannot_be_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str, body: Any, status: int
) -> None:
    problem(await client.patch(f"/api/sessions/{session}", json=body), status)
    assert not ledger.all(ChangePolicy)


async def test_a_title_is_not_taken_where_the_policy_is_refused(
    client: httpx.AsyncClient, ledger: FakeLedger, session: str
) -> None:
    ledger.refuse[ChangePolicy] = Forbidden("role_too_low", "Owners only.")
    body = {"title": "New", "policy": {"permissions": "ask"}}
    problem(await client.patch(f"/api/sessions/{session}", json=body), 403, "role_too_low")
    assert ledger.sessions[session].title == ""


# -- people ------------------------------------------------------------------------------------------------


async def test_a_person_s_name_and_address_go_with_their_prompts(other: httpx.AsyncClient, ledger: FakeLedger) -> None:
    me = (await other.patch("/api/me", json={"email": "ada@example.org", "display_name": "Ada Lovelace"})).json()
    assert (me["email"], me["display_name"]) == ("ada@example.org", "Ada Lovelace")
    assert (await other.get("/api/me")).json() == me
    session = (await other.post("/api/sessions", json={})).json()["id"]
    await other.post(f"/api/sessions/{session}/messages", json={"content": "go"})
    (command,) = ledger.all(SubmitPrompt)
    assert (command.author_name, command.author_email) == ("Ada Lovelace", "ada@example.org")  # type: ignore[attr-defined]
    less = (await other.patch("/api/me", json={"display_name": None})).json()
    assert (less["email"], less["display_name"]) == ("ada@example.org", None)


@pytest.mark.parametrize(
    "body",
    [
        {"email": "nobody"},
        {"email": "a b@c"},
        {"email": "a@b\nX"},
        {"email": "<a@b>"},
        {"email": "a@" + "b" * 300},
        {"display_name": ""},
        {"display_name": " Ada"},
        {"display_name": "Ada\n"},
        {"display_name": "Ada <ada@x>"},
        {"display_name": "A\0"},
        {"name": "other"},
        {"display_name": "x" * 101},
    ],
    ids=str,
)
async def test_a_name_that_no_commit_can_carry_is_refused(client: httpx.AsyncClient, body: Any) -> None:
    problem(await client.patch("/api/me", json=body), 400)


async def test_a_user_is_made_with_a_name_for_commits(api: Any, client: httpx.AsyncClient) -> None:
    body = {"name": f"user-{new_id().lower()}", "email": "a@example.org", "display_name": "A"}
    made = (await client.post("/api/users", json=body)).json()
    async with httpx.AsyncClient(base_url=api.url, headers={"Authorization": f"Bearer {made['token']}"}) as http:
        me = (await http.get("/api/me")).json()
    assert (me["email"], me["display_name"]) == ("a@example.org", "A")


async def test_notifications_are_asked_of_the_event_bus(client: httpx.AsyncClient, nc: Client) -> None:
    asked: list[Any] = []

    async def listed(request: ListNotifications) -> Reply:
        asked.append(request)
        return NotificationPage(items=[], unread=0, next=None)

    async def marked(request: MarkNotificationsRead) -> Reply:
        asked.append(request)
        return NotificationsRead(marked=1, unread=0)

    serving = [
        await rpc.serve(nc, subjects.service("event-bus", kind.method), kind, handler, queue="first")  # type: ignore[arg-type]
        for kind, handler in ((ListNotifications, listed), (MarkNotificationsRead, marked))
    ]
    await nc.flush()
    page = await client.get("/api/notifications?unread=true&limit=5&before=9")
    assert page.json() == {"items": [], "unread": 0, "next": None}
    read = await client.post("/api/notifications/read", json={"ids": ["n"]})
    assert read.json() == {"marked": 1, "unread": 0}
    assert (asked[0].unread, asked[0].limit, asked[0].before) == (True, 5, 9)
    assert (asked[1].ids, asked[1].all) == (["n"], False)
    for body in ({}, {"ids": ["n"], "all": True}, {"ids": []}, {"ids": ["n"] * (limits.NOTIFICATION_IDS + 1)}):
        problem(await client.post("/api/notifications/read", json=body), 400)
    problem(await client.get("/api/notifications?before=x"), 400)
    for subscription in serving:
        await subscription.unsubscribe()
