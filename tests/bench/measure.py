"""Whole processes, measured by the operating system: wall time, CPU time, peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.launched import through_launcher

TICKS = os.sysconf("SC_CLK_TCK")
WATCH_SECONDS = 0.2
WORKERS = (b"pyspark.daemon", b"pyspark/daemon", b"spark_apps.workers")
"""Words in the command of Spark's Python workers."""


@dataclass(frozen=True)
class Sample:
    """One run. ``peak_mib`` is the resident set of the largest process; ``details`` say more, in the unit
    that ends their names."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    details: dict[str, float] = field(default_factory=dict)


Take = Callable[[], Sample]


def in_turn(runs: int, takes: Mapping[str, Take]) -> dict[str, list[Sample]]:
    """Everything once to warm up, then all in turn ``runs`` times, so that drift meets all alike."""
    for take in takes.values():
        take()
    samples: dict[str, list[Sample]] = {name: [] for name in takes}
    for _ in range(runs):
        for name, take in takes.items():
            samples[name].append(take())
    return samples


def ratio(
    reference: Sequence[Sample], ours: Sequence[Sample], of: Callable[[Sample], float] = lambda s: s.seconds
) -> float:
    """Ratio of the reference's figure to ours: the median of the pairs taken one after the
    other, so that a busy spell of the machine falls on both."""
    return median(of(theirs) / of(mine) for theirs, mine in zip(reference, ours, strict=True))


def run_process(command: Sequence[str], output: Path, codes: Collection[int] = (0,)) -> Sample:
    """Run ``command`` with its standard output in ``output``; raises when it ends with none of ``codes``.

    Processes that it starts count too, with the peaks of the kinds that :func:`_kind` tells.
    """
    report = output.with_suffix(".usage")
    launched = through_launcher(report, command)
    with output.open("wb") as stdout:
        process = subprocess.Popen(launched, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True)
        watch = _Watch(process.pid)
        watch.start()
        _, errors = process.communicate()
        watch.stop()
    if process.returncode not in codes:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors.decode()[-2000:]}")
    usage = json.loads(report.read_text())
    # What was waited for is known exactly, what is left behind as it was seen last.
    return Sample(
        usage["seconds"],
        max(usage["cpu"], watch.cpu_seconds),
        max(usage["peak_mib"], *watch.peaks.values(), 0.0),
        {f"{kind}_peak_mib": peak for kind, peak in watch.peaks.items()},
    )


class _Watch(threading.Thread):
    """Looks at the processes of a session now and then: their CPU time, and the peaks the kernel keeps."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[str, float] = {}
        self._session = session
        self._cpu: dict[int, float] = {}
        self._ended = threading.Event()

    @property
    def cpu_seconds(self) -> float:
        return sum(self._cpu.values())

    def run(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            for pid in _processes_of(self._session):
                try:
                    self._cpu[pid] = cpu_seconds(Path(f"/proc/{pid}"))
                    kind = _kind(pid)
                    self.peaks[kind] = max(peak_mib(pid), self.peaks.get(kind, 0.0))
                except (OSError, ValueError):
                    continue  # it has ended

    def stop(self) -> None:
        self._ended.set()
        self.join()


def _processes_of(session: int) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if int(_stat(Path(entry.path))[3]) == session:
                    yield int(entry.name)
            except OSError:
                continue


def _stat(place: Path) -> list[str]:
    """Fields of ``/proc/<pid>/stat`` from the state on: the command before them may hold anything."""
    return (place / "stat").read_text().rpartition(") ")[2].split()


def cpu_seconds(place: Path) -> float:
    """User and system time of the process or thread at ``place`` in ``/proc``."""
    user, system = _stat(place)[11:13]
    return (int(user) + int(system)) / TICKS


def peak_mib(pid: int) -> float:
    """Largest resident set so far; ``ValueError`` when the process has just ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    if not found:
        raise ValueError(f"process {pid} has no memory any more")
    return int(found[0].split()[1]) / 1024


def _kind(pid: int) -> str:
    """``jvm``, ``worker`` (a Python process of Spark's daemon) or ``python``."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    if b"java" in command.partition(b"\0")[0]:
        return "jvm"
    return "worker" if any(module in command for module in WORKERS) else "python"
