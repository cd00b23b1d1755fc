"""What the machine tells: CPU time and memory of a process, cores, the cost of a disk write."""

from __future__ import annotations

import functools
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import orjson

PAGE = resource.getpagesize()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, all threads together."""
    try:
        # Nanoseconds, where `stat` counts in hundredths of a second; threads that have ended are missing.
        threads = [each / "schedstat" for each in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9
    except FileNotFoundError:
        pass
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


@functools.cache
def cores() -> tuple[frozenset[int], frozenset[int]]:
    """One core for the server, one for provider and client; the same one where there is no second."""
    usable = sorted(os.sched_getaffinity(0))
    return frozenset({usable[-1]}), frozenset({usable[0]})


@contextmanager
def pinned(to: frozenset[int] | None) -> Iterator[None]:
    """Run on these cores inside, and with all that is started there; None changes nothing."""
    before = os.sched_getaffinity(0)
    if to is not None:
        os.sched_setaffinity(0, to)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Work:
    """CPU seconds so far: of the whole machine, of this process and the children it has waited for."""

    machine: float
    ours: float
    clock: float

    @classmethod
    def now(cls) -> Work:
        fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        # user, nice, system, (idle, iowait,) irq, softirq, and what the host took for others
        busy = sum(fields[:3]) + sum(fields[5:8])
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        ours = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        return cls(busy / os.sysconf("SC_CLK_TCK"), ours, time.monotonic())

    def others_since(self, before: Work) -> float:
        """The share of the machine that other processes have used meanwhile, from 0 to 1."""
        others = (self.machine - before.machine) - (self.ours - before.ours)
        return max(0.0, others / (self.clock - before.clock) / (os.cpu_count() or 1))


def raise_file_limit() -> int:
    """Allow as many open files as the system lets us; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def sync_seconds(directory: Path, tries: int = 100) -> float:
    """How long making 4 KiB durable takes in a directory, at the median."""
    taken = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for index in range(tries):
            os.pwrite(file.fileno(), b"x" * 4096, index * 4096)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - started)
    return median(taken)


def fixed_work_seconds(tries: int = 5) -> float:
    """CPU time of a fixed piece of Python work, at the median: how fast a core is just now.

    A core of a shared machine may run at half its speed while neighbours are busy, which no other
    number here shows.
    """
    taken = []
    for _ in range(tries + 1):
        began = time.thread_time()
        for index in range(2000):
            value = {"id": f"item_{index}", "list": [1, 2, 3], "inner": {"index": index}}
            sorted(orjson.loads(json.dumps(value)).items(), key=str)
        taken.append(time.thread_time() - began)
    return median(taken[1:])


def describe(directory: Path) -> dict[str, str]:
    """What a reader must know to compare numbers."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": str(os.cpu_count()),
        "processor": model,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "fixed work": f"{fixed_work_seconds() * 1e3:.1f} ms",
        "durable 4 KiB write": f"{sync_seconds(directory) * 1e3:.2f} ms",
    }
