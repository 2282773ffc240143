"""Claims about what the runner survives; real OpenCode, broker and git, killed and cut for real."""

import asyncio
import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest
from valet_protocol.events import agent, facts
from valet_protocol.events.delta import Delta
from valet_runner.testing import Broker, Ledger, Portal, Runner, condition

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS_300 = " ".join(f"w{number}" for number in range(1, 301))

# Stands before the real OpenCode: the address it prints is that of a proxy, whose connections SIGUSR1 cuts for a while.
CUTTER = """\
#!{python}
import asyncio, os, re, signal, sys

async def main():
    real = await asyncio.create_subprocess_exec({opencode!r}, *sys.argv[1:], stdout=asyncio.subprocess.PIPE)
    streams, refusing = set(), False

    def cut():
        nonlocal refusing
        refusing = True
        for writer in list(streams):
            writer.transport.abort()
        asyncio.get_running_loop().call_later(0.7, allow)

    def allow():
        nonlocal refusing
        refusing = False

    while True:
        line = await real.stdout.readline()
        found = re.search(rb"http://127.0.0.1:(\\d+)", line)
        if found:
            break

    async def accept(reader, writer):
        if refusing:
            writer.transport.abort()
            return
        streams.add(writer)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(found[1]))

        async def pump(source, target):
            try:
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            except OSError:
                pass
            target.close()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        streams.discard(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, cut)
    loop.add_signal_handler(signal.SIGTERM, real.terminate)
    print("listening on http://127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    await real.wait()

asyncio.run(main())
"""


def texts(ledger: Ledger, turn: str) -> list[str]:
    return [message.text for message in ledger.said(agent.MessageCompleted, turn=turn)]


def no_delta_twice(ledger: Ledger) -> None:
    """Each chunk of a part goes on where the last one ended."""
    known: dict[str, int] = {}
    for delta in ledger.said(Delta):
        assert delta.offset == known.get(delta.part_id, 0)
        known[delta.part_id] = delta.offset + len(delta.text)
    ids = [event.id for event in ledger.events]
    assert len(ids) == len(set(ids))


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


async def test_a_cut_of_the_event_stream_loses_no_message(runners, ledger: Ledger, spec, folder: Path) -> None:
    cutter = folder / "opencode-behind-a-proxy"
    cutter.write_text(CUTTER.format(python=sys.executable, opencode=spec.opencode))
    cutter.chmod(cutter.stat().st_mode | stat.S_IXUSR)
    runner: Runner = runners.start(opencode=str(cutter))
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("work made.txt")
    await ledger.until(Delta)
    for kind in (Delta, agent.MessageCompleted, agent.MessageCompleted):
        await ledger.until(kind, after=len(ledger.events))
        os.kill(runner.opencode(), signal.SIGUSR1)
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "completed"
    words = " ".join(f"w{number}" for number in range(1, 41))
    assert [text for text in texts(ledger, turn) if text] == [words, words, f"{words} Work is done."]
    tools = {tool.call_id: tool.status for tool in ledger.said(agent.ToolUpdated, turn=turn)}
    assert list(tools.values()) == ["completed"] * 3
    created = [message.message_id for message in ledger.said(agent.MessageCreated, turn=turn)]
    assert len(created) == len(set(created)) == len(texts(ledger, turn))
    no_delta_twice(ledger)


async def test_a_killed_opencode_ends_the_turn_interrupted_and_the_next_prompt_works(runners, ledger: Ledger) -> None:
    runner: Runner = runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("slow 2000 words")
    await ledger.until(Delta)
    os.kill(runner.opencode(), signal.SIGKILL)
    ended = await ledger.until(agent.TurnEnded)
    assert (ended.data.turn_id, ended.data.status) == (turn, "interrupted")
    assert ended.data.error
    assert ended.data.error.name == "opencode_lost"
    (text,) = ledger.said(agent.TextCompleted, turn=turn)
    assert text.text == "".join(delta.text for delta in ledger.said(Delta))
    second = await ledger.dispatch("say still here")
    ended = await ledger.until(agent.TurnEnded, lambda data: data.turn_id == second)
    assert ended.data.status == "completed"
    assert texts(ledger, second) == ["still here"]
    assert ledger.said(agent.OpencodeRestarted)


async def test_commands_of_a_killed_opencode_are_ended_with_it(runners, ledger: Ledger, folder: Path) -> None:
    runner: Runner = runners.start()
    await ledger.until(agent.RunnerReady)
    await ledger.dispatch(f"bash echo $$ > {folder}/pid; sleep 300")
    file = folder / "pid"
    await condition(lambda: file.exists() and bool(file.read_text().strip()))
    command = int((folder / "pid").read_text())
    assert alive(command)
    os.kill(runner.opencode(), signal.SIGKILL)
    await ledger.until(agent.TurnEnded)
    await condition(lambda: not alive(command))


async def test_an_opencode_that_ignores_an_abort_is_replaced(runners, ledger: Ledger) -> None:
    runner: Runner = runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("slow 2000 words")
    await ledger.until(Delta)
    os.kill(runner.opencode(), signal.SIGSTOP)
    await ledger.append(facts.TurnInterruptRequested(turn_id=turn, by="u"))
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "interrupted"
    second = await ledger.dispatch("say still here")
    await ledger.until(agent.TurnEnded, lambda data: data.turn_id == second)
    assert texts(ledger, second) == ["still here"]


async def test_a_redelivered_dispatch_is_not_sent_twice(runners, ledger: Ledger, portal: Portal) -> None:
    first: Runner = runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("slow 2000 words")
    await ledger.until(Delta)
    opencode = first.opencode()
    first.end(signal.SIGKILL)
    await condition(lambda: not alive(opencode))  # it dies with its runner
    await ledger.deliver_again()
    asked = len([head for head in portal.heads if "/model/" in head])
    mark = len(ledger.events)
    runners.start(epoch=2)
    ended = await ledger.until(agent.TurnEnded, after=mark)
    assert (ended.epoch, ended.data.turn_id, ended.data.status) == (2, turn, "interrupted")
    assert ended.data.error
    assert ended.data.error.name == "runner_lost"
    second = await ledger.dispatch("say next")
    await ledger.until(agent.TurnEnded, lambda data: data.turn_id == second)
    assert texts(ledger, second) == ["next"]
    assert len([head for head in portal.heads if "/model/" in head]) == asked + 1


async def test_a_killed_broker_loses_and_doubles_nothing(runners, ledger: Ledger, nats: Broker) -> None:
    runners.start()
    await ledger.until(agent.RunnerReady)
    turn = await ledger.dispatch("slow 300 words")
    for _ in range(2):
        await ledger.until(Delta, after=len(ledger.events))
        nats.kill()
        await asyncio.sleep(1)  # the time the broker is away
        nats.start()
    ended = await ledger.until(agent.TurnEnded)
    assert ended.data.status == "completed"
    assert texts(ledger, turn) == [WORDS_300]
    assert "".join(delta.text for delta in ledger.said(Delta)) == WORDS_300
    no_delta_twice(ledger)
    second = await ledger.dispatch("say after the restart")
    ended = await ledger.until(agent.TurnEnded, lambda data: data.turn_id == second)
    assert ended.data.status == "completed"


async def test_a_stop_in_mid_turn_without_a_broker_is_orderly(runners, ledger: Ledger, nats: Broker) -> None:
    runner: Runner = runners.start()
    await ledger.until(agent.RunnerReady)
    await ledger.dispatch("slow 2000 words")
    await ledger.until(Delta)
    opencode = runner.opencode()
    nats.kill()
    began = time.monotonic()
    assert await asyncio.to_thread(runner.end) == 0
    print(f"it took {time.monotonic() - began:.1f} s")
    nats.start()
    assert not alive(opencode)


async def test_a_repository_that_cannot_be_cloned_fails_the_boot_in_gits_words(runners, ledger: Ledger, folder) -> None:
    runner: Runner = runners.start(repo=f"{folder}/none")
    failed = await ledger.until(agent.BootFailed)
    assert failed.data.stage == "clone"
    assert f"repository '{folder}/none' does not exist" in failed.data.detail
    assert runner.status() is None  # it waits to be told to end
    assert runner.end() == 0


async def test_a_branch_that_is_not_there_fails_the_boot_in_gits_words(runners, ledger: Ledger) -> None:
    runners.start(branch="nope")
    failed = await ledger.until(agent.BootFailed)
    assert "Remote branch nope not found" in failed.data.detail


async def test_an_opencode_that_cannot_be_started_fails_the_boot(runners, ledger: Ledger) -> None:
    runners.start(opencode="/nowhere/opencode")
    failed = await ledger.until(agent.BootFailed)
    assert failed.data.stage == "opencode"
    assert "/nowhere/opencode" in failed.data.detail


async def test_the_next_epoch_continues_the_conversation_and_the_workspace(runners, ledger: Ledger, spec) -> None:
    first: Runner = runners.start()
    ready = await ledger.until(agent.RunnerReady)
    await ledger.dispatch(f"write {spec.workspace}/kept.txt kept")
    await ledger.until(agent.TurnEnded)
    opencode = first.opencode()
    assert first.end() == 0
    assert not alive(opencode)
    mark = len(ledger.events)
    ledger.base_commit = ready.data.base_commit
    runners.start(epoch=2)
    await ledger.until(agent.RunnerReady, after=mark)
    turn = await ledger.dispatch("say again")
    await ledger.until(agent.TurnEnded, after=mark)
    sessions = {started.opencode_session for started in ledger.said(agent.TurnStarted)}
    assert len(sessions) == 1
    assert texts(ledger, turn) == ["again"]
    (changed,) = ledger.said(agent.GitChanged, turn=turn)
    assert [change.path for change in changed.files] == ["kept.txt"]


async def test_a_replaced_runner_ends_with_status_0(runners, ledger: Ledger) -> None:
    ledger.current_epoch = 2
    stale: Runner = runners.start()
    assert await asyncio.to_thread(stale.wait) == 0
    ledger.current_epoch = 1
    attached: Runner = runners.start()
    await ledger.until(agent.RunnerReady)
    opencode = attached.opencode()
    await ledger.append(facts.RunnerAttached(epoch=2, runner_version="0"))
    assert await asyncio.to_thread(attached.wait) == 0
    assert not alive(opencode)


async def test_without_a_repository_there_is_an_empty_one(runners, ledger: Ledger, spec) -> None:
    runners.start(repo=None)
    ready = await ledger.until(agent.RunnerReady)
    assert ready.data.base_commit
    turn = await ledger.dispatch(f"write {spec.workspace}/a.txt text")
    await ledger.until(agent.TurnEnded)
    (changed,) = ledger.said(agent.GitChanged, turn=turn)
    assert [(change.path, change.status) for change in changed.files] == [("a.txt", "added")]
