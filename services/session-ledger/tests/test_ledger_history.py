"""Claims about the past: a session is shown as it was. Real NATS, PostgreSQL and ledger; fake are the runners."""

import pytest
from msgspec.structs import replace
from valet_protocol.codec import rfc3339
from valet_protocol.errors import BadRequest, NotFound
from valet_protocol.events import agent, machine
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    Accepted,
    AddParticipant,
    AnswerQuestion,
    CommandView,
    DiffView,
    Done,
    ForkSession,
    GetDiff,
    GetState,
    ListMessages,
    MessagePage,
    MessageView,
    RenameSession,
    RequestCommand,
    SessionView,
    StateView,
    SubmitPrompt,
)
from valet_session_ledger.testing import FakeSandbox, LedgerProcess, Platform


class Moment:
    """What the live views were at some point."""

    def __init__(
        self, session: SessionView, messages: list[MessageView], nested: list[MessageView], diff: DiffView
    ) -> None:
        self.session = session
        self.nested = nested
        self.messages = messages
        self.diff = diff


async def _now(platform: Platform, session_id: str) -> Moment:
    session = await platform.session(session_id)
    messages = (await platform.messages(session_id)).items
    query = ListMessages(session_id=session_id, user="ada", nested=True)
    nested = (await platform.ask(query, MessagePage)).items
    diff = await platform.ask(GetDiff(session_id=session_id, user="ada"), DiffView)
    assert (await platform.session(session_id)).seq == session.seq  # nothing happened in between
    return Moment(session, messages, nested, diff)


async def _state(platform: Platform, session_id: str, at: int, **fields: object) -> StateView:
    return await platform.ask(
        GetState(session_id=session_id, user="ada", at=at, **fields),  # type: ignore[arg-type]
        StateView,
    )


async def _life(platform: Platform) -> tuple[str, list[Moment]]:
    """A session with a little of everything, and what it looked like on the way."""
    session_id = await platform.create(title="A life")
    moments = []
    runner = await platform.boot(session_id)
    await platform.until(session_id, lambda view: view.status == "ready")
    moments.append(await _now(platform, session_id))
    await platform.prompt(session_id, "First")
    turn_id, prompt_id = await platform.dispatched(session_id)
    await platform.prompt(session_id, "Second, which waits")
    moments.append(await _now(platform, session_id))
    await runner.agent(agent.TurnStarted(turn_id=turn_id, prompt_id=prompt_id, opencode_session="o"), turn_id)
    failure = agent.AgentError(name="APIError", message="overloaded")
    switched = agent.ModelSwitched(turn_id=turn_id, from_model="fake/model", to_model="fake/other", error=failure)
    await runner.agent(switched, turn_id)
    await runner.play_message(turn_id, text="Working on it")
    await _around(runner, turn_id)
    await runner.agent(agent.TodoUpdated(todos=[agent.TodoItem(content="Think", status="pending")]), turn_id)
    question = agent.Question(question="Which?", options=[agent.QuestionOption(label="A")])
    await runner.agent(agent.QuestionAsked(question_id="q", kind="question", questions=[question]), turn_id)
    await platform.until(session_id, lambda view: view.questions)
    moments.append(await _now(platform, session_id))
    answer = AnswerQuestion(session_id=session_id, user="ada", question_id="q", answers=[["A"]])
    await platform.ask(answer, Done)
    file = agent.FileChange(path="a.txt", status="added", additions=1, deletions=0)
    await runner.agent(
        agent.GitChanged(base_commit="abc", head_commit="abc", branch="main", files=[file], patch="+a"), turn_id
    )
    await runner.agent(agent.TurnEnded(turn_id=turn_id, status="completed", cost=0.5), turn_id)
    turn_id, prompt_id = await platform.dispatched(session_id, turns=2)
    moments.append(await _now(platform, session_id))
    await runner.play_turn(turn_id, prompt_id, steps=3, text="Second answer")
    await runner.agent(agent.SessionTitled(title="Not taken"))
    await platform.until(session_id, lambda view: view.turns == 2 and not view.active_turn)
    moments.append(await _now(platform, session_id))
    assert len(moments[-1].messages) == len(moments[-1].nested) + 1
    assert moments[-1].session.sandbox is not None
    assert moments[-1].session.sandbox.processes
    back_to = [message.id for message in moments[-1].messages if message.turn_id == turn_id][1]
    revert = RequestCommand(session_id=session_id, user="ada", request_id="r", command="revert", message_id=back_to)
    await platform.ask(revert, CommandView)
    moments.append(await _now(platform, session_id))
    await runner.agent(agent.ConversationReverted(message_id=back_to))
    await runner.agent(agent.CommandCompleted(request_id="r"))
    await platform.ask(RenameSession(session_id=session_id, user="ada", title="Another title"), Done)
    await platform.until(session_id, lambda view: not view.commands)
    moments.append(await _now(platform, session_id))
    assert moments[-1].messages[-1].reverted
    for content in ("One", "and two"):
        prompt = SubmitPrompt(session_id=session_id, user="ada", prompt_id=new_id(), content=content, mode="collect")
        await platform.ask(prompt, Accepted)
    await platform.dispatched(session_id, turns=3)
    moments.append(await _now(platform, session_id))
    return session_id, moments


async def _around(runner: FakeSandbox, turn_id: str) -> None:
    """What happens around the conversation: a sub-agent, a picture, a reply in a channel, things of the sandbox."""
    call = agent.ToolUpdated(
        message_id="m", part_id="prt_1", call_id="c", tool="task", status="running", metadata={"sessionId": "ses_sub"}
    )
    picture = machine.ImageShown(
        turn_id=turn_id, image_id="i", object="sessions/x/images/i", media_type="image/png", bytes=1, sha256="x"
    )
    process = machine.ProcessInfo(id="proc_1", command="sleep", cwd="/", pid=7, pty=False, created_at=rfc3339(0))
    for data in (
        agent.MessageCreated(message_id="m"),
        call,
        agent.MessageCreated(message_id="below", parent_session="ses_sub"),
        picture,
        machine.ChannelReplied(turn_id=turn_id, reply_id="r", channel="slack:x", text="Look", image_ids=["i"]),
        machine.ImageShown(
            image_id="j", object="sessions/x/images/j", media_type="image/png", bytes=1, sha256="x", caption="Outside"
        ),
        machine.BootStepCompleted(step="clone", ms=7, outcome="ok"),
        machine.ServiceChanged(service="ttyd", state="running"),
        machine.TunnelsChanged(tunnels=[machine.Tunnel(name="web", port=3000)]),
        machine.ProcessCreated(process=process),
    ):
        await runner.agent(data, turn_id)


async def test_a_session_is_shown_as_it_was_at_every_moment(ledger: LedgerProcess, platform: Platform) -> None:
    session_id, moments = await _life(platform)
    assert len({moment.session.seq for moment in moments}) == len(moments)
    for moment in moments:
        state = await _state(platform, session_id, moment.session.seq)
        assert state.at == moment.session.seq
        assert state.session == moment.session
        assert state.messages == moment.messages
        assert state.next is None
        nested = await _state(platform, session_id, moment.session.seq, nested=True)
        assert nested.messages == moment.nested
        assert state.diff == moment.diff
    beyond = await _state(platform, session_id, 1 << 60)
    assert (beyond.at, beyond.session) == (moments[-1].session.seq, moments[-1].session)


async def test_a_sequence_between_two_events_means_the_earlier_one(ledger: LedgerProcess, platform: Platform) -> None:
    session_id, _ = await _life(platform)
    log = [event.seq for event in await platform.log(session_id) if not event.type.startswith("delta.")]
    deltas = [event.seq for event in await platform.log(session_id) if event.type.startswith("delta.")]
    await platform.create()  # somebody else's event
    assert (await _state(platform, session_id, log[-1] + 1)).at == log[-1]
    for seq in deltas[:1]:
        assert (await _state(platform, session_id, seq)).at == max(one for one in log if one < seq)
    assert (await _state(platform, session_id, log[0])).messages == []
    with pytest.raises(BadRequest) as refusal:
        await _state(platform, session_id, log[0] - 1)
    assert refusal.value.code == "bad_sequence"


async def test_the_messages_of_the_past_come_in_pages(ledger: LedgerProcess, platform: Platform) -> None:
    session_id, moments = await _life(platform)
    at = moments[-1].session.seq
    found: list[MessageView] = []
    after: int | None = 0
    while after is not None:
        state = await _state(platform, session_id, at, limit=2, after=after)
        assert len(state.messages) <= 3  # those that one event began stay together
        found += state.messages
        after = state.next
    assert found == moments[-1].messages


async def test_who_takes_part_now_may_see_what_was_before_they_came(ledger: LedgerProcess, platform: Platform) -> None:
    session_id, moments = await _life(platform)
    request = GetState(session_id=session_id, user="bob", at=moments[1].session.seq)
    with pytest.raises(NotFound):
        await platform.ask(request, StateView)
    await platform.ask(AddParticipant(session_id=session_id, user="ada", participant="bob", role="viewer"), Done)
    state = await platform.ask(request, StateView)
    assert state.session == replace(moments[1].session, role="viewer")
    assert state.messages == moments[1].messages


async def test_a_fork_has_a_past_of_its_own(ledger: LedgerProcess, platform: Platform) -> None:
    source, moments = await _life(platform)
    fork = ForkSession(session_id=new_id(), owner="ada", source_session=source)
    made = await platform.ask(fork, SessionView)
    now = await _now(platform, made.id)
    state = await _state(platform, made.id, now.session.seq)
    assert (state.session, state.messages, state.diff) == (now.session, now.messages, now.diff)
    # neither the turn that runs is taken over, nor what was taken back since one ended
    first_turn = [message for message in moments[-1].messages if not message.reverted][:5]
    assert [message.id for message in state.messages] == [message.id for message in first_turn]
    half = await _state(platform, made.id, state.messages[0].seq)
    assert half.messages == state.messages[:1]
    assert (half.session.status, half.session.source_session) == ("requested", source)
