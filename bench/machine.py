"""Describes the machine of the measurement, and reads how busy it is."""

from __future__ import annotations

import os
import platform
import socket
import sqlite3
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

FSYNC_WRITES = 200
FSYNC_BYTES = 4096

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def describe(directory: Path) -> dict[str, str]:
    """The properties of the machine that a comparison of figures needs. The file system is that of the directory."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    p50_ms, p99_ms = fsync_latency_ms(directory)
    return {
        "Cores": f"{len(os.sched_getaffinity(0))} × {_processor()}",
        "Memory": f"{memory_gib:.0f} GiB",
        "Kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "SQLite": sqlite3.sqlite_version,
        "File system": _file_system(directory),
        "fsync after 4 KiB": f"p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms",
    }


def fsync_latency_ms(directory: Path) -> tuple[float, float]:
    """Median and 99th percentile of the time to append 4 KiB to a file and sync it, for which each commit waits."""
    latencies_ms = []
    block = os.urandom(FSYNC_BYTES)
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(FSYNC_WRITES):
            started = perf_counter()
            file.write(block)
            os.fsync(file.fileno())
            latencies_ms.append((perf_counter() - started) * 1000)
    return median(latencies_ms), quantiles(latencies_ms, n=100)[98]


def busy_cpu_seconds() -> float:
    """The processor time of all processes since the machine started, on all cores."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, *_ = fields
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS_PER_SECOND


def free_port() -> int:
    """A port at which no server of this machine listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(point, kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return max(holding, key=lambda mount: len(mount[0]))[1]
