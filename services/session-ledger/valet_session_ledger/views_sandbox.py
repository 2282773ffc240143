"""What there is in a session's sandbox. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from valet_protocol.events.machine import ProcessInfo, Tunnel
from valet_protocol.requests import BootStepView, SandboxView, ServiceView, SessionStatus

Record = Mapping[str, Any]

_UP: frozenset[SessionStatus] = frozenset(("ready", "busy"))
"""The sandbox's gateway is there."""

_DOWN: frozenset[SessionStatus] = frozenset(("lost", "hibernated", "failed", "terminated"))
"""There is no sandbox: what the log told of it is over, though no event says so of each process."""


class _Service(msgspec.Struct, frozen=True, kw_only=True):
    detail: str
    since: str


class _BootStep(msgspec.Struct, frozen=True, kw_only=True):
    ms: int
    detail: str


_tunnels = msgspec.json.Decoder(list[Tunnel])
_process = msgspec.json.Decoder(ProcessInfo)
_service = msgspec.json.Decoder(_Service)
_boot_step = msgspec.json.Decoder(_BootStep)


def sandbox(status: SessionStatus, rows: Sequence[Record]) -> SandboxView:
    """From rows of `machine`: processes and services of the present sandbox; tunnels, which its home keeps from one
    sandbox to the next, and steps of the boot, as they were told last."""
    here = [] if status in _DOWN else rows
    running = sorted(_of(here, "process", "running"), key=lambda row: row["first_seq"])
    ended = sorted(_of(here, "process", "exited"), key=lambda row: -row["seq"])
    return SandboxView(
        tunnels=[
            tunnel for row in _of(rows if status in _UP else [], "tunnels") for tunnel in _tunnels.decode(row["data"])
        ],
        processes=[_process.decode(row["data"]) for row in (*running, *ended)],
        services=[_service_view(row) for row in sorted(_of(here, "service"), key=lambda row: row["name"])],
        boot=_last_boot(_of(rows, "boot_step")),
    )


def _of(rows: Sequence[Record], kind: str, status: str | None = None) -> list[Record]:
    return [row for row in rows if row["kind"] == kind and status in (None, row["status"])]


def _service_view(row: Record) -> ServiceView:
    said = _service.decode(row["data"])
    return ServiceView(service=row["name"], state=row["status"], detail=said.detail, since=said.since)


def _last_boot(rows: Sequence[Record]) -> list[BootStepView]:
    """Steps that only an earlier boot had are not of this one."""
    last = max((row["epoch"] for row in rows), default=0)
    found: list[BootStepView] = []
    for row in sorted(rows, key=lambda row: row["seq"]):
        if row["epoch"] == last:
            said = _boot_step.decode(row["data"])
            found.append(BootStepView(step=row["name"], ms=said.ms, outcome=row["status"], detail=said.detail))
    return found
