"""Claims about what a turn leaves unfinished. Real NATS, PostgreSQL and ledger; fake are the runners."""

from collections.abc import Mapping
from typing import Any

import msgspec
from valet_protocol.codec import with_seq
from valet_protocol.events import agent
from valet_protocol.events.agent import AgentError
from valet_protocol.ids import new_id
from valet_protocol.requests import (
    ArchivePage,
    Done,
    ForkSession,
    GetState,
    ImportEvents,
    ListMessages,
    MessagePage,
    MessageView,
    ReadArchive,
    SessionView,
    StateView,
    TerminateSession,
)
from valet_session_ledger import rebuild
from valet_session_ledger.message_pages import MessagePages
from valet_session_ledger.rows import MessageRow
from valet_session_ledger.testing import FakeSandbox, LedgerProcess, Platform, wait_for

CUT = "The session was ended."


async def _working(platform: Platform) -> tuple[FakeSandbox, str]:
    """A turn in the middle of a message with a tool call, and of a sub-agent's; its id."""
    session_id = await platform.create()
    runner = await platform.boot(session_id)
    await platform.prompt(session_id)
    turn_id, prompt_id = await platform.dispatched(session_id)
    await runner.agent(agent.TurnStarted(turn_id=turn_id, prompt_id=prompt_id, opencode_session="o"), turn_id)
    await runner.play_message(turn_id, text="Done before")
    for data in (
        agent.MessageCreated(message_id="m", model="fake/model"),
        agent.TextCompleted(message_id="m", part_id="m.1", kind="text", text="I begin"),
        _call("m", "running", part_id="m.2", tool="task", metadata={"sessionId": "ses_sub"}),
        _call("m", "pending", part_id="m.3"),
        agent.MessageCreated(message_id="sub", parent_session="ses_sub"),
        _call("sub", "running", part_id="sub.1"),
    ):
        await runner.agent(data, turn_id)
    return runner, turn_id


def _call(
    message_id: str, status: agent.ToolStatus, *, part_id: str, tool: str = "bash", **fields: object
) -> agent.ToolUpdated:
    return agent.ToolUpdated(
        message_id=message_id,
        part_id=part_id,
        call_id="c",
        tool=tool,
        status=status,
        **fields,  # type: ignore[arg-type]
    )


async def _messages(platform: Platform, session_id: str, **fields: object) -> list[MessageView]:
    query = ListMessages(session_id=session_id, user="ada", **fields)  # type: ignore[arg-type]
    return (await platform.ask(query, MessagePage)).items


def _unfinished(messages: list[MessageView]) -> list[str]:
    """Ids of messages and parts that somebody seems to be writing still, sub-agents' too."""
    found: list[str] = []
    for message in messages:
        found += [] if message.complete else [message.id]
        for part in message.parts:
            found += [part.part_id] if part.status in ("pending", "running") else []
            found += _unfinished(part.messages)
    return found


def _said(messages: list[MessageView]) -> list[MessageView]:
    """Without where in a log it was said."""
    parts = [[msgspec.structs.replace(part, seq=0) for part in message.parts] for message in messages]
    return [msgspec.structs.replace(one, seq=0, parts=part) for one, part in zip(messages, parts, strict=True)]


async def test_nothing_of_a_turn_that_is_over_runs_on(ledger: LedgerProcess, platform: Platform) -> None:
    runner, turn_id = await _working(platform)
    session_id = runner.session_id
    during = await wait_for(lambda: _messages(platform, session_id), lambda found: len(found) == 4 and found[-1].parts)
    assert _unfinished(during) == ["m", "m.2", "m.3", "sub", "sub.1"]
    before = (await platform.session(session_id)).seq
    why = AgentError(name="aborted", message="Stopped by a person.")
    await runner.agent(agent.TurnEnded(turn_id=turn_id, status="interrupted", error=why), turn_id)
    ended = await platform.until(session_id, lambda view: not view.active_turn)

    after = await _messages(platform, session_id)
    assert _unfinished(after) == _unfinished(await _messages(platform, session_id, nested=True)) == []
    _, whole, cut, sub = after
    assert (whole.error, [part.status for part in whole.parts]) == (None, [None, "completed"])
    assert (cut.complete, cut.text, cut.error) == (
        True,
        "I begin",
        AgentError(name="interrupted", message="Stopped by a person."),
    )
    assert [(part.status, part.error) for part in cut.parts[1:]] == [("error", "interrupted: Stopped by a person.")] * 2
    assert all(part.ended_ms for part in cut.parts[1:])
    assert (sub.error, sub.parts[0].status) == (cut.error, "error")

    async def at(seq: int, of: str = session_id) -> list[MessageView]:
        return (await platform.ask(GetState(session_id=of, user="ada", at=seq), StateView)).messages

    assert await at(before) == during
    assert await at(ended.seq) == after

    fork = await platform.ask(ForkSession(session_id=new_id(), owner="ada", source_session=session_id), SessionView)
    assert _said(await _messages(platform, fork.id)) == _said(after)
    assert await at((await platform.session(fork.id)).seq, fork.id) == await _messages(platform, fork.id)

    # what comes late counts, and opens nothing again
    await runner.agent(_call("m", "running", part_id="m.3", title="late"), turn_id)
    await runner.agent(_call("m", "completed", part_id="m.2", tool="task", output="found"), turn_id)
    tokens = agent.Tokens(input=1)
    await runner.agent(agent.MessageCompleted(message_id="m", text="I begin", finish="stop", tokens=tokens), turn_id)
    late = await wait_for(lambda: _messages(platform, session_id), lambda found: found[2].finish)
    assert (late[2].complete, late[2].error, late[2].tokens) == (True, None, tokens)
    assert [(part.status, part.title, part.output) for part in late[2].parts[1:]] == [
        ("completed", None, "found"),
        ("error", "late", None),
    ]
    assert _unfinished(late) == []
    await rebuild.verify(ledger.settings)


async def test_a_message_that_is_completed_while_a_page_is_read_is_not_taken_for_one_that_was_cut_off() -> None:
    """Its turn ends as well between the two reads: of the message, and of the turn."""
    row = dict.fromkeys(MessageRow.__struct_fields__)
    row |= {"message_id": "m", "turn_id": "t", "role": "assistant", "first_seq": 3, "created_ms": 0, "complete": False}
    over = {"turn_id": "t", "channel": "c", "status": "completed", "error": None, "ended_ms": 9, "active": False}
    tables: dict[str, list[Mapping[str, Any]]] = {
        "messages_after": [row],
        "turns_of": [over],
        "messages_by_id": [row | {"complete": True, "text": "Whole"}],
    }

    async def fetch(name: str, *_: object) -> list[Mapping[str, Any]]:
        return tables.get(name, [])

    (message,) = (await MessagePages(fetch).page(ListMessages(session_id="s", user="ada"))).items
    assert (message.complete, message.text, message.error) == (True, "Whole", None)


async def test_a_turn_that_no_runner_ends_and_one_that_an_export_cuts_are_over_as_well(
    ledger: LedgerProcess, platform: Platform
) -> None:
    runner, _ = await _working(platform)
    session_id = runner.session_id
    await wait_for(lambda: _messages(platform, session_id), lambda found: len(found) == 4 and found[-1].parts)
    during = await platform.session(session_id)
    query = ReadArchive(session_id=session_id, after=0, before=during.seq + 1, export_for="ada")
    page = await platform.ask(query, ArchivePage)
    lines = [msgspec.Raw(with_seq(bytes(item.event), item.seq)) for item in page.items]
    copy = ImportEvents(session_id=new_id(), owner="ada", source_session=session_id, offset=0, events=lines, last=True)
    await platform.ask(copy, Done)
    imported = await _messages(platform, copy.session_id)
    assert (len(imported), _unfinished(imported)) == (4, [])
    assert imported[2].error == AgentError(name="interrupted", message="The export ends before this turn did.")

    await platform.ask(TerminateSession(session_id=session_id, user="ada"), Done)
    ended = await wait_for(
        lambda: _messages(platform, session_id), lambda found: found[2].error and not _unfinished(found)
    )
    assert ended[2].error == AgentError(name="interrupted", message=CUT)
    await rebuild.verify(ledger.settings)
