"""Claims about scenario files and about the answer that is decided from them. Pure: nothing runs here."""

import json
from pathlib import Path

import msgspec
import pytest
from valet_local.model import limits
from valet_local.model.errors import RequestRefused, ScenarioInvalid, ScenarioUnplayable, ScenarioUnreadable
from valet_local.model.plan import Call, Plan, plan_response
from valet_local.model.request import ChatRequest, decode
from valet_local.model.scenario import Reasoning, Scenario, Text, load, load_builtin, parse

SYSTEM = {"role": "system", "content": "You are an agent.\n<env>\n  Working directory: /workspace/repo\n</env>"}
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]


def request(*messages: object, tools: object = TOOLS) -> ChatRequest:
    return decode(json.dumps({"model": "m", "messages": [SYSTEM, *messages], "tools": tools}).encode())


def user(text: object) -> object:
    return {"role": "user", "content": text}


def called(plan: Plan, output: str) -> list[object]:
    """What the agent appends to the conversation once it has run the plan's tool calls."""
    calls = [piece for piece in plan.pieces if isinstance(piece, Call)]
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": call.id, "type": "function"} for call in calls]},
        *({"role": "tool", "tool_call_id": call.id, "content": output} for call in calls),
    ]


def text(plan: Plan) -> str:
    return "".join(piece.text for piece in plan.pieces if isinstance(piece, Text))


def only_call(plan: Plan) -> Call:
    (call,) = (piece for piece in plan.pieces if isinstance(piece, Call))
    return call


@pytest.fixture(scope="module")
def tests_scenario() -> Scenario:
    return load_builtin("tests")


@pytest.mark.parametrize("name", ["demo", "tests"])
def test_shipped_scenarios_are_valid(name: str) -> None:
    assert load_builtin(name).turns


@pytest.mark.parametrize(
    ("toml", "key", "reason"),
    [
        ("[[turn]]\nwhen = 'a'\nstep = [{ pacing = 1 }]", "turn[0].step[0]", "unknown field `pacing`"),
        ("[[turn]]\nwhen = '('\nstep = [{}]", "turn[0]", "not a regular expression"),
        ("[[turn]]\nwhen = 'a'\nstep = []", "turn[0].step", "length >= 1"),
        (
            "[[turn]]\nwhen = 'a'\n[[turn.step]]\n[[turn.step.action]]\ntype = 'text'\ntext = '{{group:1}}'",
            "turn[0]",
            "{{group:1}}: `when` has no such group",
        ),
        (
            "[[default.step]]\n[[default.step.action]]\ntype = 'tool'\nname = 'x'\narguments = { a = ['{{now}}'] }",
            "default",
            "{{now}}: no such template",
        ),
        ("pace = { delay_ms = -1 }", "pace.delay_ms", ">= 0"),
        ("[[default.step]]\nfault = { type = 'explode' }", "default.step[0].fault.type", "Invalid value 'explode'"),
        ("[[default.step]]\nfault = { type = 'cut', tries = 'some' }", "default.step[0].fault.tries", "Invalid"),
    ],
)
def test_a_wrong_scenario_is_refused_with_file_key_and_reason(toml: str, key: str, reason: str) -> None:
    with pytest.raises(ScenarioInvalid) as refusal:
        parse(toml, "mine.toml")
    assert refusal.value.key == key
    assert reason in refusal.value.reason
    assert str(refusal.value).startswith("mine.toml: ")


def test_text_that_is_not_toml_is_refused_with_its_line() -> None:
    with pytest.raises(ScenarioUnreadable, match="line 2"):
        parse("name = 'x'\n]", "mine.toml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioUnreadable, match=r"absent\.toml: No such file"):
        load(tmp_path / "absent.toml")


def test_the_first_matching_turn_answers_and_the_default_otherwise(tests_scenario: Scenario) -> None:
    assert text(plan_response(tests_scenario, request(user("say hello")), 0)) == "hello"
    assert "unheard of" in text(plan_response(tests_scenario, request(user("unheard of")), 0))


def test_only_the_last_prompt_counts(tests_scenario: Scenario) -> None:
    plan = plan_response(
        tests_scenario, request(user("say a"), {"role": "assistant", "content": "a"}, user("say b")), 0
    )
    assert (text(plan), plan.step) == ("b", 0)


@pytest.mark.parametrize(
    "content",
    [
        [
            {"type": "text", "text": "say hi"},
            {"type": "text", "text": "<system-reminder>\nPlan mode.\nsay no\n</system-reminder>"},
        ],
        "<system-reminder>\nThe user sent the following message:\nsay hi\n\n"
        "Please address this message and continue with your tasks.\n</system-reminder>",
        [{"type": "text", "text": "Called the Read tool with a file"}, {"type": "text", "text": "say hi"}],
    ],
)
def test_what_the_agent_adds_to_a_prompt_is_not_taken_for_it(tests_scenario: Scenario, content: object) -> None:
    assert text(plan_response(tests_scenario, request(user(content)), 0)) == "hi"


def test_an_image_message_of_a_tool_does_not_start_a_turn(tests_scenario: Scenario) -> None:
    first = plan_response(tests_scenario, request(user("bash ls")), 0)
    image = user([{"type": "image_url", "image_url": {"url": "data:"}}])
    assert text(plan_response(tests_scenario, request(user("bash ls"), *called(first, "out"), image), 0)) == "out"


def test_steps_follow_each_other_and_then_the_turn_is_over(tests_scenario: Scenario) -> None:
    prompt = user("work a.txt")
    done: list[object] = []
    steps: list[int] = []
    for _ in range(3):
        plan = plan_response(tests_scenario, request(prompt, *done), 0)
        steps.append(plan.step)
        assert plan.finish == "tool_calls"
        done += called(plan, "ok")
    last = plan_response(tests_scenario, request(prompt, *done), 0)
    assert (steps, last.step, last.finish) == ([0, 1, 2], 3, "stop")
    over = plan_response(tests_scenario, request(user("say x"), {"role": "assistant", "content": "x"}), 0)
    assert text(over) == "Done."


def test_the_remains_of_a_failed_try_do_not_skip_a_step(tests_scenario: Scenario) -> None:
    first = plan_response(tests_scenario, request(user("cut tool once")), 1)
    remains = {"role": "assistant", "content": "This sentence is"}
    plan = plan_response(tests_scenario, request(user("cut tool once"), remains, *called(first, "after")), 0)
    assert (plan.step, text(plan)) == (1, "after")


def test_the_answer_is_a_function_of_the_request_alone(tests_scenario: Scenario) -> None:
    asked = request(user("bash ls"))
    assert plan_response(tests_scenario, asked, 0) == plan_response(tests_scenario, asked, 7)


def test_two_sessions_get_different_tool_call_ids(tests_scenario: Scenario) -> None:
    asked = request(user("bash ls"))
    one, two = (only_call(plan_response(tests_scenario, asked, 0, session)) for session in ("ses_1", "ses_2"))
    assert one.id != two.id


def test_templates_reach_into_nested_arguments_and_are_replaced_once(tests_scenario: Scenario) -> None:
    call = only_call(plan_response(tests_scenario, request(user('ask Is "{{workdir}}" right?')), 0))
    assert msgspec.json.decode(call.arguments)["questions"][0]["question"] == 'Is "{{workdir}}" right?'


def test_the_working_directory_is_read_from_the_system_prompt() -> None:
    call = only_call(plan_response(load_builtin("demo"), request(user("go")), 0))
    assert msgspec.json.decode(call.arguments) == {"filePath": "/workspace/repo/calculator.py"}


@pytest.mark.parametrize(
    ("answer", "tools"),
    [
        ("Add a test", ["read", "edit", "bash", "question", "write", "bash"]),
        ("Leave it", ["read", "edit", "bash", "question"]),
    ],
)
def test_the_demo_does_what_its_question_was_answered(answer: str, tools: list[str]) -> None:
    outputs = {"question": f'User has answered: "Shall I?"="{answer}".', "write": "Wrote file successfully."}
    done: list[object] = []
    seen: list[str] = []
    plan = plan_response(load_builtin("demo"), request(user("fix it")), 0)
    while plan.finish != "stop" and len(seen) < 10:
        seen.append(only_call(plan).name)
        done += called(plan, outputs.get(seen[-1], "ok"))
        plan = plan_response(load_builtin("demo"), request(user("fix it"), *done), 0)
    assert seen == tools
    assert "Done." in text(plan)


def test_a_title_is_asked_for_without_tools(tests_scenario: Scenario) -> None:
    messages = [{"role": "system", "content": "You are a title generator."}, user("say hi")]
    asked = decode(json.dumps({"model": "m", "messages": messages}).encode())
    plan = plan_response(tests_scenario, asked, 0)
    assert (plan.turn, text(plan)) == ("title", "A scripted session")


def test_a_fault_strikes_the_first_tries_only(tests_scenario: Scenario) -> None:
    once = request(user("fail 429 once"))
    assert [plan_response(tests_scenario, once, tries).fault is not None for tries in range(3)] == [True, False, False]
    always = request(user("fail 500 always"))
    assert all(plan_response(tests_scenario, always, tries).fault is not None for tries in range(3))


@pytest.mark.parametrize("count", [limits.WORDS_MAX + 1, 10**30])
def test_too_many_words_are_refused_by_name(tests_scenario: Scenario, count: int) -> None:
    with pytest.raises(ScenarioUnplayable, match="a number of words must be"):
        plan_response(tests_scenario, request(user(f"stream {count} words")), 0)


def test_tokens_are_the_scenarios_or_estimated() -> None:
    told = parse("[[default.step]]\nusage = { input = 1200, output = 80, cached = 1000 }", "f")
    assert plan_response(told, request(user("x")), 0).usage.input == 1200
    guessed = plan_response(parse("", "f"), request(user("x" * 4000)), 0).usage
    assert 1000 < guessed.input < 1100


def test_reasoning_comes_before_text(tests_scenario: Scenario) -> None:
    plan = plan_response(tests_scenario, request(user("think hard")), 0)
    assert plan.pieces == (Reasoning(text="hard"), Text(text="I have thought."))


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": "m"}', b'{"model": "m", "messages": []}', b"\xff"])
def test_a_body_that_is_no_chat_request_is_refused(body: bytes) -> None:
    with pytest.raises(RequestRefused, match="not a chat-completions request"):
        decode(body)
