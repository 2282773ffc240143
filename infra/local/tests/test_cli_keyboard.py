"""Questions put to a person: on a terminal only, and only while they are open."""

import asyncio
import os
import pty
import sys

import msgspec
import pytest
from valet_local.client.testing import SESSION, VIEW, FakeApi, event
from valet_protocol.events import agent, facts
from valet_protocol.events.envelope import Data
from valet_protocol.requests import Accepted, Done

OPTIONS = [agent.QuestionOption(label="Red"), agent.QuestionOption(label="Blue")]
ASKED: tuple[Data, ...] = (
    facts.TurnDispatched(turn_id="T", prompt_id="P", content="x", model="p/m", author="u"),
    agent.QuestionAsked(question_id="Q", kind="question", questions=[agent.Question(question="?", options=OPTIONS)]),
)
ANSWERED: tuple[Data, ...] = (
    facts.QuestionAnswered(question_id="Q", answers=[["Blue"]], answered_by="person", user="me"),
    agent.TurnEnded(turn_id="T", status="completed"),
)


@pytest.mark.timeout(60)
async def test_a_person_at_a_terminal_answers_by_number():
    async with FakeApi() as api:
        api.answers = {
            ("POST", "/api/sessions"): (201, VIEW),
            ("POST", f"/api/sessions/{SESSION}/messages"): (202, Accepted(prompt_id="P", seq=2, status="queued")),
            ("POST", f"/api/sessions/{SESSION}/answer"): (200, Done(seq=3)),
        }
        await api.append(*map(event, ASKED))
        answered = asyncio.Event()
        api.on_request = lambda seen: answered.set() if seen.path.endswith("/answer") else None
        screen, terminal = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from valet_local.cli import main; main()", "run", "x",
            env=os.environ | {"VALET_URL": api.endpoint.url, "VALET_TOKEN": "t", "TERM": "xterm"},
            stdin=terminal, stdout=terminal, stderr=terminal,
        )  # fmt: skip
        os.close(terminal)
        shown = await reads(screen, b"your own words): ")
        os.write(screen, b"2\n")
        await asyncio.wait_for(answered.wait(), 20)
        assert msgspec.json.decode(api.seen[-1].body) == {"question_id": "Q", "answers": [["Blue"]]}
        await api.append(*map(event, ANSWERED))
        shown += await reads(screen, b"completed")
        assert await asyncio.wait_for(process.wait(), 20) == 0
        os.close(screen)
    assert b"1. Red" in shown
    assert b"answered by me" in shown


async def reads(screen: int, words: bytes) -> bytes:
    """What appears on the terminal up to some words."""
    loop = asyncio.get_running_loop()
    seen = bytearray()
    there = loop.create_future()

    def read() -> None:
        seen.extend(os.read(screen, 4096))
        if words in seen and not there.done():
            there.set_result(None)

    loop.add_reader(screen, read)
    try:
        await asyncio.wait_for(there, 20)
    finally:
        loop.remove_reader(screen)
    return bytes(seen)
