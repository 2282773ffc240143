"""Claims about the translation, each for a behaviour of OpenCode that was recorded from 1.18; pure."""

import msgspec
from valet_protocol.events import agent, facts
from valet_runner import frames, limits, reconcile, translate, turn_state
from valet_runner.bridge_state import BridgeState, Chunk, Item
from valet_runner.turns import Turn, outcome, settled

ROOT = "ses_root"
STATE = turn_state.begin_turn(BridgeState(root=ROOT), "msg_100user")
MESSAGE = "msg_101a"
FACT = facts.TurnDispatched(turn_id="t", prompt_id="p", content="do", model="scripted/scripted-1", author="u")
TURN = Turn(fact=FACT, user_message="msg_100user", began=1.0)


def frame(kind: str, **properties: object) -> frames.Shape:
    decoded = frames.decode(msgspec.json.encode({"id": "evt_1", "type": kind, "properties": properties}))
    assert decoded is not None
    return decoded


def message(id: str = MESSAGE, session: str = ROOT, *, done: bool = False, **more: object) -> frames.Shape:
    time = {"created": 1} | ({"completed": 2} if done else {})
    info = {"id": id, "sessionID": session, "role": "assistant", "time": time, "providerID": "p", "modelID": "m"}
    return frame("message.updated", sessionID=session, info=info | more)


def text(
    value: str = "", *, end: bool = False, part: str = "prt_1", kind: str = "text", **more: object
) -> frames.Shape:
    time = {"start": 1} | ({"end": 2} if end else {})
    whole = {"id": part, "messageID": MESSAGE, "sessionID": ROOT, "type": kind, "text": value, "time": time}
    return frame("message.part.updated", sessionID=ROOT, part=whole | more)


def delta(value: str, part: str = "prt_1") -> frames.Shape:
    return frame("message.part.delta", sessionID=ROOT, messageID=MESSAGE, partID=part, field="text", delta=value)


def tool(status: str, **state: object) -> frames.Shape:
    whole = {"id": "prt_t", "messageID": MESSAGE, "sessionID": ROOT, "type": "tool", "tool": "bash", "callID": "call_1"}
    return frame("message.part.updated", sessionID=ROOT, part=whole | {"state": {"status": status} | state})


def status(kind: str, session: str = ROOT, **more: object) -> frames.Shape:
    return frame("session.status", sessionID=session, status={"type": kind} | more)


IDLE = frame("session.idle", sessionID=ROOT)


def error(name: str, words: str = "words") -> frames.Shape:
    return frame("session.error", sessionID=ROOT, error={"name": name, "data": {"message": words}})


def play(*many: frames.Shape, state: BridgeState = STATE) -> tuple[BridgeState, list[Item]]:
    return translate.translate_all(state, many)


def kinds(items: list[Item]) -> list[str]:
    return [item.kind if isinstance(item, Chunk) else type(item).__name__ for item in items]


def test_text_and_reasoning_deltas_are_told_apart_by_their_part() -> None:
    _, items = play(
        message(),
        text(part="prt_0", kind="reasoning"),
        delta("hm", part="prt_0"),
        text("hm", part="prt_0", kind="reasoning", end=True),
        text(),
        delta("Hé"),
        delta("llo"),
        text("Héllo", end=True),
        message(done=True, finish="stop", cost=0.5),
    )
    assert kinds(items) == [
        "MessageCreated",
        "reasoning",
        "TextCompleted",
        "text",
        "text",
        "TextCompleted",
        "MessageCompleted",
    ]
    assert [item.delta.offset for item in items if isinstance(item, Chunk)] == [0, 0, 2]  # code points, not bytes
    assert items[-1] == agent.MessageCompleted(message_id=MESSAGE, text="Héllo", finish="stop", model="p/m", cost=0.5)


def test_everything_twice_is_said_once() -> None:
    once = (message(), text(), delta("a"), text("a", end=True), tool("completed", output="x"), message(done=True))
    state, first = play(*once)
    _, second = play(*once, state=state)
    assert second == []
    assert len(first) == 5


def test_frames_of_an_earlier_turn_are_nobodys() -> None:
    _, items = play(message("msg_099old"), message("msg_099old", done=True))
    assert items == []


def test_a_late_older_tool_state_does_not_take_a_call_back() -> None:
    state, _ = play(message(), tool("running", input={"command": "ls"}))
    state, items = play(tool("completed", output="done"), tool("running", metadata={"output": "x"}), state=state)
    assert [item.status for item in items if isinstance(item, agent.ToolUpdated)] == ["completed"]


def test_a_running_bash_says_its_output_so_far_and_only_its_end() -> None:
    _, items = play(message(), tool("running", metadata={"output": "x" * (limits.TOOL_OUTPUT_CHARS + 5)}))
    said = items[-1]
    assert isinstance(said, agent.ToolUpdated)
    assert said.output is not None
    assert said.output.startswith("… cut: 5 characters …")
    assert "output" not in said.metadata


def test_a_huge_tool_input_is_cut() -> None:
    _, items = play(message(), tool("running", input={"content": "y" * 5_000_000, "filePath": "/a"}))
    assert len(msgspec.json.encode(items[-1])) < limits.TOOL_FIELD_BYTES * 2
    assert isinstance(items[-1], agent.ToolUpdated)
    assert items[-1].input["filePath"] == "/a"


def test_a_permission_may_come_before_its_tool_part() -> None:
    asked = frame(
        "permission.asked",
        id="per_1",
        sessionID=ROOT,
        permission="bash",
        patterns=["ls"],
        metadata={},
        tool={"messageID": MESSAGE, "callID": "call_1"},
    )
    state, items = play(message(), asked, asked, tool("running"))
    assert kinds(items) == ["MessageCreated", "QuestionAsked", "ToolUpdated"]
    question = items[1]
    assert isinstance(question, agent.QuestionAsked)
    assert (question.kind, question.call_id, question.permission) == ("permission", "call_1", "bash")
    assert question.questions[0].options[0].label == "reject"  # what happens by default is the harmless thing
    _, items = play(frame("permission.replied", sessionID=ROOT, requestID="per_1", reply="reject"), state=state)
    assert items == [agent.QuestionResolved(question_id="per_1", outcome="rejected")]


def test_questions_left_open_by_an_abort_are_dropped_at_the_turns_end() -> None:
    asked = frame("question.asked", id="que_1", sessionID=ROOT, questions=[{"question": "?", "options": []}])
    state, _ = play(message(), asked)
    state, items = turn_state.end_turn(state, "aborted")
    assert items[-1] == agent.QuestionResolved(question_id="que_1", outcome="dropped")
    assert state.questions == {}


def test_the_idle_of_a_sub_agent_is_not_the_turns_and_its_messages_name_it() -> None:
    child = frame("session.created", info={"id": "ses_child", "parentID": ROOT, "title": "sub"})
    grandchild = frame("session.created", info={"id": "ses_grand", "parentID": "ses_child", "title": "sub"})
    state, items = play(
        child,
        grandchild,
        message("msg_102b", "ses_child"),
        message("msg_103c", "ses_grand", done=True),
        frame("session.idle", sessionID="ses_child"),
        status("idle", "ses_child"),
        message("msg_102x", "ses_stranger"),
    )
    assert not state.idle
    assert [getattr(item, "parent_session", None) for item in items] == ["ses_child", "ses_grand", "ses_grand"]


def test_an_error_with_two_idles_is_one_failed_turn() -> None:
    state, _ = play(message(), error("APIError", "wrong key"), status("idle"), IDLE)
    assert state.idle
    assert not settled(state, TURN)  # the message is not whole yet
    failed = message(done=True, error={"name": "APIError", "data": {"message": "wrong key", "statusCode": 401}})
    state, _ = play(failed, status("idle"), IDLE, state=state)
    assert settled(state, TURN)
    ended = outcome(state, TURN, 2.0)
    assert ended.status == "failed"
    assert ended.error == agent.AgentError(name="APIError", message="wrong key", status=401)


def test_an_error_without_any_message_is_a_failed_turn() -> None:
    state, _ = play(error("UnknownError", "Agent not found"))
    assert settled(state, TURN)
    assert outcome(state, TURN, 2.0).status == "failed"


def test_an_overflow_that_was_compacted_away_is_not_the_turns_error() -> None:
    state, _ = play(
        message(),
        error("ContextOverflowError"),
        message(done=True),
        message("msg_102summary", summary=True),
        message("msg_102summary", done=True, finish="stop", summary=True),
        message("msg_103answer"),
        message("msg_103answer", done=True, finish="stop"),
        IDLE,
    )
    assert outcome(state, TURN, 2.0).status == "completed"


def test_an_overflow_that_stayed_is() -> None:
    failed = {"name": "ContextOverflowError", "data": {"message": "too long"}}
    state, items = play(
        message(), message(done=True), message("msg_102s"), message("msg_102s", done=True, error=failed), IDLE
    )
    state, again = play(message("msg_102s", done=True, error=failed), state=state)
    assert again == []
    assert outcome(state, TURN, 2.0).error == agent.AgentError(name="ContextOverflowError", message="too long")
    assert len(items) == 4


def test_an_abort_is_interrupted_and_idle_before_the_message_is_whole_does_not_settle_it() -> None:
    state, items = play(message(), text(), delta("par"), error("MessageAbortedError"), status("idle"), IDLE)
    assert not settled(state, TURN)
    aborted = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    state, late = play(text("par", end=True), message(done=True, error=aborted), state=state)
    assert kinds(late) == ["TextCompleted", "MessageCompleted"]
    assert outcome(state, msgspec.structs.replace(TURN, interrupted=True), 2.0).status == "interrupted"
    assert len(items) == 2


def test_a_retry_takes_back_what_the_broken_try_streamed() -> None:
    state, items = play(
        message(), text(), delta("broken"), status("retry", attempt=1, message="cut", next=1795168505701.5)
    )
    assert items[-2] == agent.TextCompleted(message_id=MESSAGE, part_id="prt_1", kind="text", text="")
    assert items[-1] == agent.StatusChanged(status="retrying", attempt=1, message="cut", retry_at_ms=1795168505701)
    state, items = play(
        status("busy"),
        status("busy"),
        text(part="prt_2"),
        delta("whole", part="prt_2"),
        text("whole", part="prt_2", end=True),
        message(done=True, finish="stop"),
        state=state,
    )
    assert kinds(items) == ["StatusChanged", "text", "TextCompleted", "MessageCompleted"]
    assert isinstance(items[-1], agent.MessageCompleted)
    assert items[-1].text == "whole"


def test_an_unknown_tool_becomes_invalid_and_the_turn_goes_on() -> None:
    _, items = play(message(), tool("pending", input={}, raw=""), tool("completed", input={}, output="unknown tool"))
    assert [item.status for item in items if isinstance(item, agent.ToolUpdated)] == ["pending", "completed"]


def test_after_a_cut_no_chunk_is_placed_wrongly_and_the_text_is_whole() -> None:
    state, _ = play(message(), text(), delta("one "))
    state = turn_state.after_gap(state)
    state, items = play(delta("three "), text("one two three ", end=True), state=state)
    assert kinds(items) == ["TextCompleted"]


def test_a_part_that_only_the_api_tells_of_streams_again_once_its_beginning_is_seen() -> None:
    listed = reconcile.Listing(
        statuses={ROOT: frames.Status(type="busy")},
        messages=[
            frames.Message(
                info=frames.Info(id=MESSAGE, role="assistant", session_id=ROOT),
                parts=[frames.Part(id="prt_1", message_id=MESSAGE, session_id=ROOT, type="text")],
            )
        ],
    )
    state, items = play(*reconcile.frames_of(listed, STATE))
    assert kinds(items) == ["MessageCreated"]
    _, unplaced = play(delta("x"), state=state)
    assert unplaced == []
    _, placed = play(text(), delta("x"), state=state)
    assert kinds(placed) == ["text"]


def test_what_the_api_lists_makes_up_for_frames_that_never_came() -> None:
    state, first = play(message(), text(), delta("a"))
    listed = reconcile.Listing(
        statuses={},
        messages=[
            frames.Message(
                info=frames.Info(
                    id=MESSAGE,
                    role="assistant",
                    session_id=ROOT,
                    time=frames.Span(created=1, completed=2),
                    finish="stop",
                ),
                parts=[
                    frames.Part(
                        id="prt_1",
                        message_id=MESSAGE,
                        session_id=ROOT,
                        type="text",
                        text="all of it",
                        time=frames.Span(start=1, end=2),
                    )
                ],
            )
        ],
    )
    state, items = play(*reconcile.frames_of(listed, state), state=state)
    assert kinds(first + items) == ["MessageCreated", "text", "TextCompleted", "MessageCompleted"]
    assert state.idle
    assert settled(state, TURN)
    _, again = play(*reconcile.frames_of(listed, state), state=state)
    assert again == []


def test_the_end_of_opencode_completes_what_was_streaming() -> None:
    state, _ = play(message(), text(), delta("half a sent"), tool("running", input={"command": "sleep 9"}))
    _, items = turn_state.end_turn(state, "OpenCode ended")
    assert kinds(items) == ["ToolUpdated", "TextCompleted", "MessageCompleted"]
    assert isinstance(items[0], agent.ToolUpdated)
    assert (items[0].status, items[0].error) == ("error", "OpenCode ended")
    assert isinstance(items[2], agent.MessageCompleted)
    assert items[2].text == "half a sent"


def test_a_title_is_said_once_it_is_a_title() -> None:
    def titled(title: str) -> frames.Shape:
        return frame("session.updated", info={"id": ROOT, "title": title})

    _, items = play(titled("New session - 2026-11-20T09:52:31.482Z"), titled("Fix it"), titled("Fix it"))
    assert items == [agent.SessionTitled(title="Fix it")]


def test_unknown_frames_and_unknown_fields_are_no_error() -> None:
    assert frames.decode(b'{"id":"e","type":"plugin.added","properties":{"x":1}}') is None
    assert frames.decode(b'{"type":"session.idle","properties":{"sessionID":"s","new":1},"more":2}') is not None


def test_a_turns_cost_is_that_of_all_its_messages() -> None:
    tokens = {"input": 10, "output": 3, "reasoning": 1, "cache": {"read": 5, "write": 2}}
    child = frame("session.created", info={"id": "ses_child", "parentID": ROOT})
    state, _ = play(
        child,
        message(done=True, cost=0.5, tokens=tokens, finish="stop"),
        message("msg_102b", "ses_child", done=True, cost=0.25, tokens=tokens),
    )
    ended = outcome(state, TURN, 3.5)
    assert ended.cost == 0.75
    assert ended.tokens == agent.Tokens(input=20, output=6, reasoning=2, cache_read=10, cache_write=4)
    assert ended.duration_ms == 2500
