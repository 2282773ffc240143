"""The commands that do something to a session, against an API that says what the test wants."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from valet_local.cli.testing import valet
from valet_local.client import bodies
from valet_local.client.testing import SESSION, VIEW, FakeApi, Seen
from valet_protocol.errors import Problem
from valet_protocol.events import agent, facts
from valet_protocol.requests import (
    Accepted,
    CommandView,
    DiffView,
    Done,
    MessageView,
    PromptView,
    QuestionView,
    ShareLinkView,
    StateView,
)

AT = f"/api/sessions/{SESSION}"
FORK = msgspec.structs.replace(VIEW, id="01ARZ3NDEKTSV4RRFFQ69G5FAW")
COMMAND = CommandView(request_id="r", command="revert", status="completed", due_at="2026-01-01T00:00:00.000Z", seq=3)
DIFF = DiffView(
    base_commit=None, head_commit=None, branch=None, files=[], patch="--- a\n+++ b\n", truncated=False, seq=3
)
QUESTION = QuestionView(
    question_id="q",
    kind="question",
    status="open",
    questions=[
        agent.Question(
            question="Which?", options=[agent.QuestionOption(label="Red"), agent.QuestionOption(label="Blue")]
        )
    ],
    due_at="2026-01-01T00:00:00.000Z",
    seq=4,
)
PERMISSION = msgspec.structs.replace(
    QUESTION, question_id="p", kind="permission", questions=[agent.Question(question="bash git push?")]
)
WAITING = PromptView(prompt_id="P1", content="first", author="u", mode="queue", seq=2)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        attachment = facts.Attachment(attachment_id="A", name="a.txt", mime="text/plain", bytes=5, sha256="0" * 64)
        taken = bodies.Participants(
            participants=[
                bodies.Participant(user="u1", name="ada", role="owner"),
                bodies.Participant(user="u2", name="bob", role="viewer"),
            ],
            links=[ShareLinkView(link_id="L", role="viewer", expires_at=None, created_by="u1")],
        )
        api.answers = {
            ("GET", AT): (200, msgspec.structs.replace(VIEW, queued=[WAITING], questions=[QUESTION])),
            ("PATCH", AT): (200, msgspec.structs.replace(VIEW, title="New")),
            ("DELETE", AT): (202, Done(seq=7)),
            ("POST", f"{AT}/messages"): (202, Accepted(prompt_id="P1", seq=5, status="queued")),
            ("POST", f"{AT}/attachments"): (201, attachment),
            ("POST", f"{AT}/answer"): (200, Done(seq=7)),
            ("POST", f"{AT}/abort"): (202, Done(seq=7)),
            ("PATCH", f"{AT}/prompts/P1"): (200, Done(seq=7)),
            ("DELETE", f"{AT}/prompts/P1"): (200, Done(seq=7)),
            ("POST", f"{AT}/queue"): (200, Done(seq=7)),
            ("POST", f"{AT}/revert"): (200, COMMAND),
            ("POST", f"{AT}/unrevert"): (200, COMMAND),
            ("POST", f"{AT}/fork"): (201, FORK),
            ("POST", "/api/import"): (201, FORK),
            ("POST", "/api/join"): (200, FORK),
            ("GET", f"{AT}/participants"): (200, taken),
            ("PUT", f"{AT}/participants/bob"): (200, Done(seq=7)),
            ("DELETE", f"{AT}/participants/bob"): (200, Done(seq=7)),
            ("DELETE", f"{AT}/links/L"): (200, Done(seq=7)),
            ("POST", f"{AT}/links"): (201, bodies.CreatedLink(link_id="L", token="t", url="http://x/join#t")),
            ("GET", f"{AT}/diff"): (200, DIFF),
        }
        yield api


def sent(api: FakeApi, method: str, path: str) -> Any:
    """The body of the one such request."""
    (seen,) = [one for one in api.seen if (one.method, one.path) == (method, path)]
    return json.loads(seen.body) if seen.body else None


async def test_send_says_everything_that_was_said(api: FakeApi, tmp_path: Path):
    file = tmp_path / "a.txt"
    file.write_text("hello")
    status, out, err = await valet(
        api, "send", SESSION, "do it", "--mode", "steer", "--attach", str(file), "--channel", "web:other",
        "--model", "p/m", "--fallback", "p/n", "--fallback", "q/o",
    )  # fmt: skip
    assert (status, out) == (0, "P1  queued\n")
    assert f"valet follow {SESSION} --after 4" in err
    (upload,) = [one for one in api.seen if one.path == f"{AT}/attachments"]
    assert (upload.body, upload.headers["content-type"]) == (b"hello", "text/plain")
    assert sent(api, "POST", f"{AT}/messages") == {
        "content": "do it",
        "kind": "prompt",
        "mode": "steer",
        "channel": "web:other",
        "model": "p/m",
        "fallbacks": ["p/n", "q/o"],
        "attachments": ["A"],
    }


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["/init now"], "command"),
        (["/etc/hosts is wrong"], "prompt"),
        (["--shell", "git status"], "shell"),
        (["--review"], "review"),
    ],
)
async def test_send_knows_the_kinds_of_prompts(api: FakeApi, words: list[str], kind: str):
    status, out, _ = await valet(api, "send", SESSION, *words, "--json")
    assert (status, json.loads(out)["prompt_id"]) == (0, "P1")
    assert sent(api, "POST", f"{AT}/messages")["kind"] == kind


@pytest.mark.parametrize(
    "words",
    [
        ["send", SESSION],
        ["send", SESSION, "x", "--shell", "--review"],
        ["send", SESSION, "x", "--attach", "/no/such"],
        ["share", SESSION, "--expires", "60"],
        ["queue", SESSION, "--withdraw", "a", "--order", "b"],
        ["state", SESSION],
    ],
    ids=" ".join,
)
async def test_what_cannot_be_meant_is_refused_before_anything_is_asked(api: FakeApi, words: list[str]):
    status, _, err = await valet(api, *words)
    assert status == 2
    assert err
    assert not api.seen


@pytest.mark.parametrize("word", ["2", "blue", "Blue"])
async def test_answer_takes_a_choice_or_its_number(api: FakeApi, word: str):
    status, _, err = await valet(api, "answer", SESSION, word)
    assert (status, err) == (0, "Answered (event 7).\n")
    assert sent(api, "POST", f"{AT}/answer") == {"question_id": "q", "answers": [["Blue"]]}


async def test_answer_without_an_answer_shows_what_is_open(api: FakeApi):
    status, out, _ = await valet(api, "answer", SESSION)
    assert status == 1
    assert "? Which?" in out
    assert "  2. Blue" in out
    api.answers["GET", AT] = (200, VIEW)
    assert (await valet(api, "answer", SESSION))[0] == 0


async def test_answer_asks_which_one_if_several_are_open(api: FakeApi):
    api.answers["GET", AT] = (200, msgspec.structs.replace(VIEW, questions=[QUESTION, PERMISSION]))
    status, _, err = await valet(api, "answer", SESSION, "once")
    assert status == 1
    assert "--question" in err
    status, _, err = await valet(api, "answer", SESSION, "perhaps", "--question", "p")
    assert status == 1
    assert "1 = once, 2 = always, 3 = reject" in err
    assert (await valet(api, "answer", SESSION, "once", "--question", "p"))[0] == 0
    assert sent(api, "POST", f"{AT}/answer") == {"question_id": "p", "answers": [["once"]]}


async def test_abort_and_rm_say_what_they_did(api: FakeApi):
    status, out, err = await valet(api, "abort", SESSION)
    assert (status, out, "event 7" in err) == (0, "", True)
    status, out, err = await valet(api, "rm", SESSION)
    assert (status, out, "history stays" in err) == (0, "", True)
    problem = Problem(title="Conflict", status=409, detail="nothing runs", code="nothing_running")
    api.answers["POST", f"{AT}/abort"] = (409, problem)
    assert await valet(api, "abort", SESSION) == (1, "", "error: nothing runs\n")


async def test_the_queue_is_listed_edited_withdrawn_from_and_reordered(api: FakeApi):
    status, out, _ = await valet(api, "queue", SESSION)
    assert (status, out.splitlines()[1].split()) == (0, ["P1", "queue", "web:default", "first"])
    assert (await valet(api, "queue", SESSION, "--edit", "P1", "other words"))[0] == 0
    assert sent(api, "PATCH", f"{AT}/prompts/P1") == {"content": "other words"}
    assert (await valet(api, "queue", SESSION, "--withdraw", "P1"))[0] == 0
    assert (await valet(api, "queue", SESSION, "--order", "P2, P1"))[0] == 0
    assert sent(api, "POST", f"{AT}/queue") == {"prompt_ids": ["P2", "P1"]}
    _, out, _ = await valet(api, "queue", SESSION, "--json")
    assert json.loads(out)[0]["prompt_id"] == "P1"


async def test_revert_says_which_files_changed_back_and_unrevert_that_it_was_done(api: FakeApi):
    files = [{"path": "a.py", "status": "modified", "additions": 1, "deletions": 0}]
    api.answers["POST", f"{AT}/revert"] = (200, msgspec.structs.replace(COMMAND, result={"files": files}))
    status, out, _ = await valet(api, "revert", SESSION, "msg_1")
    assert (status, out) == (0, "✓ done\n  a.py  changed back\n")
    assert sent(api, "POST", f"{AT}/revert") == {"message_id": "msg_1"}
    assert (await valet(api, "unrevert", SESSION))[:2] == (0, "✓ done\n")


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (msgspec.structs.replace(COMMAND, status="failed", error="no such message"), "✗ no such message"),
        (msgspec.structs.replace(COMMAND, status="timed_out", error="nobody answered"), "✗ nobody answered"),
        (msgspec.structs.replace(COMMAND, status="requested"), "has not happened yet"),
    ],
)
async def test_a_revert_that_was_not_done_exits_1_with_why(api: FakeApi, view: CommandView, words: str):
    api.answers["POST", f"{AT}/revert"] = (202, view)
    status, out, _ = await valet(api, "revert", SESSION, "msg_1")
    assert (status, words in out) == (1, True)


async def test_fork_prints_the_new_id_alone(api: FakeApi):
    assert (await valet(api, "fork", SESSION, "--at", "msg_1", "--title", "T"))[:2] == (0, f"{FORK.id}\n")
    assert sent(api, "POST", f"{AT}/fork") == {"message_id": "msg_1", "title": "T"}
    api.answers["POST", f"{AT}/fork"] = (201, msgspec.to_builtins(FORK) | {"left_out": "Its files are not kept."})
    status, out, err = await valet(api, "fork", SESSION, "--at", "msg_1")
    assert (status, out) == (0, f"{FORK.id}\n")
    assert "Its files are not kept." in err


async def test_an_export_is_written_whole_though_its_connection_is_cut_and_can_be_imported(
    api: FakeApi, tmp_path: Path
):
    lines = b"".join(b'{"seq":%d}\n' % n for n in range(1, 2000))
    api.bodies[f"{AT}/export"] = lines
    api.cuts = [5000, 0]
    file = tmp_path / "session.jsonl"
    status, out, err = await valet(api, "export", SESSION, "-o", str(file))
    assert (status, out) == (0, "")
    assert file.read_bytes() == lines
    assert str(file) in err
    assert os.listdir(tmp_path) == [file.name]
    assert (await valet(api, "export", SESSION))[:2] == (0, lines.decode())
    api.cuts = [7000]
    assert (await valet(api, "export", SESSION, "--files"))[:2] == (0, lines.decode())
    assert [one.query for one in api.seen if one.path == f"{AT}/export"][-2:] == ["files=true"] * 2
    assert (await valet(api, "import", str(file), "--title", "T"))[:2] == (0, f"{FORK.id}\n")
    (seen,) = [one for one in api.seen if one.path == "/api/import"]
    assert (seen.body, seen.headers["content-type"]) == (lines, "application/jsonl")
    status, _, err = await valet(api, "import", str(tmp_path / "none"))
    assert (status, "No such file" in err) == (1, True)


async def test_a_session_is_shared_by_name_and_by_link(api: FakeApi):
    status, out, _ = await valet(api, "share", SESSION)
    assert (status, out.splitlines()[1].split()[:2]) == (0, ["ada", "owner"])
    assert (await valet(api, "share", SESSION, "--user", "bob", "--role", "collaborator"))[0] == 0
    assert sent(api, "PUT", f"{AT}/participants/bob") == {"role": "collaborator"}
    status, out, err = await valet(api, "share", SESSION, "--link", "--expires", "3600")
    assert (status, out, "--revoke L" in err) == (0, "http://x/join#t\n", True)
    assert sent(api, "POST", f"{AT}/links") == {"role": "viewer", "expires_in_s": 3600}
    assert (await valet(api, "share", SESSION, "--revoke", "L"))[0] == 0
    assert (await valet(api, "share", SESSION, "--revoke", "bob"))[0] == 0
    assert [one.path for one in api.seen if one.method == "DELETE"] == [f"{AT}/links/L", f"{AT}/participants/bob"]


@pytest.mark.parametrize("given", ["t", "http://127.0.0.1:1/join#t"])
async def test_join_takes_a_token_or_the_whole_address(api: FakeApi, given: str):
    status, out, err = await valet(api, "join", given)
    assert (status, out, "valet follow" in err) == (0, f"{FORK.id}\n", True)
    assert sent(api, "POST", "/api/join") == {"token": "t"}


async def test_rename_diff_and_state(api: FakeApi):
    assert await valet(api, "rename", SESSION, "New") == (0, "", "It is called 'New' now.\n")
    assert (await valet(api, "diff", SESSION, "--turn", "T"))[:2] == (0, DIFF.patch)
    message = MessageView(
        id="m", role="user", turn_id=None, author="u", text="hello", parts=[], finish=None, model=None, cost=0,
        tokens=agent.Tokens(), error=None, parent_session=None, complete=True, reverted=True,
        created_at="2026-01-01T00:00:00.000Z", seq=1,
    )  # fmt: skip
    first = StateView(at=5, session=VIEW, messages=[message], next=1, diff=DIFF)
    last = msgspec.structs.replace(first, messages=[msgspec.structs.replace(message, id="n", seq=2)], next=None)
    pages = [first, last]

    def turn_the_page(seen: Seen) -> None:
        if seen.path == f"{AT}/state":
            api.answers["GET", f"{AT}/state"] = (200, pages.pop(0))

    api.on_request = turn_the_page
    status, out, _ = await valet(api, "state", SESSION, "--at", "5")
    assert (status, out.count("> hello"), out.count("taken back:")) == (0, 2, 2)
    assert "+++ b" in out
