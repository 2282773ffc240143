"""Carrying faults out, each as planned, and measuring what they cost."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import msgspec

from valet_local import identity
from valet_local.chaos import limits, plan, recovery, targets
from valet_local.chaos.plan import Fault
from valet_local.chaos.records import FaultRecord, Stored
from valet_local.chaos.recovery import Probes
from valet_local.chaos.stage import Stage
from valet_local.identity import Identity


class Ears:
    """What the raw log says, for whoever waits for something in it."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[Stored], None]] = {}
        self._next = 0
        self.epochs: dict[str, int] = {}
        """Session → the newest epoch of whose runner something was heard."""

    def hear(self, event: Stored) -> None:
        """An event was stored."""
        if event.epoch is not None:
            self.epochs[event.session_id] = max(event.epoch, self.epochs.get(event.session_id, 0))
        for listener in tuple(self._listeners.values()):
            listener(event)

    def listen(self, listener: Callable[[Stored], None]) -> Callable[[], None]:
        """Tell `listener` of every event from now on; calling what is returned ends that."""
        number = self._next = self._next + 1
        self._listeners[number] = listener
        return lambda: self._listeners.pop(number, None) and None


class Trouble:
    """Makes trouble for one platform.

    `cut_client(choice)` has a client go away; `wake(session_id)` gives a session something to do, so that a new runner
    is needed.
    """

    def __init__(
        self,
        stage: Stage,
        probes: Probes,
        ears: Ears,
        *,
        sessions: list[str],
        clock: Callable[[], float],
        cut_client: Callable[[int], None],
        wake: Callable[[str], Awaitable[None]],
    ) -> None:
        self._stage = stage
        self._probes = probes
        self._ears = ears
        self._sessions = sessions
        self._clock = clock
        self._cut_client = cut_client
        self._wake = wake
        self._stopped: set[Identity] = set()
        self.records: list[FaultRecord] = []

    def release(self) -> None:
        """Let everything go on that is still stopped."""
        for process in tuple(self._stopped):
            identity.send(process, signal.SIGCONT)
        self._stopped.clear()

    async def make(self, number: int, fault: Fault) -> None:
        """One fault, from its beginning to the recovery from it."""
        session_id = self._sessions[fault.session] if fault.target in (*plan.SANDBOX, *plan.INSIDE) else ""
        began = self._clock()
        watching = self._watch(fault, session_id)
        try:
            missed, before = await self._do(fault, session_id)
            ended = self._clock()
            took: float | None = None
            gave_up = False
            if not missed and watching is not None:
                took = await self._recovery(watching, fault, session_id, before)
                gave_up = took is None
        finally:
            if watching is not None:
                watching.close()
        self.records.append(
            FaultRecord(
                number=number,
                kind=fault.kind,
                target=fault.target,
                began=began,
                ended=ended,
                session_id=session_id,
                recovered=None if took is None else round(took, 3),
                missed=missed,
                gave_up=gave_up,
            )
        )

    async def _recovery(
        self, watching: "_ProbeWatch | _LogWatch", fault: Fault, session_id: str, before: Identity | None
    ) -> float | None:
        waking = asyncio.ensure_future(self._wake(session_id)) if session_id else None
        began = self._clock()
        useful = await watching.wait(fault, before)
        took = self._clock() - began
        if waking is not None:
            await waking
        return took if useful else None

    async def _do(self, fault: Fault, session_id: str) -> tuple[str, Identity | None]:
        """Carry it out: why it was not possible, if it was not, and the process it struck."""
        if fault.target == "client":
            self._cut_client(fault.choice)
            return "", None
        if fault.kind in ("cut", "freeze"):
            link = self._stage.links[fault.target]
            await (link.cut if fault.kind == "cut" else link.freeze)(fault.seconds)
            return "", None
        found = targets.processes(self._stage.places, fault.target, session_id)
        if not found:
            return "there was no such process", None
        if fault.kind == "kill":
            identity.send(found[0], signal.SIGKILL)
            return "", found[0]
        for process in found:
            identity.send(process, signal.SIGSTOP)
            self._stopped.add(process)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            for process in found:
                identity.send(process, signal.SIGCONT)
                self._stopped.discard(process)
        return "", found[0]

    def _watch(self, fault: Fault, session_id: str) -> "_ProbeWatch | _LogWatch | None":
        if fault.target in plan.SANDBOX:
            killed = fault.kind == "kill"
            # a killed runner's last words may be stored after its death
            above = self._ears.epochs.get(session_id, 0) if killed and fault.target == "runner" else 0
            return _LogWatch(self._ears, session_id, "agent.turn_started" if killed else "", above_epoch=above)
        probe = self._probes.of(fault.target, session_id)
        return None if probe is None else _ProbeWatch(self._stage, probe, session_id)


class _ProbeWatch:
    """Recovery of a part that can be asked."""

    def __init__(self, stage: Stage, probe: recovery.Probe, session_id: str) -> None:
        self._stage = stage
        self._probe = probe
        self._session_id = session_id

    async def wait(self, fault: Fault, before: Identity | None) -> bool:
        async def probe() -> bool:
            # what a dead process has left in a queue must not count for its successor
            fresh = (
                fault.kind != "kill"
                or before is None
                or recovery.replaced(self._stage, fault.target, before, self._session_id)
            )
            return fresh and await self._probe()

        return await recovery.until_useful(probe)

    def close(self) -> None:
        return None


class _LogWatch:
    """Recovery of a runner or an agent, by what it says: any event, or one type of it."""

    def __init__(self, ears: Ears, session_id: str, wanted: str, *, above_epoch: int) -> None:
        self._session_id = session_id
        self._wanted = wanted
        self._above_epoch = above_epoch
        self._listening = False
        self._heard = asyncio.Event()
        self.close = ears.listen(self._hear)

    def _hear(self, event: Stored) -> None:
        if not self._listening or event.session_id != self._session_id:
            return
        wanted = event.type == self._wanted if self._wanted else event.type.startswith(("agent.", "delta."))
        if wanted and (event.epoch or 0) > self._above_epoch:
            self._heard.set()

    async def wait(self, fault: Fault, before: Identity | None) -> bool:
        self._listening = True
        try:
            await asyncio.wait_for(self._heard.wait(), limits.RECOVERY_MOST)
        except TimeoutError:
            return False
        return True


_CORE = frozenset({"api", "session-ledger", "event-bus", "nats", "postgres"})

_NEEDS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_CORE, _CORE),
    "portal": frozenset({"portal"}),
    "sandbox-controller": frozenset({"sandbox-controller", "nats", "postgres"}),
    plan.SMALL: _CORE | {plan.SMALL},
    **dict.fromkeys(
        (*plan.SANDBOX, *plan.INSIDE), _CORE | {"sandbox-controller", "portal", *plan.SANDBOX, *plan.INSIDE}
    ),
}
"""Part → the parts that its probe goes through: a fault of any of them makes its recovery look longer."""


def marked_alone(records: list[FaultRecord]) -> list[FaultRecord]:
    """The same, each saying whether another one that concerns it fell into it or its recovery."""

    def span(record: FaultRecord) -> tuple[float, float]:
        return record.began, record.ended + (record.recovered or 0.0)

    def disturbs(other: FaultRecord, one: FaultRecord) -> bool:
        if other is one or other.missed or part_of(other) not in _NEEDS.get(part_of(one), ()):
            return False
        if part_of(other) in (*plan.SANDBOX, *plan.INSIDE) and other.session_id != one.session_id:
            return False
        (began, ended), (other_began, other_ended) = span(one), span(other)
        return began <= other_ended and other_began <= ended

    return [
        msgspec.structs.replace(record, alone=not any(disturbs(other, record) for other in records))
        for record in records
    ]


def part_of(fault: FaultRecord) -> str:
    """The process, or the service at the end of the link."""
    return fault.target.rpartition(":")[2]
