"""Claims about conversations that are saved and put back, and about attachments as OpenCode takes them: with the real
OpenCode and git; the model, the portal and its object store are stand-ins.

One story, told in order: a session in a first sandbox, and what a second one has of it.
"""

import asyncio
import base64
import hashlib
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from valet_protocol.events.agent import WorkSaved
from valet_protocol.events.facts import Attachment
from valet_protocol.ids import new_id
from valet_protocol.sandbox_spec import RunnerSpec
from valet_runner import conversation_files, git_environment, message_ids, relay, work_bundle, work_limits, workspace
from valet_runner.attachments import Attachments
from valet_runner.conversation import Conversations
from valet_runner.objects import Objects
from valet_runner.opencode_client import OpencodeClient
from valet_runner.opencode_config import Surroundings
from valet_runner.opencode_process import OpencodeProcess
from valet_runner.prompt_parts import InputPart, TextInput
from valet_runner.testing import WAIT, Portal
from valet_runner.testing_objects import ObjectServer
from valet_runner.work import Work

pytestmark = pytest.mark.asyncio(loop_scope="module")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAEElEQVR4nGP4z8AARwzEcQCukw/x0F8jngAAAABJRU5ErkJggg=="
)
CHANNELS = ("web:default", "slack:C1")


class Sandbox:
    """A workspace with an OpenCode."""

    def __init__(self, spec: RunnerSpec, store: ObjectServer, relay_port: int) -> None:
        self.spec = spec
        self.home = Path(spec.home)
        self.folder = Path(spec.workspace)
        self.objects = Objects(str(store.path), store.token)
        self.conversations = Conversations(self.home)
        self._process = OpencodeProcess(spec, Surroundings(relay_port=relay_port), reachable=lambda _: None)
        self._running: asyncio.Task[None] | None = None
        self._env = git_environment.environment(spec, relay_port=None)

    async def boot(self, *, base: str | None = None, restores: bool = False) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        git_environment.write_config(self.home)
        prepared = await workspace.prepare(self.spec, self._env, base_commit=base, restores=restores)
        self.work = Work(self.spec, self._env, self.objects, prepared.base)

    async def start(self) -> None:
        self._running = asyncio.create_task(self._process.run())
        self.client: OpencodeClient = await self._process.client(WAIT)
        await self.client.statuses()

    async def stop(self) -> None:
        if self._running:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def say(self, channel: str, *parts: InputPart) -> str:
        """Prompt, and wait for the answer."""
        session = (await self.conversations.resume(self.client, channel)).id
        newest = await self.conversations.newest(self.client, session)
        message_id = message_ids.user_message_id(new_id(), time.time_ns() // 1_000_000, newest)
        await self.client.prompt(session, message_id=message_id, parts=list(parts), model=self.spec.model)
        async with asyncio.timeout(WAIT):
            while True:
                answers = [
                    message
                    for message in await self.client.messages(session)
                    if message.info.parent_id == message_id and message.info.time.completed
                ]
                if answers and session not in await self.client.statuses():
                    assert answers[-1].info.error is None
                    return "\n".join(part.text for part in answers[-1].parts if part.type == "text")
                await asyncio.sleep(0.05)

    async def end(self, client: OpencodeClient | None) -> WorkSaved:
        said = await self.work.end(new_id(), self.conversations.known(), client)
        (saved,) = [data for data in said if isinstance(data, WorkSaved)]
        return saved


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(folder: Path) -> AsyncIterator[ObjectServer]:
    async with ObjectServer(folder / "objects.sock") as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay_port(portal: Portal) -> AsyncIterator[int]:
    server, port = await relay.serve_http(str(portal.path), "secret-token")
    yield port
    server.close()


Make = Callable[..., Sandbox]


@pytest.fixture(scope="module")
def make(new_spec: Callable[[], RunnerSpec], store: ObjectServer, relay_port: int) -> Make:
    """Sandboxes of one session."""
    session_id = new_id()

    def make(**changes: object) -> Sandbox:
        return Sandbox(msgspec.structs.replace(new_spec(), session_id=session_id, **changes), store, relay_port)

    return make


class Story(msgspec.Struct):
    """What the first sandbox left behind."""

    saved: WorkSaved
    sessions: dict[str, str]
    folder: str
    """Its workspace, which is gone."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def first(make: Make, folder: Path) -> AsyncIterator[Story]:
    sandbox = make()
    await sandbox.boot()
    await sandbox.start()
    try:
        await sandbox.work.begin("turn")
        assert await sandbox.say(CHANNELS[0], TextInput(text="say the word is kumquat")) == "the word is kumquat"
        await sandbox.say(CHANNELS[0], TextInput(text=f"write {sandbox.folder}/fruit.txt kumquat"))
        await sandbox.say(CHANNELS[1], TextInput(text="say hello slack"))
        await check_attachments(sandbox)
        await sandbox.end(sandbox.client)
        await check_cut(sandbox, folder)
    finally:
        await sandbox.stop()
    # OpenCode is gone: what was exported last is saved again
    saved = await sandbox.end(None)
    left = Story(saved=saved, sessions=sandbox.conversations.known(), folder=str(sandbox.folder))
    await check_without_repository(sandbox)
    shutil.rmtree(sandbox.home)
    shutil.rmtree(sandbox.folder)
    yield left


async def check_attachments(sandbox: Sandbox) -> None:
    """Attachments of every kind reach the model and fail no turn."""
    folder = sandbox.home / ".valet" / "attachments"

    def attached(name: str, mime: str, content: bytes) -> Attachment:
        attachment_id = new_id()
        path = folder / attachment_id / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        return Attachment(attachment_id=attachment_id, name=name, mime=mime, bytes=len(content), sha256=digest)

    parts = await Attachments(sandbox.spec, sandbox.objects, environ={}).parts(
        [
            attached("notes ü #1%.json", "application/json", b'{"fruit": "quince"}'),
            attached("shot.png", "image/png", PNG),
            attached("all.zip", "application/zip", b"PK\x03\x04\0"),
            attached("memo.wav", "audio/wav", b"RIFF\0\0\0\0WAVE"),
        ]
    )
    answer = await sandbox.say("api", *parts, TextInput(text="repeat all of this"))
    for word in ("quince", "shot.png", "all.zip", "memo.wav", "could not be transcribed"):
        assert word in answer


async def check_cut(sandbox: Sandbox, folder: Path) -> None:
    """A conversation that is too long is cut to its latest messages."""
    whole, cut = folder / "whole.json", folder / "cut.json"
    session = sandbox.conversations.known()[CHANNELS[0]]
    exporter = conversation_files.Exporter()
    await exporter.write(sandbox.client, session, whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work_limits, "CONVERSATION_BYTES", whole.stat().st_size - 2000)
        patch.setattr(work_limits, "CONVERSATION_CUTS", (2,))
        await exporter.write(sandbox.client, session, cut)
    assert "kumquat" in conversation_files.preamble(whole.read_bytes())
    assert "the word is kumquat" not in conversation_files.preamble(cut.read_bytes())
    assert "fruit.txt" in conversation_files.preamble(cut.read_bytes())


async def check_without_repository(sandbox: Sandbox) -> None:
    """Without a repository there are still conversations to save."""
    shutil.rmtree(sandbox.folder / ".git")
    saved = await sandbox.end(None)
    assert saved.work.base_commit is None
    assert saved.left_out == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def second(make: Make, first: Story) -> AsyncIterator[Sandbox]:
    sandbox = make(workspace=first.folder)  # as in real sandboxes, it lies where it did
    await sandbox.boot(base=first.saved.work.base_commit, restores=True)
    await sandbox.start()
    try:
        restored = await sandbox.work.restore(first.saved.work)
        assert restored
        assert restored.conversations == first.sessions
        assert restored.preambles == {}
        yield sandbox
    finally:
        await sandbox.stop()


async def test_a_conversation_goes_on_in_another_sandbox(second: Sandbox, first: Story) -> None:
    assert second.conversations.known() == first.sessions
    assert (second.folder / "fruit.txt").read_text() == "kumquat"
    # the model is asked with all that was said before
    assert "3 prompts" in await second.say(CHANNELS[0], TextInput(text="count prompts"))
    assert "2 prompts" in await second.say(CHANNELS[1], TextInput(text="count prompts"))
    messages = await second.client.messages(first.sessions[CHANNELS[0]])
    assert [part.text for part in messages[0].parts if part.type == "text"] == ["say the word is kumquat"]


async def test_a_revert_after_that_takes_no_file_away(second: Sandbox, first: Story) -> None:
    session = first.sessions[CHANNELS[0]]
    await second.client.revert(session, (await second.client.messages(session))[0].info.id)
    assert (second.folder / "fruit.txt").read_text() == "kumquat"
    await second.client.unrevert(session)
    assert (second.folder / "fruit.txt").read_text() == "kumquat"


async def test_work_is_saved_and_put_back_again(second: Sandbox, first: Story, make: Make) -> None:
    saved = await second.end(second.client)
    assert saved.work.base_commit == first.saved.work.base_commit
    third = make(opencode="/bin/false")
    await third.boot(base=saved.work.base_commit, restores=True)
    restored = await third.work.restore(saved.work)
    # this sandbox's OpenCode cannot take the conversations back: the agent gets them as text
    assert restored
    assert restored.conversations == {}
    assert (third.folder / "fruit.txt").read_text() == "kumquat"
    (preamble,) = restored.preambles[CHANNELS[0]]
    assert "Person: say the word is kumquat" in preamble
    assert "You: the word is kumquat" in preamble
    assert "(used write)" in preamble
    assert preamble.index("the word is kumquat") < preamble.index("count prompts")
    assert "hello slack" in restored.preambles[CHANNELS[1]][0]


async def test_the_manifest_says_what_is_there(first: Story, store: ObjectServer, tmp_path: Path) -> None:
    archive = tmp_path / "work.tar.gz"
    archive.write_bytes(store.stored[first.saved.work.object])
    manifest = work_bundle.unpack(archive, tmp_path)
    assert manifest.turn == first.saved.turn_id
    assert {saved.channel: saved.session for saved in manifest.channels} == first.sessions
    assert manifest.branch == "main"
    assert "fruit.txt" in (tmp_path / work_bundle.PATCH).read_text()
