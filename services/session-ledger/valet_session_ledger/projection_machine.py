"""What a runner says of its sandbox, as rows: tunnels, processes, services, the steps of its boot. Pure.

No decision needs any of it, so it is not part of the state. Rows say of which epoch they are: what a sandbox had is
gone with it, without a row being changed.
"""

from msgspec.structs import replace
from valet_protocol.codec import rfc3339
from valet_protocol.events import machine
from valet_protocol.events.envelope import Event

from valet_session_ledger import limits, values
from valet_session_ledger.projection_turns import Projections
from valet_session_ledger.rows import Batch, MachineRow
from valet_session_ledger.state import SessionState


def _tunnels_changed(batch: Batch, before: SessionState, event: Event, data: machine.TunnelsChanged) -> None:
    _row(batch, event, "tunnels", "", "open", values.json(data.tunnels))


def _service_changed(batch: Batch, before: SessionState, event: Event, data: machine.ServiceChanged) -> None:
    said = {"detail": data.detail, "since": rfc3339(event.time_ms)}
    _row(batch, event, "service", data.service, data.state, values.json(said))


def _boot_step_completed(batch: Batch, before: SessionState, event: Event, data: machine.BootStepCompleted) -> None:
    said = {"ms": values.count(data.ms), "detail": data.detail}
    _row(batch, event, "boot_step", data.step, data.outcome, values.json(said))


def _process(
    batch: Batch,
    before: SessionState,
    event: Event,
    data: machine.ProcessCreated | machine.ProcessUpdated | machine.ProcessExited,
) -> None:
    process = data.process
    _row(batch, event, "process", process.id, process.status, values.json(_short(process)))


def _process_deleted(batch: Batch, before: SessionState, event: Event, data: machine.ProcessDeleted) -> None:
    _row(batch, event, "process", data.process_id, "deleted", None)


def _short(process: machine.ProcessInfo) -> machine.ProcessInfo:
    """What a process has of long arguments (a whole script, say) is in the log; a view shows their beginning."""
    room = limits.PROCESS_CHARACTERS
    args: list[str] = []
    for arg in process.args:
        if len(arg) > room or len(args) >= limits.PROCESS_ARGUMENTS:
            args.append(f"{arg[: max(0, room)]}…")
            break
        args.append(arg)
        room -= len(arg)
    longest = limits.PROCESS_CHARACTERS
    return replace(process, command=process.command[:longest], args=args, label=process.label[:longest])


def _row(batch: Batch, event: Event, kind: str, name: str, status: str, data: str | None) -> None:
    row = MachineRow(
        session_id=event.session_id,
        kind=kind,
        name=values.identifier(name),
        epoch=event.epoch or 0,
        status=status,
        data=data,
        first_seq=event.seq,
        seq=event.seq,
    )
    batch.put(batch.machine, (event.session_id, kind, row.name), row)


PROJECTIONS: Projections = {
    machine.TunnelsChanged: _tunnels_changed,
    machine.ServiceChanged: _service_changed,
    machine.BootStepCompleted: _boot_step_completed,
    machine.ProcessCreated: _process,
    machine.ProcessUpdated: _process,
    machine.ProcessExited: _process,
    machine.ProcessDeleted: _process_deleted,
}
