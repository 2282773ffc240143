"""Speech to text inside the sandbox, with whisper.cpp where the image has it and a model is mounted.

The program is `whisper-cli` (older builds: `main`) on the sandbox's `PATH`; the model is the file that
`VALET_WHISPER_MODEL` names, else one in `/models/whisper`. With `ffmpeg` every format can be taken.

Tried with whisper.cpp 1.4 and 1.8: both end with status 0 when they do not know an option or cannot read the recording,
and write no transcript then; 3 is a model that cannot be loaded; a damaged one may end them by a signal, after which a
debugger says much. `main` of newer builds only names its successor, on standard output.
"""

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from valet_protocol.sandbox_spec import RunnerSpec

from valet_runner import processes, work_limits
from valet_runner.cutting import head
from valet_runner.errors import RunnerError

MODELS = Path("/models/whisper")
"""Where a volume with models is mounted."""

_PROGRAMS = ("whisper-cli", "main")
_READ_BY_WHISPER = (".wav", ".mp3", ".flac", ".ogg")
_BAD_MODEL = 3
_SILENCE = "[BLANK_AUDIO]"
_TELLING = re.compile(r"error|fail|invalid|assert|warning|must be", re.IGNORECASE)


class NotTranscribed(RunnerError):
    """There is no text; the message says why, for people."""


async def transcribe(audio: Path, spec: RunnerSpec, environ: Mapping[str, str], *, models: Path = MODELS) -> str:
    """What is said in a recording. Raises `NotTranscribed`."""
    model = _model(environ, models)
    program = next((found for name in _PROGRAMS if (found := shutil.which(name, path=spec.path))), None)
    if model is None or program is None:
        raise NotTranscribed("this sandbox has no speech recognition")
    with tempfile.TemporaryDirectory(prefix="valet-speech-") as folder:
        wave = await _as_wave(audio, spec, Path(folder))
        out = Path(folder) / "transcript"
        # no option that old builds do not know (-np): they would show how they are used, and end well
        command = (program, "-m", str(model), "-f", str(wave), "-l", "auto", "-nt", "-otxt", "-of", str(out))
        done = await _run(command, spec, work_limits.TRANSCRIBE_TIMEOUT)
        name = Path(program).name
        if done.code == _BAD_MODEL:
            raise NotTranscribed(f"{name} cannot use the speech model {model.name}: {_last_words(done)}")
        if done.code != 0:
            raise _failed(name, done)
        written = out.with_suffix(".txt")
        if not written.exists():
            raise NotTranscribed(f"{name} wrote no transcript: {_last_words(done)}")
        text = written.read_text(errors="replace").replace(_SILENCE, "").strip()
    if not text:
        raise NotTranscribed("no speech was heard in it")
    return head(text, work_limits.TRANSCRIPT_CHARS)


def _model(environ: Mapping[str, str], models: Path) -> Path | None:
    named = environ.get("VALET_WHISPER_MODEL")
    if named:
        return path if (path := Path(named)).is_file() else None
    return next(iter(sorted(models.glob("*.bin"))), None)


async def _as_wave(audio: Path, spec: RunnerSpec, folder: Path) -> Path:
    """In the form whisper.cpp works on, where that can be made; else as it is, if whisper.cpp may read it."""
    ffmpeg = shutil.which("ffmpeg", path=spec.path)
    if ffmpeg is None:
        if audio.suffix.lower() in _READ_BY_WHISPER:
            return audio
        raise NotTranscribed(f"without ffmpeg, {audio.suffix or 'this'} files cannot be read")
    wave = folder / "speech.wav"
    options = ("-nostdin", "-loglevel", "error", "-i", str(audio), "-ar", "16000", "-ac", "1", "-f", "wav", str(wave))
    done = await _run((ffmpeg, *options), spec, work_limits.CONVERT_TIMEOUT)
    if done.code != 0:
        raise _failed("ffmpeg", done)
    return wave


async def _run(command: tuple[str, ...], spec: RunnerSpec, timeout: float) -> processes.Finished:
    env = {"PATH": spec.path, "HOME": spec.home, "LANG": "C.UTF-8"}
    name = Path(command[0]).name
    try:
        return await processes.run(*command, env=env, cwd=spec.home, timeout=timeout)
    except TimeoutError as error:
        raise NotTranscribed(f"{name} took longer than {timeout:.0f} s") from error
    except OSError as error:
        raise NotTranscribed(f"{name} cannot be run: {error.strerror or error}") from error


def _failed(name: str, done: processes.Finished) -> NotTranscribed:
    return NotTranscribed(f"{name} failed: {_last_words(done)}")


def _last_words(done: processes.Finished) -> str:
    """The line that says most: the last one that sounds like a problem, else the last."""
    for said in (done.stderr, done.stdout):
        lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
        if lines:
            telling = [line for line in lines if _TELLING.search(line)]
            return head([*lines, *telling][-1], work_limits.LAST_WORDS_CHARS)
    return f"it ended by signal {-done.code}" if done.code < 0 else f"it ended with status {done.code}"
