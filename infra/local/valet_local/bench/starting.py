"""(f) From the request for a session to an agent that takes prompts, with the real OpenCode.

Measured, cold: `POST /api/sessions` until the client sees `agent.runner_ready`; every session is new, with an empty
workspace and a home in which OpenCode has never run. Warm: the platform is stopped with those sessions asleep and
started again; then a prompt is posted to each in turn, and what counts is the time until `agent.runner_ready` of
its new sandbox. While a cold session starts, those before it idle beside it; a warm one is ended before the next.

Floor: `opencode serve` started directly on this machine with the runner's own configuration and environment, until
`/global/health` says that it is healthy; for cold with an empty home, for warm with that home again. It is asked every
20 ms, each time on a connection of its own that may take 250 ms, because it may take a request in its first half second
and never answer it.
"""

import asyncio
import re
import secrets
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx
import uvloop
from valet_protocol.events.facts import SessionPolicy
from valet_protocol.sandbox_spec import ModelSpec, ProviderSpec, RunnerSpec
from valet_runner import opencode_config

from valet_local import provision
from valet_local.bench import limits, stage, wire
from valet_local.bench.errors import BenchFailed
from valet_local.bench.report import Aim, Figure
from valet_local.bench.scale import Scale
from valet_local.bench.stage import Stage
from valet_local.bench.statistics import median
from valet_local.cli.scripted_model import playing
from valet_local.layout import layout, prepare
from valet_local.tools import Tools

BOUND = (
    "before OpenCode is started a sandbox is made and a Python process starts in it, while two services and the "
    "runner's connection to the broker compete with OpenCode for the processors; after it is healthy come its first "
    "session and its stream of events"
)
"""What a start consists of beyond its floor."""

_SCENARIO = """\
[[turn]]
name = "any"
when = "."

[[turn.step]]
[[turn.step.action]]
type = "text"
text = "Good morning."
"""

_READY = b"event: agent.runner_ready\n"
_LISTENING = re.compile(rb"listening on (http://\S+)")


def run(scale: Scale) -> list[Figure]:
    """Cold, then warm, alternating with OpenCode alone; medians. Raises `BenchFailed` and `LocalError`s."""
    with stage.folder() as folder:
        data, scenario = folder / "d", folder / "scenario.toml"
        scenario.write_text(_SCENARIO)
        tools = _programs(data)
        homes = [folder / f"home-{number}" for number in range(scale.starts)]
        sessions: list[str] = []
        cold: list[float] = []
        alone: list[float] = []
        warm: list[float] = []
        again: list[float] = []
        with playing(str(scenario)) as model_url:
            with stage.platform(data, model_url=model_url) as running:
                for home in homes:
                    alone.append(_opencode(tools, home))
                    cold.append(_cold(running, sessions))
            with stage.platform(data, model_url=model_url) as running:
                for home, session_id in zip(homes, sessions, strict=True):
                    again.append(_opencode(tools, home))
                    warm.append(_warm(running, session_id))
    return [
        _figure("cold start of a session", cold, alone, Aim(above_floor=1.5), BOUND),
        _figure("resuming a hibernated session", warm, again, None, ""),
    ]


def _figure(name: str, took: list[float], beside: list[float], aim: Aim | None, bound: str) -> Figure:
    return Figure(
        bench="f",
        name=name,
        value=median(took),
        unit="s",
        floor=median(beside),
        floor_name="OpenCode alone",
        aim=aim,
        bound=bound,
        note=f"median of {len(took)}; {min(took):.2f}–{max(took):.2f} s, alone {min(beside):.2f}–{max(beside):.2f} s",
    )


def _cold(running: Stage, sessions: list[str]) -> float:
    """Seconds; the session is added and lives on: the next stop of the platform puts it to sleep."""
    began = time.perf_counter()
    view = running.create_session()
    _until_ready(running, view.id, 0)
    took = time.perf_counter() - began
    sessions.append(view.id)
    return took


def _warm(running: Stage, session_id: str) -> float:
    view = running.wait(session_id, lambda view: view.status == "hibernated", "a session that sleeps")
    began = time.perf_counter()
    running.prompt(session_id, "Wake up")
    _until_ready(running, session_id, view.seq)
    took = time.perf_counter() - began
    running.wait(session_id, lambda view: view.status == "ready", "the end of its turn")
    running.end_session(session_id)
    return took


def _until_ready(running: Stage, session_id: str, after: int) -> None:
    with wire.Stream.of(running.endpoint, session_id, after) as stream:
        stream.until(_READY, limits.READY)


def _programs(data: Path) -> Tools:
    """The programs of a platform that is not running yet."""
    places = layout(data)
    prepare(places)
    return provision.ensure_tools(places, progress=lambda *_: None)


def _opencode(tools: Tools, home: Path) -> float:
    """Seconds from the start of an OpenCode until it is healthy. Raises `BenchFailed`."""
    home.mkdir(exist_ok=True)
    spec = RunnerSpec(
        session_id="bench",
        epoch=1,
        nats_creds="",
        portal_socket="",
        portal_token="",
        workspace=str(home),
        home=str(home),
        repo=None,
        branch=None,
        model="scripted/scripted-1",
        providers=[ProviderSpec(id="scripted", models=[ModelSpec(id="scripted-1")])],
        opencode=str(tools.opencode),
        path=f"{tools.rg.parent}:/usr/local/bin:/usr/bin:/bin",
    )
    config = home / "opencode.json"
    config.write_bytes(opencode_config.config(spec, opencode_config.Surroundings(relay_port=9), policy=SessionPolicy()))
    return uvloop.run(_healthy(spec, str(config)))


async def _healthy(spec: RunnerSpec, config: str) -> float:
    password = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory(prefix="valet-bench-plugin-") as plugins:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(spec.opencode, "serve", "--port", "0", "--hostname", "127.0.0.1"),
            env={
                **opencode_config.environment(
                    spec, opencode_config.Surroundings(), config_file=config, plugin_dir=plugins
                ),
                "OPENCODE_SERVER_PASSWORD": password,
            },
            cwd=spec.home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limits.READY):
                url = await _listening(process)
                while not await _asked(url, password):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(limits.POLL * 4)
            return time.perf_counter() - began
        except TimeoutError:
            raise BenchFailed(f"OpenCode alone was not healthy within {limits.READY:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()


async def _listening(process: asyncio.subprocess.Process) -> str:
    assert process.stdout
    while words := await process.stdout.readline():
        if found := _LISTENING.search(words):
            return found[1].decode()
    raise BenchFailed("OpenCode alone ended before it listened")


async def _asked(url: str, password: str) -> bool:
    try:
        async with httpx.AsyncClient(auth=("opencode", password), timeout=limits.PROBE, trust_env=False) as client:
            answer = await client.get(f"{url}/global/health")
            return answer.status_code == 200 and answer.json().get("healthy") is True
    except (httpx.HTTPError, ValueError):
        return False
