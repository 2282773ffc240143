"""What there is in a session's sandbox, a line for each kind of thing. Pure."""

import shlex

from valet_protocol.requests import BootStepView, SandboxView

from valet_local.cli.pieces import Span, one_line, seconds

_SHOWN = 5
"""Processes named; the others are counted: `valet ps` lists them all."""


def rows(view: SandboxView) -> list[tuple[str, Span]]:
    """Names and values; nothing of what there is none of."""
    found = (
        ("tunnels", _tunnels(view)),
        ("processes", _processes(view)),
        ("services", _services(view)),
        ("last boot", _boot(view)),
    )
    return [(name, Span(value)) for name, value in found if value]


def _tunnels(view: SandboxView) -> str:
    return ", ".join(
        one_line(f"{tunnel.name} → {tunnel.port}{f' ({tunnel.description})' if tunnel.description else ''}")
        for tunnel in view.tunnels
    )


def _processes(view: SandboxView) -> str:
    running = [process for process in view.processes if process.status == "running"]
    if not view.processes:
        return ""
    named = [one_line(shlex.join([process.command, *process.args]), 40) for process in running[:_SHOWN]]
    more = [f"{len(running) - _SHOWN} more"] if len(running) > _SHOWN else []
    return f"{len(running)} running, {len(view.processes) - len(running)} ended lately" + (
        f": {', '.join([*named, *more])}" if named else ""
    )


def _services(view: SandboxView) -> str:
    return ", ".join(
        one_line(f"{item.service} {item.state}{f' ({item.detail})' if item.detail else ''}") for item in view.services
    )


def _boot(view: SandboxView) -> str:
    return ", ".join(one_line(_step(step)) for step in view.boot)


def _step(step: BootStepView) -> str:
    if step.outcome != "ok":
        return f"{step.step} {step.outcome}"
    if step.detail and not step.ms:
        return f"{step.step} ({step.detail})"
    return f"{step.step} {seconds(step.ms)}"
