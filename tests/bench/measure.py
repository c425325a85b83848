"""Whole processes, measured by the operating system: wall time, CPU time, peak memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Sample:
    """One run of a process. ``peak_mib`` is the resident set of the largest process of the run."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


@dataclass(frozen=True)
class Figure:
    """Samples of one command."""

    name: str
    samples: tuple[Sample, ...]

    @property
    def seconds(self) -> float:
        return median(sample.seconds for sample in self.samples)

    def row(self, reference: Figure | None) -> str:
        """A Markdown row: seconds, CPU, memory, and how many times faster than the reference."""
        times = sorted(sample.seconds for sample in self.samples)
        cpu = median(sample.cpu_seconds for sample in self.samples)
        peak = max(sample.peak_mib for sample in self.samples)
        ratio = f"{reference.seconds / self.seconds:.1f}" if reference else "1"
        return (
            f"| {self.name} | {times[0]:.2f} / {self.seconds:.2f} / {times[-1]:.2f} | {cpu:.1f} "
            f"| {peak:.0f} | {ratio} |"
        )


HEADER = [
    "| | seconds (min / median / max) | CPU seconds | peak MiB | times the reference's speed |",
    "|---|---|---|---|---|",
]


def run_process(command: Sequence[str], output: Path) -> Sample:
    """Run ``command`` with its standard output in ``output``; raises when it fails."""
    with output.open("wb") as stdout:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE)
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors.decode()[-2000:]}")
    return Sample(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def in_turn(runs: int, **takes: Callable[[], Sample]) -> dict[str, Figure]:
    """Every command once to warm up, then all in turn ``runs`` times, so that drift meets all alike."""
    for take in takes.values():
        take()
    samples: dict[str, list[Sample]] = {name: [] for name in takes}
    for _ in range(runs):
        for name, take in takes.items():
            samples[name].append(take())
    return {name: Figure(name, tuple(taken)) for name, taken in samples.items()}
