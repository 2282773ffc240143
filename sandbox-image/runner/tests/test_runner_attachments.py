"""Claims about attachments; the portal's object store and whisper.cpp are stand-ins."""

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from valet_protocol.events.facts import Attachment
from valet_protocol.ids import new_id
from valet_protocol.sandbox_spec import ModelSpec, ProviderSpec, RunnerSpec
from valet_runner import attachment_kinds, transcription, work_limits
from valet_runner.attachment_kinds import Ends
from valet_runner.attachments import Attachments
from valet_runner.objects import Objects
from valet_runner.prompt_parts import FileInput, TextInput
from valet_runner.testing_objects import ObjectServer
from valet_runner.transcription import NotTranscribed

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20) + b"IEND"


@pytest_asyncio.fixture
async def store() -> AsyncIterator[ObjectServer]:
    path = Path("/tmp") / f"vra-{os.getpid()}-{new_id()[-8:]}.sock"  # pytest's own folders are too long for a socket
    async with ObjectServer(path) as server:
        yield server
    path.unlink(missing_ok=True)


@pytest.fixture
def spec(tmp_path: Path) -> RunnerSpec:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "bin").mkdir()
    return RunnerSpec(
        session_id="S",
        epoch=1,
        nats_creds="",
        portal_socket="",
        portal_token="",
        workspace="/nonexistent",
        home=str(home),
        repo=None,
        branch=None,
        model="a/b",
        providers=[],
        opencode="",
        path=f"{tmp_path / 'bin'}:/usr/bin:/bin",
    )


def put(store: ObjectServer, content: bytes, *, name: str, mime: str) -> Attachment:
    attachment_id = new_id()
    store.stored[f"sessions/S/attachments/{attachment_id}"] = content
    digest = hashlib.sha256(content).hexdigest()
    return Attachment(attachment_id=attachment_id, name=name, mime=mime, bytes=len(content), sha256=digest)


def attachments(spec: RunnerSpec, store: ObjectServer, **environ: str) -> Attachments:
    return Attachments(spec, Objects(str(store.path), store.token), environ=environ)


def program(spec: RunnerSpec, name: str, script: str) -> None:
    path = Path(spec.path.split(":")[0]) / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def found(spec: RunnerSpec, pattern: str) -> list[Path]:
    return list(Path(spec.home).rglob(pattern))


@pytest.mark.asyncio
async def test_files_become_parts_that_opencode_reads(spec: RunnerSpec, store: ObjectServer) -> None:
    given = [
        put(store, b'{"a": 1}', name="data ü.json", mime="application/json"),
        put(store, PNG, name="../../shot.png", mime="image/jpeg"),
        put(store, b"%PDF-1.7 ...", name="paper.pdf", mime="application/octet-stream"),
        put(store, b"PK\x03\x04\0\0", name="all.zip", mime="application/zip"),
        put(store, b"\0not what it says", name="fake.png", mime="image/png"),
    ]
    parts = await attachments(spec, store).parts(given)
    folder = Path(spec.home) / ".valet" / "attachments"
    paths = [
        folder / attachment.attachment_id / name
        for attachment, name in zip(given, ("data ü.json", "shot.png", "paper.pdf", "all.zip", "fake.png"), strict=True)
    ]
    # by what they are, not by what they were said to be: another type fails the turn, and each one after it
    assert parts[:3] == [
        FileInput(mime="text/plain", url=paths[0].as_uri(), filename="data ü.json"),
        FileInput(mime="image/png", url=paths[1].as_uri(), filename="shot.png"),
        FileInput(mime="application/pdf", url=paths[2].as_uri(), filename="paper.pdf"),
    ]
    for part, path in zip(parts[3:], paths[3:], strict=True):
        assert isinstance(part, TextInput)
        assert part.synthetic
        assert str(path) in part.text
    assert [path.read_bytes() for path in paths] == [
        store.stored[f"sessions/S/attachments/{attachment.attachment_id}"] for attachment in given
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("model", "sees", "reads"),
    [("own/blind", False, False), ("own/sighted", True, False), ("known/any", True, True)],
)
async def test_what_a_model_cannot_be_shown_it_is_told_of(
    spec: RunnerSpec, store: ObjectServer, model: str, sees: bool, reads: bool
) -> None:
    own = ProviderSpec(id="own", models=[ModelSpec(id="blind"), ModelSpec(id="sighted", images=True)])
    spec = msgspec.structs.replace(spec, providers=[own, ProviderSpec(id="known", builtin=True)])
    given = [
        put(store, PNG, name="shot.png", mime="image/png"),
        put(store, b"%PDF-1.7 ...", name="paper.pdf", mime="application/pdf"),
        put(store, b"words", name="words.txt", mime="text/plain"),
    ]
    image, document, text = await attachments(spec, store).parts(given, model=model)
    assert (isinstance(image, FileInput), isinstance(document, FileInput)) == (sees, reads)
    assert isinstance(text, FileInput)
    if isinstance(image, TextInput):
        (path,) = found(spec, "shot.png")
        assert str(path) in image.text
        assert model in image.text


@pytest.mark.asyncio
async def test_an_attachment_is_fetched_once(spec: RunnerSpec, store: ObjectServer) -> None:
    attachment = put(store, b"text", name="a.txt", mime="text/plain")
    first = await attachments(spec, store).parts([attachment])
    assert await attachments(spec, store).parts([attachment]) == first
    assert len(store.requests) == 1
    # unless the agent has changed it
    path = Path(spec.home) / ".valet" / "attachments" / attachment.attachment_id / "a.txt"
    path.write_text("changed")
    assert await attachments(spec, store).parts([attachment]) == first
    assert path.read_text() == "text"


@pytest.mark.asyncio
async def test_what_cannot_be_fetched_is_named_and_fails_nothing(
    spec: RunnerSpec, store: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_limits, "RETRY_WAIT", 0.01)
    missing = put(store, b"", name="missing.txt", mime="text/plain")
    del store.stored[f"sessions/S/attachments/{missing.attachment_id}"]
    damaged = put(store, b"right", name="damaged.txt", mime="text/plain")
    store.stored[f"sessions/S/attachments/{damaged.attachment_id}"] = b"wrong"
    escaping = msgspec.structs.replace(missing, attachment_id="../../etc", name="escaping.txt")
    good = put(store, b"good", name="good.txt", mime="text/plain")
    store.failures = [503]  # it was only restarting
    parts = await attachments(spec, store).parts([missing, damaged, escaping, good])
    notes = [part.text for part in parts if isinstance(part, TextInput)]
    assert ["missing.txt" in notes[0], "damaged.txt" in notes[1], "escaping.txt" in notes[2]] == [True] * 3
    assert isinstance(parts[3], FileInput)
    assert not found(spec, "*.part")


@pytest.mark.asyncio
async def test_a_store_that_stays_away_costs_the_attachments_only(
    spec: RunnerSpec, store: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_limits, "RETRY_WAIT", 0.01)
    monkeypatch.setattr(work_limits, "ATTACHMENTS_TIMEOUT", 0.3)
    attachment = put(store, b"text", name="a.txt", mime="text/plain")
    store.failures = [503] * 10_000
    (note,) = await attachments(spec, store).parts([attachment])
    assert isinstance(note, TextInput)
    assert "a.txt" in note.text
    assert "too long" in note.text


@pytest.mark.asyncio
async def test_speech_becomes_text_where_there_is_a_model(spec: RunnerSpec, store: ObjectServer) -> None:
    audio = put(store, b"RIFF....WAVE", name="memo.wav", mime="audio/wav")
    model = Path(spec.home) / "ggml-base.bin"
    model.touch()
    # the last option is where the transcript goes, without its ending
    program(spec, "whisper-cli", 'for last; do :; done; echo " Please fix the login. " > "$last.txt"')
    (part,) = await attachments(spec, store, VALET_WHISPER_MODEL=str(model)).parts([audio])
    assert isinstance(part, TextInput)
    assert not part.synthetic
    assert "memo.wav" in part.text
    assert part.text.endswith("\n\nPlease fix the login.")


@pytest.mark.asyncio
async def test_other_formats_are_converted_where_ffmpeg_is(spec: RunnerSpec, store: ObjectServer) -> None:
    audio = put(store, b"\x1aE\xdf\xa3", name="memo.webm", mime="audio/webm")
    model = Path(spec.home) / "ggml-base.bin"
    model.touch()
    program(spec, "whisper-cli", 'for last; do :; done; cat "$4" > "$last.txt"')
    (part,) = await attachments(spec, store, VALET_WHISPER_MODEL=str(model)).parts([audio])
    assert isinstance(part, TextInput)
    assert "without ffmpeg" in part.text
    program(spec, "ffmpeg", 'for last; do :; done; echo "converted" > "$last"')
    (part,) = await attachments(spec, store, VALET_WHISPER_MODEL=str(model)).parts([audio])
    assert isinstance(part, TextInput)
    assert part.text.endswith("\n\nconverted")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("lacking", "script", "words"),
    [
        ("model", "", "no speech recognition"),
        ("program", "", "no speech recognition"),
        ("speech", 'for last; do :; done; echo " [BLANK_AUDIO]" > "$last.txt"', "no speech was heard"),
        ("luck", "echo no memory >&2; exit 1", "whisper-cli failed: no memory"),
        # as whisper.cpp 1.4 and 1.8 do it
        ("a sound model", "echo 'invalid model data (bad magic)' >&2; exit 3", "ggml-base.bin: invalid model data"),
        ("a whole model", "echo 'ASSERT(x) failed' >&2; echo '30 wait4.c' >&2; kill -ABRT $$", "ASSERT(x) failed"),
        ("a readable file", "echo \"error: failed to read WAV file 'x'\" >&2", "no transcript: error: failed to read"),
        ("options", "echo 'error: unknown argument: -q' >&2; echo '-h help' >&2", "unknown argument: -q"),
        ("the new name", "echo \"WARNING: The binary 'main' is deprecated.\"; exit 1", "is deprecated"),
        ("words", "kill -KILL $$", "it ended by signal 9"),
    ],
    ids=lambda value: value if len(value) < 16 else "",
)
async def test_speech_that_cannot_be_transcribed_is_said_to_be_and_where_it_lies(
    spec: RunnerSpec, store: ObjectServer, lacking: str, script: str, words: str
) -> None:
    audio = put(store, b"RIFF....WAVE", name="memo.wav", mime="audio/wav")
    model = Path(spec.home) / "ggml-base.bin"
    if lacking != "model":
        model.touch()
    if script:
        program(spec, "whisper-cli", script)
    (note,) = await attachments(spec, store, VALET_WHISPER_MODEL=str(model)).parts([audio])
    assert isinstance(note, TextInput)
    assert note.synthetic
    assert "could not be transcribed" in note.text
    assert str(Path(spec.home) / ".valet" / "attachments" / audio.attachment_id / "memo.wav") in note.text
    assert words in note.text


@pytest.mark.asyncio
async def test_a_model_is_found_where_its_volume_is_mounted(spec: RunnerSpec, tmp_path: Path) -> None:
    program(spec, "whisper-cli", 'for last; do :; done; echo "$2" > "$last.txt"')
    audio = tmp_path / "a.wav"
    audio.touch()
    with pytest.raises(NotTranscribed, match="no speech recognition"):
        await transcription.transcribe(audio, spec, {}, models=tmp_path / "models")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "ggml-base.bin").touch()
    text = await transcription.transcribe(audio, spec, {}, models=tmp_path / "models")
    assert text == str(tmp_path / "models" / "ggml-base.bin")


@given(st.text(alphabet=st.characters(), max_size=300))
def test_a_safe_name_is_one_file_in_its_folder(name: str) -> None:
    safe = attachment_kinds.safe_name(name)
    assert safe
    assert len(safe.encode()) <= work_limits.NAME_BYTES
    assert "/" not in safe
    assert "\\" not in safe
    assert safe[0] not in ".-~ "
    assert all(ord(char) >= 32 and ord(char) != 127 for char in safe)
    assert (Path("/folder") / safe).resolve() == Path("/folder") / safe
    assert attachment_kinds.safe_name(safe) == safe


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\Foto 1.JPG", "Foto 1.JPG"),
        ("Größe – 漢字.txt", "Größe – 漢字.txt"),
        (".bashrc", "bashrc"),
        ("-rf", "rf"),
        ("a\nb\0c.txt", "a_b_c.txt"),
        ("evil\u202egnp.exe", "evilgnp.exe"),
        ("..", "file"),
        ("", "file"),
        ("x" * 300 + ".tar", "x" * 116 + ".tar"),
    ],
)
def test_a_name_stays_recognisable(name: str, safe: str) -> None:
    assert attachment_kinds.safe_name(name) == safe


def kind(mime: str, content: bytes, size: int | None = None) -> str:
    return attachment_kinds.look(mime, Ends(head=content, tail=content, size=size or len(content)))[0]


def test_an_image_that_cannot_be_shown_is_not_given_to_the_model() -> None:
    jpeg, gif = b"\xff\xd8\xff..", b"GIF89a.."
    webp = b"RIFF\x0c\0\0\0WEBPVP8 .... "
    for whole in (PNG, jpeg + b"\xff\xd9", gif + b";", webp[:20]):
        assert kind("image/png", whole) == "image"
        assert kind("image/png", whole, 50_000_000) == "other"
    for cut in (PNG[:20], jpeg, gif, webp[:16]):
        assert kind("image/png", cut) == "other"
    assert kind("application/pdf", b"%PDF-", 30_000_000) == "other"


def test_text_that_is_cut_within_a_character_is_text() -> None:
    long = ("a" + "ü" * work_limits.LOOK_BYTES).encode()[: work_limits.LOOK_BYTES]
    assert kind("application/x-whatever", long) == "text"
    assert kind("text/plain", b"\xfc\xff\xfe latin") == "other"
