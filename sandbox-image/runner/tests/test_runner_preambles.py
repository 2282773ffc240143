"""Claims about what the agent is told because it does not remember it: once, whoever dies when.

Real runner, OpenCode and broker; the model, the ledger, the portal and its object store are stand-ins.
"""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from valet_local.model import ScriptedModel
from valet_protocol.events import agent
from valet_protocol.events.agent import WorkRef
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner import conversation_files, frames, preambles, work_bundle
from valet_runner.conversation import DEFAULT
from valet_runner.preambles import PreambleFile
from valet_runner.shown_processes import Shown, ShownProcesses
from valet_runner.testing import Ledger, Portal, Runner, condition
from valet_runner.testing_objects import ObjectServer
from valet_runner.work_bundle import Manifest

SAID = "Person: say the word is kumquat\n\nYou: the word is kumquat"
OTHER = "Person: what is in slack\n\nYou: a durian"


def message(key: str, *texts: str, role: str = "user") -> frames.Message:
    parts = [
        frames.Part(id=f"prt_{n}", message_id=key, session_id="ses", type="text", text=text)
        for n, text in enumerate(texts)
    ]
    info = frames.Info(id=key, session_id="ses", role=role, time=frames.Span(created=0))
    return frames.Message(info=info, parts=parts)


def test_a_text_is_due_until_a_message_that_counts_holds_it() -> None:
    session = frames.Session(id="ses")
    assert preambles.due(["a", "b", "a"], session, []) == ["a", "b"]
    held = [message("msg_1", "a", "hello"), message("msg_2", "b", role="assistant")]
    assert preambles.due(["a", "b"], session, held) == ["b"]
    # taken back: the next prompt removes it from the conversation
    back = frames.Session(id="ses", revert=frames.Revert(message_id="msg_1"))
    assert preambles.due(["a", "b"], back, held) == ["a", "b"]
    later = frames.Session(id="ses", revert=frames.Revert(message_id="msg_2"))
    assert preambles.due(["a"], later, held) == []


def test_texts_stay_until_their_conversation_is_given_up(tmp_path: Path) -> None:
    file = PreambleFile(tmp_path)
    file.replace({})
    assert not list(tmp_path.iterdir())
    file.replace({"a": ["x"], "b": ["y", "z"]})
    file.forget("a")
    file.forget("never there")
    assert PreambleFile(tmp_path).known() == {"b": ["y", "z"]}


def test_what_was_told_before_is_told_again_when_its_conversation_is_lost_too() -> None:
    told = conversation_files.as_preamble(SAID)
    parts = [{"type": "text", "text": told, "synthetic": True}, {"type": "text", "text": "go on"}]
    export = msgspec.json.encode({"messages": [{"info": {"role": "user"}, "parts": parts}]})
    once = f"{SAID}\n\nPerson: go on"
    assert conversation_files.preamble(export, [told, "Note: a file is missing."]).endswith(f":\n\n{once}")
    # a conversation that had not been told
    plain = msgspec.json.encode({"messages": [{"info": {"role": "user"}, "parts": parts[1:]}]})
    assert conversation_files.preamble(plain, [told]).endswith(f":\n\n{once}")
    assert conversation_files.preamble(plain, [told]).count("kumquat") == 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(folder: Path, portal: Portal) -> AsyncIterator[ObjectServer]:
    async with ObjectServer(folder / "objects.sock") as server:
        server.token = "secret-token"
        portal.objects = server.path
        yield server


@pytest.mark.asyncio(loop_scope="module")
async def test_the_agent_is_told_once_however_often_the_runner_dies(
    spec: RunnerSpec, ledger: Ledger, store: ObjectServer, model: ScriptedModel, folder: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "work.tar.gz"
    manifest = Manifest(session="elsewhere", turn="", said={DEFAULT: SAID, "slack:C1": OTHER})
    packed = work_bundle.pack(manifest, {}, archive)
    name = f"sessions/{spec.session_id}/saved/import"
    store.stored[name] = archive.read_bytes()
    ledger.work = WorkRef(object=name, bytes=packed.bytes, sha256=packed.sha256)
    unfinished = Path(spec.home) / ".valet" / "workspace-unfinished"
    running: list[Runner] = []

    def start() -> Runner:
        epoch = len(running) + 1
        running.append(Runner(msgspec.structs.replace(spec, epoch=epoch), folder / spec.session_id))
        running[-1].start()
        return running[-1]

    async def ready() -> Runner:
        mark = len(ledger.events)
        runner = start()
        await ledger.until(agent.RunnerReady, after=mark)
        return runner

    def prompts(word: str) -> list[str]:
        return [request.prompt for request in model.requests if word in request.prompt]

    try:
        runner = start()
        await condition(unfinished.exists)
        runner.end(signal.SIGKILL)  # while the work is put back
        (await ready()).end(signal.SIGKILL)  # before the first prompt
        shown = Shown(id="proc_1", text="<command>ls persimmon</command>")
        ShownProcesses(Path(spec.home)).add(shown)
        runner = await ready()
        await ledger.dispatch("go on")
        await condition(lambda: bool(prompts("kumquat")))
        runner.end(signal.SIGKILL)  # in its turn
        ShownProcesses(Path(spec.home)).add(shown)  # as if that was before it could note that OpenCode has it
        (asked,) = prompts("kumquat")
        assert asked.count(SAID) == 1
        assert asked.endswith("go on")
        assert asked.count("persimmon") == 1
        await ready()
        later = await ledger.dispatch("count prompts")
        await ledger.until(agent.TurnEnded, lambda ended: ended.turn_id == later)
        texts = [one.text for one in ledger.said(agent.MessageCompleted, turn=later)]
        assert texts == ["scripted-1 sees 2 prompts."]  # of the same conversation, which has it
        assert len(prompts("kumquat")) == len(prompts("persimmon")) == 1
        assert ShownProcesses(Path(spec.home)).waiting() == []
        # the first request on another channel is a slash command's
        commands = Path(spec.workspace) / ".opencode" / "command"
        commands.mkdir(parents=True)
        (commands / "counting.md").write_text("count prompts\n")
        running[-1].end(signal.SIGKILL)
        await ready()
        turn = await ledger.dispatch("/counting", kind="command", channel="slack:C1")
        await ledger.until(agent.TurnEnded, lambda ended: ended.turn_id == turn)
        assert [one.text for one in ledger.said(agent.MessageCompleted, turn=turn)] == ["scripted-1 sees 2 prompts."]
        saved = (await ledger.until(agent.WorkSaved, lambda saved: saved.turn_id == turn)).data.work
        archive.write_bytes(store.stored[saved.object])
        kept = work_bundle.unpack(archive, tmp_path).preambles
        assert {channel: len(texts) for channel, texts in kept.items()} == {DEFAULT: 1, "slack:C1": 1}
    finally:
        for runner in running:
            runner.close()
            print(runner.log())
