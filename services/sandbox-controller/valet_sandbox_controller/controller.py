"""Carries out what `plan` decides: starts, watches and ends sandboxes, stores it and says so in the log."""

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from nats.aio.client import Client
from valet_protocol import codec, subjects
from valet_protocol.errors import Refused
from valet_protocol.events.facts import SandboxReleaseRequested, SandboxRequested
from valet_protocol.events.sandbox import (
    SandboxFailed,
    SandboxHibernated,
    SandboxLost,
    SandboxProvisioning,
    SandboxReady,
    SandboxTerminated,
)
from valet_protocol.requests import GetOwner, Owner
from valet_service import logs, rpc
from valet_service.durable_reader import Delivery, delete_consumer, ensure_consumer

from valet_sandbox_controller import limits, plan, repositories, runner_spec
from valet_sandbox_controller.announcements import Announcer
from valet_sandbox_controller.config import ControllerConfig
from valet_sandbox_controller.errors import RepositoryUnusable, SandboxRefused
from valet_sandbox_controller.provider import Capability, HostRepository, Limits, SandboxProvider, SandboxSpec
from valet_sandbox_controller.store import SandboxRecord, Store
from valet_sandbox_controller.watch import Watcher

_log = logs.get(__name__)


class Controller:
    """The sandboxes of this installation. Sessions are served side by side, the requests of one in their order."""

    def __init__(
        self,
        *,
        store: Store,
        provider: SandboxProvider,
        announcer: Announcer,
        nc: Client,
        config: ControllerConfig,
        now_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
    ) -> None:
        self._store = store
        self._provider = provider
        self._announcer = announcer
        self._nc = nc
        self._config = config
        self._now_ms = now_ms
        self._entropy = entropy
        self._watcher = Watcher(provider, self._ended)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._tasks: dict[asyncio.Task[None], str] = {}

    async def recover(self) -> None:
        """Take up what an earlier run of the service has left. Call once, before requests are read."""
        for record in await self._store.live():
            status = None if record.ref is None else await self._provider.status(record.ref)
            action = plan.found_at_start(record, status, now_ms=self._now_ms())
            _log.info("sandbox_found", session=record.session_id, epoch=record.epoch, action=type(action).__name__)
            self._in_turn(record.session_id, lambda record=record, action=action: self._act(record.session_id, action))

    async def handle(self, delivery: Delivery) -> None:
        """A fact from the log. It is acknowledged when it has been carried out."""
        event = codec.decode(delivery.payload, delivery.seq)

        async def carry_out() -> None:
            record = await self._store.find(event.session_id)
            match event.data:
                case SandboxRequested() as request:
                    action = plan.requested(record, request, now_ms=self._now_ms())
                    await self._act(event.session_id, action, seq=delivery.seq)
                case SandboxReleaseRequested() as request:
                    await self._act(event.session_id, plan.release_requested(record, request))
                case other:
                    _log.warning("fact_not_understood", type=event.type, seq=delivery.seq, kind=type(other).__name__)
            await delivery.acknowledge()

        self._in_turn(event.session_id, carry_out, delivery)

    async def hibernate_all(self) -> None:
        """The platform stops: end every sandbox, keep the workspaces, say so."""
        half_made = {session for task, session in self._tasks.items() if not task.done()}
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=limits.FINISH_STARTS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        watched = self._watcher.watched()
        half_made -= {record.session_id for record in watched}
        results = await asyncio.gather(
            *map(self._hibernate, watched), *map(self._provider.abandon, half_made), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                _log.error("sandbox_not_ended", error=str(result) or type(result).__name__)
        try:
            await asyncio.wait_for(self._announcer.flush(), limits.HIBERNATE_FLUSH)
        except TimeoutError:
            # still recorded as running: the next start finds the sandbox gone and says `lost`
            _log.warning("hibernation_not_announced", reason="the broker does not answer")

    def _in_turn(
        self, session_id: str, action: Callable[[], Awaitable[None]], delivery: Delivery | None = None
    ) -> None:
        lock = self._locks.setdefault(session_id, asyncio.Lock())

        async def run() -> None:
            try:
                async with lock:
                    await action()
            except Exception as error:  # noqa: BLE001 - one session's trouble must not end the service; it comes again
                _log.exception("request_not_carried_out", session=session_id, error=str(error))
                if delivery is not None:
                    await delivery.again(limits.RETRY_AFTER)

        task = asyncio.create_task(run())
        self._tasks[task] = session_id
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _act(self, session_id: str, action: plan.Action, *, seq: int | None = None) -> None:
        match action:
            case plan.Start(request=request):
                if action.replaces is not None:
                    self._watcher.unwatch(session_id)
                    await self._provider.terminate(action.replaces, grace=0)
                await self._start(session_id, request, seq)
            case plan.Watch(record=record, announce=announce):
                self._watcher.watch(record)
                if announce:
                    await self._say_ready(record)
            case plan.ReportLost(record=record, exit_code=code):
                await self._lost(record, code)
            case plan.Release():
                await self._release(session_id, action)
            case plan.Ignore(reason=reason):
                _log.info("request_ignored", session=session_id, reason=reason)

    async def _start(self, session_id: str, request: SandboxRequested, seq: int | None) -> None:
        began = time.perf_counter()
        epoch = request.epoch
        self._announcer.queue(session_id, epoch, SandboxProvisioning(epoch=epoch, provider=self._provider.name))
        record = SandboxRecord(session_id=session_id, epoch=epoch, state="starting", request=request)
        await asyncio.gather(
            self._store.save(record),
            self._provider.abandon(session_id),
            ensure_consumer(
                self._nc,
                subjects.runner_consumer(session_id),
                [subjects.source(session_id, "fact")],
                # nothing before the first request is for a runner; of an imported session that may be a great deal
                start=seq if epoch == 1 else None,
                keep=True,
            ),
        )
        try:
            ref = await self._provider.create(await self._spec(session_id, request))
        except SandboxRefused as refusal:
            _log.warning("sandbox_refused", session=session_id, epoch=epoch, reason=str(refusal))
            failed = SandboxFailed(epoch=epoch, detail=str(refusal), retryable=refusal.retryable)
            await self._announcer.say(session_id, epoch, failed)
            await self._store.save(msgspec.structs.replace(record, state="failed"))
            return
        record = msgspec.structs.replace(record, state="running", ref=ref)
        await self._store.save(record)
        self._watcher.watch(record)
        await self._say_ready(record)
        milliseconds = round((time.perf_counter() - began) * 1000, 1)
        _log.info("sandbox_started", session=session_id, epoch=epoch, pid=ref.pid, took_ms=milliseconds)

    async def _spec(self, session_id: str, request: SandboxRequested) -> SandboxSpec:
        source, orchestrator = await asyncio.gather(
            asyncio.to_thread(self._source, request.repo), self._is_orchestrator(session_id)
        )
        sandbox = self._config.valet.sandbox
        return SandboxSpec(
            session_id=session_id,
            epoch=request.epoch,
            runner_spec=runner_spec.build(
                session_id,
                request,
                places=self._provider.places(session_id),
                source=source,
                providers=self._config.valet.providers,
                account=self._config.account,
                secret=self._config.secret,
                entropy=self._entropy(32),
                now=self._now_ms() // 1000,
                orchestrator=orchestrator,
                desktop=sandbox.desktop,
                secure=(sandbox.public_url or "").startswith("https:"),
                frame_ancestors=self._config.frame_ancestors,
            ),
            source=source,
            limits=Limits(memory_mb=sandbox.memory_mb, cpus=sandbox.cpus, pids=sandbox.pids),
        )

    async def _is_orchestrator(self, session_id: str) -> bool:
        question = GetOwner(session_id=session_id)
        subject = subjects.ledger_command(session_id, question.method)
        try:
            return (await rpc.call(self._nc, subject, question, Owner, timeout=limits.OWNER_WAIT)).orchestrator
        except Refused as refusal:
            # it only decides which tools are offered; each is refused again where it is answered
            _log.warning("owner_unknown", session=session_id, reason=str(refusal))
            return False

    def _source(self, repo: str | None) -> HostRepository | None:
        path: Path | None = repositories.host_path(repo)
        if path is None:
            return None
        if Capability.HOST_REPOSITORY not in self._provider.capabilities:
            raise RepositoryUnusable(f"{path} is on this machine, where the sandbox does not run; give a URL.")
        return repositories.inspect(path)

    async def _say_ready(self, record: SandboxRecord) -> None:
        ready = SandboxReady(
            epoch=record.epoch,
            provider=self._provider.name,
            sandbox_id=f"{record.session_id}-{record.epoch}",
            isolation=self._provider.isolation,
        )
        await self._announcer.say(record.session_id, record.epoch, ready)

    async def _ended(self, record: SandboxRecord, exit_code: int | None) -> None:
        async def report() -> None:
            now = await self._store.find(record.session_id)
            if now is not None and now.epoch == record.epoch and now.state == "running":
                await self._lost(record, exit_code)

        self._in_turn(record.session_id, report)

    async def _lost(self, record: SandboxRecord, exit_code: int | None) -> None:
        self._watcher.unwatch(record.session_id)
        detail = plan.loss_in_words(record.session_id, exit_code)
        lost = SandboxLost(epoch=record.epoch, kind="gone", detail=detail, exit_code=exit_code)
        await self._announcer.say(record.session_id, record.epoch, lost)
        await self._store.save(msgspec.structs.replace(record, state="lost"))
        if record.ref is not None:
            await self._provider.terminate(record.ref, grace=0)

    async def _hibernate(self, record: SandboxRecord) -> None:
        self._watcher.unwatch(record.session_id)
        assert record.ref is not None
        await self._provider.terminate(record.ref, grace=limits.TERM_GRACE)
        hibernated = SandboxHibernated(epoch=record.epoch, reason="platform_stopped")
        stored = self._announcer.queue(record.session_id, record.epoch, hibernated)
        async with asyncio.timeout(limits.HIBERNATE_FLUSH):
            await stored
            await self._store.save(msgspec.structs.replace(record, state="hibernated"))

    async def _release(self, session_id: str, action: plan.Release) -> None:
        self._watcher.unwatch(session_id)
        if action.ref is not None:
            await self._provider.terminate(action.ref, grace=limits.TERM_GRACE)
        await self._provider.abandon(session_id)
        if action.request.delete_workspace:
            await self._provider.delete_workspace(session_id)
        await delete_consumer(self._nc, subjects.runner_consumer(session_id))
        await self._announcer.say(
            session_id,
            action.request.epoch,
            SandboxTerminated(epoch=action.request.epoch, workspace_deleted=action.request.delete_workspace),
        )
        await self._store.save(SandboxRecord(session_id=session_id, epoch=action.epoch, state="terminated"))
