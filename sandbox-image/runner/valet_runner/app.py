"""Wiring of the runner: what is started, in which order, and how it ends."""

import asyncio
import contextlib
import importlib.metadata
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import uvloop
from nats.aio.client import Client, RawCredentials
from valet_protocol import ids, subjects
from valet_protocol.errors import Refused, Unavailable
from valet_protocol.events import agent
from valet_protocol.events.agent import WorkRef
from valet_protocol.requests import Attached, AttachRunner
from valet_protocol.sandbox_spec import RunnerSpec
from valet_service import broker, durable_reader, logs, rpc
from valet_service.outbox import Outbox

from valet_runner import (
    config,
    conversation,
    events_stream,
    frames,
    git_environment,
    limits,
    persona,
    processes,
    relay,
    tools_door,
    workspace,
)
from valet_runner.attachments import Attachments
from valet_runner.boot_steps import BootSteps
from valet_runner.bridge import Bridge
from valet_runner.errors import (
    BadSpec,
    CloneFailed,
    OpencodeFailed,
    OpencodeRefused,
    OpencodeUnavailable,
    Replaced,
)
from valet_runner.facts import FactHandler
from valet_runner.machine import Machine
from valet_runner.objects import Objects
from valet_runner.opencode_process import OpencodeProcess
from valet_runner.publisher import Publisher
from valet_runner.work import Work
from valet_runner.work_errors import ObjectRefused, ObjectsUnavailable
from valet_runner.writers import WritersWatch

_log = logs.get(__name__)


def main() -> None:
    """Run until told to stop. Exit status 0 for an orderly end (and for a runner that was replaced), else 1."""
    logs.configure("runner")
    began = time.monotonic()
    processes.guard_self()
    try:
        spec = config.load()
    except BadSpec as error:
        _log.error("stopped", reason=str(error))
        sys.exit(1)
    sys.exit(uvloop.run(_main(spec, began)))


async def _main(spec: RunnerSpec, began: float) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    life = asyncio.create_task(_live(spec, began))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([life, stopped], return_when=asyncio.FIRST_COMPLETED)
    life.cancel()
    try:
        await life
    except asyncio.CancelledError:
        return 0
    except Replaced as error:
        _log.info("replaced", reason=str(error))
        return 0
    except Refused as error:
        _log.error("stopped", reason=f"the platform refused this runner: {error}")
    return 1


async def _live(spec: RunnerSpec, began: float) -> None:
    """All of it, until cancelled. Raises `Replaced` and `Refused`."""
    home = _folder(spec.home)
    async with contextlib.AsyncExitStack() as stack:
        steps = BootSteps(time.monotonic)
        relay_port, nats_url = await _relays(spec, stack)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="valet-", ignore_cleanup_errors=True)))
        machine = Machine(spec, relay_port=relay_port, folder=folder, steps=steps)
        process = OpencodeProcess(spec, machine.around, reachable=machine.opencode)
        process.delayed = lambda why: steps.failed("opencode", began, why)
        running = [asyncio.create_task(process.run()), asyncio.create_task(machine.run())]
        stack.push_async_callback(_end, running)
        steps.done("environment", began)

        async def connect(reconnect: bool) -> Client:
            return await broker.connect(
                nats_url,
                name=f"runner {spec.session_id} epoch {spec.epoch}",
                creds=RawCredentials(spec.nats_creds) if spec.nats_creds else None,  # type: ignore[arg-type]
                inbox_prefix=subjects.runner_inbox(spec.session_id),
                reconnect=reconnect,
            )

        nc = await connect(True)
        stack.push_async_callback(broker.close, nc, limits.DISCONNECT_TIMEOUT)
        attached = await _attach(spec, nc)
        writers = WritersWatch(nc, spec.session_id, machine.admit)
        if machine.wanted:
            running.append(asyncio.create_task(writers.run()))
        outbox = await stack.enter_async_context(Outbox(lambda: connect(False)))
        publisher = Publisher(outbox, session_id=spec.session_id, epoch=spec.epoch, now_ms=_now_ms, new_id=ids.new_id)
        stack.push_async_callback(_wind_down, publisher, running)
        steps.open(publisher.say, publisher.room)
        with steps.step("git"):
            git_environment.write_config(home)
        env = git_environment.environment(spec, relay_port=relay_port)
        try:
            restores = attached.work is not None
            with steps.step("clone") as details:
                copy = await workspace.prepare(spec, env, base_commit=attached.base_commit, restores=restores)
                details.append(copy.detail)
        except CloneFailed as error:
            await _boot_failed(publisher, agent.BootFailed(stage="clone", detail=str(error)))
        with steps.step("persona"):
            persona.write(home, persona.files(spec, copy.base))
        objects = Objects(spec.portal_socket, spec.portal_token)
        work = Work(spec, env, objects, copy.base)
        if machine.wanted:
            tools = tools_door.serving(
                spec, machine, nc=nc, publisher=publisher, objects=objects, base_commit=copy.base, env=env
            )
            try:
                await stack.enter_async_context(tools)
            except (ImportError, OSError):
                _log.exception("tools_not_served", reason="the session goes on without them")
        try:
            await process.client(limits.START_TIMEOUT_MAX * limits.FIRST_STARTS)
            if attached.work:
                await _restore(work, attached.work, publisher)
            await process.apply(attached.policy)
            await machine.tools_can_be_had()
            await process.take_in()
            steps.done("opencode", began)
        except (OpencodeFailed, OpencodeUnavailable, OpencodeRefused) as error:
            await _boot_failed(publisher, agent.BootFailed(stage="opencode", detail=str(error)))
        bridge = Bridge(
            process=process,
            publisher=publisher,
            conversations=conversation.Conversations(home),
            policy=attached.policy,
            work=work,
            attachments=Attachments(spec, objects),
            shown=machine.shown,
            home=home,
            now_ms=_now_ms,
            clock=time.monotonic,
        )
        await _serve(
            spec,
            nc,
            process=process,
            publisher=publisher,
            bridge=bridge,
            booted=machine.ready,
            attached_seq=attached.seq,
            writers_changed=writers.changed,
            ready=agent.RunnerReady(
                opencode_version=process.version,
                base_commit=copy.base,
                branch=copy.branch,
                boot_ms=round((time.monotonic() - began) * 1000),
            ),
        )


async def _serve(
    spec: RunnerSpec,
    nc: Client,
    *,
    process: OpencodeProcess,
    publisher: Publisher,
    bridge: Bridge,
    booted: asyncio.Event,
    attached_seq: int,
    writers_changed: Callable[[], None],
    ready: agent.RunnerReady,
) -> None:
    """Everything is there: say so and work."""
    listening = asyncio.Event()
    detail = ""

    async def ended(why: str) -> None:
        nonlocal detail
        detail = why
        await bridge.opencode_ended(why)

    async def healthy(first: bool) -> None:
        if not first:
            bridge.restarted(detail)

    process.ended, process.healthy = ended, healthy
    handler = FactHandler(bridge, epoch=spec.epoch, attached_seq=attached_seq, writers_changed=writers_changed)
    tasks = [asyncio.create_task(_stream(process, bridge, listening)), asyncio.create_task(bridge.watch())]
    try:
        heard = asyncio.create_task(listening.wait())
        await asyncio.wait([heard, *tasks], return_when=asyncio.FIRST_COMPLETED)
        publisher.say([ready])
        booted.set()
        facts = durable_reader.read_durable(nc, subjects.runner_consumer(spec.session_id), handler.handle)
        tasks.append(asyncio.create_task(facts))
        replaced = asyncio.create_task(handler.replaced.wait())
        await asyncio.wait([replaced, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():  # none of them ends by itself: this one has failed, and raises why
                await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    raise Replaced(f"a newer runner than epoch {spec.epoch} has the session")


async def _stream(process: OpencodeProcess, bridge: Bridge, listening: asyncio.Event) -> None:
    """Read OpenCode's events for ever, from whichever OpenCode runs."""
    while True:
        try:
            client = await process.client(limits.START_TIMEOUT)
            async with contextlib.aclosing(events_stream.read(client)) as stream:
                async for frame in stream:
                    if isinstance(frame, frames.Connected):
                        await bridge.connected(client)
                        listening.set()
                    else:
                        await bridge.frame(frame)
            _log.info("stream_ended")
        except (OpencodeUnavailable, OpencodeRefused) as error:
            _log.info("stream_reconnects", reason=str(error))
        await asyncio.sleep(limits.STREAM_RETRY_WAIT)


async def _relays(spec: RunnerSpec, stack: contextlib.AsyncExitStack) -> tuple[int | None, str]:
    """Open the ways to the portal; gives the proxy's port, if there is a portal, and the broker's address."""
    port: int | None = None
    if spec.portal_socket:
        server, port = await relay.serve_http(spec.portal_socket, spec.portal_token)
        stack.callback(server.close)
    if spec.nats_url:
        return port, spec.nats_url
    server, nats_port = await relay.serve_nats(spec.portal_socket, spec.portal_token)
    stack.callback(server.close)
    return port, f"nats://127.0.0.1:{nats_port}"


async def _attach(spec: RunnerSpec, nc: Client) -> Attached:
    """Take the session over, however long the ledger is away. Raises `Replaced`, and other refusals as they are."""
    request = AttachRunner(
        session_id=spec.session_id,
        epoch=spec.epoch,
        runner_version=importlib.metadata.version("valet-runner"),
    )
    subject = subjects.sandbox_request(spec.session_id, AttachRunner.method)
    while True:
        try:
            return await rpc.call(nc, subject, request, Attached, timeout=limits.ATTACH_TIMEOUT)
        except Unavailable as error:
            _log.warning("attach_repeats", reason=str(error))
        except Refused as error:
            if error.code == "replaced":
                raise Replaced(str(error)) from error
            raise


async def _restore(work: Work, saved: WorkRef, publisher: Publisher) -> None:
    """Put saved work back, however long the object store is away: the session must not go on without it."""
    while True:
        try:
            await work.restore(saved)
            return
        except ObjectsUnavailable as error:
            _log.warning("restore_repeats", reason=str(error))
        except ObjectRefused as error:
            detail = f"the session's saved work {saved.object} cannot be had: {error}"
            await _boot_failed(publisher, agent.BootFailed(stage="clone", detail=detail))


async def _boot_failed(publisher: Publisher, failure: agent.BootFailed) -> NoReturn:
    """Say why, then wait for the end: the ledger decides what becomes of the session."""
    _log.error("boot_failed", stage=failure.stage, detail=failure.detail)
    publisher.say([failure])
    await asyncio.Event().wait()
    raise AssertionError("nothing sets that event")


async def _flush(publisher: Publisher) -> None:
    try:
        await asyncio.wait_for(publisher.flush(), limits.FLUSH_TIMEOUT)
    except TimeoutError:
        _log.warning("events_not_stored", reason="the broker did not take them in time")


async def _wind_down(publisher: Publisher, running: list[asyncio.Task[None]]) -> None:
    """Both at once: whoever stops the sandbox waits for a few seconds only."""
    await asyncio.gather(_flush(publisher), _end(running))


async def _end(running: list[asyncio.Task[None]]) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _folder(path: str) -> Path:
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
