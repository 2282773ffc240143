"""What the benchmarks run on."""

import os
import platform
from pathlib import Path

import psutil

from valet_local import nats, tools
from valet_local.bench.report import Machine


def load() -> float:
    """Load average over a minute."""
    return os.getloadavg()[0]


def describe(load_before: float) -> Machine:
    """This machine, at the end of a run."""
    return Machine(
        cpu=_cpu(),
        cpus=os.cpu_count() or 1,
        memory_mb=psutil.virtual_memory().total >> 20,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        nats=nats.check_version(nats.find_binary()),
        opencode=tools.OPENCODE_VERSION,
        load_before=load_before,
        load_after=load(),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
