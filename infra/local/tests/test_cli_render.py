"""The transcript: what is written for a sequence of events."""

import json
from typing import Any

from valet_local.cli.pieces import Piece
from valet_local.cli.render import render, synced
from valet_local.cli.transcript import Transcript
from valet_local.client.follow import Entry
from valet_local.client.testing import entry, event
from valet_protocol.codec import decode_data, decode_envelope, encode
from valet_protocol.events import agent, facts
from valet_protocol.events.delta import Delta
from valet_protocol.events.envelope import Data, Event


def stored(data: Data | tuple[str, Delta]) -> Entry:
    if isinstance(data, tuple):
        kind, delta = data
        return entry(Event(id="E", type=f"delta.{kind}", session_id="S", time_ms=0, data=delta))
    return entry(event(data))


def text(offset: int, words: str, part: str = "p1", kind: str = "text", message: str = "m1") -> tuple[str, Delta]:
    return kind, Delta(message_id=message, part_id=part, offset=offset, text=words)


def whole(words: str, part: str = "p1", kind: Any = "text", message: str = "m1") -> agent.TextCompleted:
    return agent.TextCompleted(message_id=message, part_id=part, kind=kind, text=words)


def tool(status: Any, **more: Any) -> agent.ToolUpdated:
    return agent.ToolUpdated(message_id="m1", part_id="t1", call_id="c", tool="bash", status=status, **more)


def pieces(*data: Data | tuple[str, Delta]) -> list[Piece]:
    state = Transcript(live=True)
    found: list[Piece] = []
    for one in data:
        state, fresh = render(state, stored(one))
        found += fresh
    return found


def written(*data: Data | tuple[str, Delta]) -> str:
    return "".join(span.text for piece in pieces(*data) if not piece.aside for span in piece.spans)


def test_text_is_written_as_it_arrives():
    state = Transcript()
    state, first = render(state, stored(text(0, "Hel")))
    _, second = render(state, stored(text(3, "lo")))
    assert first[0].spans[0].text == "Hel"
    assert second[0].spans[0].text == "lo"


def test_chunks_that_come_again_or_overlap_are_written_once():
    assert written(text(0, "Hello"), text(0, "Hello"), text(3, "lo wor"), text(9, "ld")) == "Hello world"


def test_after_a_gap_the_completed_text_is_written():
    assert written(text(0, "He"), text(4, "o w"), text(7, "orld"), whole("Hello world")) == "Hello world\n"


def test_a_follower_that_begins_in_the_middle_of_a_part_gets_it_whole():
    assert written(text(6, "world"), whole("Hello world")) == "Hello world\n"


def test_a_chunk_that_comes_after_its_completed_text_is_dropped():
    assert written(text(0, "He"), whole("Hello"), text(2, "llo")) == "Hello\n"


def test_history_without_chunks_reads_the_same_as_the_live_session():
    live = written(text(0, "Hel"), text(3, "lo"), whole("Hello"), tool("running"), whole("Bye", "p2"))
    assert live == written(whole("Hello"), tool("running"), whole("Bye", "p2"))


def test_a_new_part_begins_on_a_line_of_its_own():
    assert written(text(0, "think", "p0", "reasoning"), text(0, "say"), tool("pending")).split("\n")[:5] == [
        "think",
        "",
        "say",
        "",
        "· bash  pending",
    ]


def test_a_tool_call_is_shown_in_every_state_with_what_it_does_and_how_long_it_took():
    call = {"command": "make test"}
    lines = written(
        tool("pending"),
        tool("running", input=call),
        tool("completed", input=call, output="1\n2\n", started_ms=1000, ended_ms=3500),
    ).splitlines()
    assert lines == [
        "· bash  pending",
        "▸ bash  make test  running",
        "✓ bash  make test  completed  2.5 s",
        "    1",
        "    2",
    ]


def test_the_states_of_a_call_take_each_others_line_and_its_output_does_not():
    keys = [piece.key for piece in pieces(tool("pending"), tool("completed", output="x"))]
    assert keys == ["t1", "t1", None]


def test_a_call_that_did_not_change_is_not_shown_again():
    assert written(tool("running"), tool("running", metadata={"output": "x"})).count("running") == 1


def test_of_history_the_end_of_a_call_is_shown_behind_its_text_and_what_is_under_way_when_it_ends():
    state = Transcript()
    shown = ""
    other = agent.ToolUpdated(message_id="m1", part_id="t2", call_id="d", tool="grep", status="running")
    for data in (tool("running"), whole("I look."), tool("completed"), other):
        state, fresh = render(state, stored(data))
        shown += "".join(span.text for piece in fresh for span in piece.spans)
    assert shown.splitlines() == ["I look.", "", "✓ bash  completed"]
    state, fresh = synced(state)
    assert "".join(span.text for piece in fresh for span in piece.spans) == "▸ grep  running\n"


def test_a_failed_call_says_why():
    assert "no such file" in written(tool("error", error="no such file"))


def test_a_question_names_its_default_and_when_it_is_taken():
    session = facts.SessionRequested(owner="u", model="p/m", policy=facts.SessionPolicy(question_timeout_s=5))
    options = [agent.QuestionOption(label="Yes", description="do it"), agent.QuestionOption(label="No")]
    asked = agent.QuestionAsked(
        question_id="q", kind="question", questions=[agent.Question(question="Shall I?", options=options)]
    )
    answered = facts.QuestionAnswered(question_id="q", answers=[["Yes"]], answered_by="default")
    lines = written(session, asked, answered).splitlines()[2:]
    assert lines == [
        "? Shall I?",
        "  1. Yes — do it  ← taken in 5 s if nobody answers",
        "  2. No",
        "→ Yes  (the default: nobody answered in time)",
    ]


def test_a_failed_session_shows_the_failing_programs_words():
    failed = facts.SessionFailed(code="clone_failed", detail="fatal: repository not found\nexit 128")
    assert written(failed) == "✗ the session failed: fatal: repository not found\n  exit 128\n"


def test_the_end_of_a_turn_has_its_figures():
    ended = agent.TurnEnded(
        turn_id="t", status="completed", cost=0.0123, duration_ms=65_000, first_token_ms=840,
        tokens=agent.Tokens(input=10, cache_read=5, output=7),
    )  # fmt: skip
    assert written(ended) == "✓ completed  1 min 5 s · first token after 840 ms · 15 tokens in, 7 out · $0.0123\n"


def test_an_agents_text_cannot_command_the_terminal():
    shown = written(text(0, "a\x1b[2Jb\x07\u202ec\td\r\n"), tool("completed", output="\x1b]0;title\x07"))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    assert "c\td\n" in shown


def test_news_of_the_platform_is_not_part_of_the_transcript():
    news = facts.SandboxRequested(epoch=2, reason="recovery", model="p/m", boot_deadline_ms=0)
    assert written(news) == ""
    assert [piece.aside for piece in pieces(news)] == [True]


def test_an_unknown_event_is_passed_over():
    raw = encode(event(agent.SessionTitled(title="x")), source="/t").payload
    envelope = decode_envelope(raw.replace(b"agent.session_titled", b"agent.of_the_future"))
    later = Entry(seq=1, envelope=envelope, data=decode_data(envelope), raw=raw)
    assert render(Transcript(), later) == (Transcript(), ())


def test_a_sub_agents_text_is_one_line_below_the_call_that_started_it():
    helper = agent.MessageCreated(message_id="h", parent_session="ses_1")
    shown = written(helper, text(0, "look", "p9", message="h"), whole("looked\naround", "p9", message="h"))
    assert shown == "  │ looked around\n"


# -- prompts, other models, commands, reviews --------------------------------------------------------------


def accepted(**more: Any) -> facts.PromptAccepted:
    return facts.PromptAccepted(**{"prompt_id": "P", "content": "do it", "author": "u", "model": "p/m", **more})


def test_a_prompt_says_what_it_is_and_what_comes_with_it():
    file = facts.Attachment(attachment_id="A", name="a.png", mime="image/png", bytes=1500, sha256="0")
    assert written(accepted(kind="shell", content="git log")) == "$ git log\n"
    assert written(accepted(kind="review", content="")) == "> Review what was changed.\n"
    assert written(accepted(attachments=[file], mode="steer", channel="slack:C1")).splitlines() == [
        "> do it",
        "  with a.png (1,500 bytes)",
        "  goes into the running turn, in slack:C1",
    ]


def test_a_steered_prompt_shows_where_it_goes_and_whether_the_agent_has_it():
    steered = facts.PromptSteered(turn_id="T", prompt_id="P", content="not the API", author="u")
    taken = agent.PromptTaken(turn_id="T", prompt_id="P", outcome="delivered")
    assert written(steered, taken).splitlines() == ["↪ into the running turn: not the API", "↪ the agent has it"]
    missed = agent.PromptTaken(turn_id="T", prompt_id="P", outcome="missed")
    assert "a turn of its own" in written(steered, missed)


def test_another_model_is_named_with_why():
    error = agent.AgentError(name="APIError", message="overloaded", status=529)
    switched = agent.ModelSwitched(turn_id="T", from_model="p/a", to_model="q/b", error=error)
    assert written(switched) == "⇄ p/a could not answer: overloaded\n  q/b goes on\n"


def test_a_review_is_a_table_whose_columns_stand_under_each_other():
    findings = [
        agent.Finding(file="src/long_name.py", line=120, severity="critical", text="Loses data.\nAlways."),
        agent.Finding(file="", severity="info", text="No tests."),
    ]
    review = agent.ReviewCompleted(turn_id="T", summary="Two things.", findings=findings)
    assert written(review).splitlines() == [
        "Two things.",
        "critical  src/long_name.py:120  Loses data.",
        "                                Always.",
        "info      –                     No tests.",
    ]
    assert "No findings." in written(agent.ReviewCompleted(turn_id="T", summary="Fine.", findings=[]))


def test_going_back_and_forth_is_said_with_the_files():
    changed = agent.FileChange(path="a.py", status="modified", additions=2, deletions=1)
    back = agent.ConversationReverted(message_id="msg_1", files=[changed])
    assert written(back).splitlines() == ["↶ taken back  everything from message msg_1 on", "  a.py  +2 −1"]
    assert written(agent.ConversationUnreverted()) == "↷ what was taken back counts again\n"


def test_a_command_shows_its_result_or_why_there_is_none():
    asked = facts.CommandRequested(request_id="r", command="list_commands", by="u", due_ms=0)
    commands = [{"name": "init", "description": "Write AGENTS.md"}]
    done = agent.CommandCompleted(request_id="r", result={"commands": commands})
    assert written(asked, done) == "/init  Write AGENTS.md\n"
    failed = agent.CommandCompleted(request_id="r", error="not now")
    assert written(asked, failed) == "✗ list_commands: not now\n"
    assert written(asked, facts.CommandTimedOut(request_id="r", detail="no runner")) == "✗ list_commands: no runner\n"
    assert written(asked, agent.CommandCompleted(request_id="r", result={"commands": 7})) == ""


def test_what_was_taken_over_from_another_session_is_shown_as_it_was_there():
    imported = facts.SessionImported(owner="u", model="p/m", source_session="S", source_seq=9, forked=True)

    def event_of(data: Data) -> facts.EventImported:
        fields = stored(data)
        return facts.EventImported(
            type=fields.envelope.type, version=fields.envelope.dataversion, time=fields.envelope.time, source_seq=1,
            data=json.loads(bytes(fields.envelope.data)),
        )  # fmt: skip

    lost = facts.SandboxRequested(epoch=1, reason="created", model="p/m", boot_deadline_ms=0)
    shown = pieces(imported, event_of(accepted()), event_of(lost), event_of(whole("Done.")))
    assert not [piece for piece in shown if piece.aside]
    text = "".join(span.text for piece in shown for span in piece.spans)
    assert text.splitlines() == ["a fork of S · p/m", "", "> do it", "", "Done."]
    strange = facts.EventImported(type="agent.turn_ended", version=1, time="", source_seq=1, data={"no": "such"})
    assert written(strange) == ""


def test_news_of_people_and_watchdogs_is_beside_the_transcript():
    news = (
        facts.ParticipantAdded(user="u2", role="viewer", by="u"),
        facts.ShareLinkRevoked(link_id="L", by="u"),
        facts.TurnInterruptRequested(turn_id="T", by="", reason="silent"),
        facts.PromptWithdrawn(prompt_id="P", by="u"),
        agent.WorkSaved(turn_id="T", work=agent.WorkRef(object="o", bytes=1, sha256="0"), left_out=["big.bin"]),
    )
    assert [piece.aside for piece in pieces(*news)] == [True] * len(news)
    saved = agent.WorkSaved(turn_id="T", work=agent.WorkRef(object="o", bytes=1, sha256="0"))
    assert pieces(saved) == []
