"""Memory and CPU of the processes of a Spark cluster and of its driver, by what they are."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measure import cpu_seconds

EVERY_SECONDS = 0.1
PROC = Path("/proc")
KINDS = {
    b"deploy.master.Master": "master",
    b"deploy.worker.Worker": "worker",
    b"CoarseGrainedExecutorBackend": "executor",
    b"SparkSubmit": "driver JVM",
    b"pyspark.daemon": "Python worker",
    b"pyspark/daemon": "Python worker",
    b"spark_apps.workers": "Python worker",
    b"coordinator_core": "driver Python",
}
"""By a word of the command. The daemon that Python workers are forked from counts as one of them."""


@dataclass
class Memory:
    """Bytes. ``peak`` is the largest resident set of one process, as the kernel keeps it; ``peak_own`` leaves out the
    pages of files that it mapped, and is the largest that was seen."""

    processes: int = 0
    peak: int = 0
    peak_own: int = 0
    cpu_seconds: float = 0.0


class Watch(threading.Thread):
    """Looks ten times a second at this process's descendants, also at those whose parents have been killed."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own_cpu_seconds = 0.0
        """What looking took of this process."""
        self._looking = threading.Lock()
        self._kinds: dict[int, str] = {}
        self._memory: dict[int, Memory] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            self.look()

    def look(self) -> None:
        """Take in what runs now."""
        with self._looking:
            began = time.thread_time()
            self._look()
            self.own_cpu_seconds += time.thread_time() - began

    def _look(self) -> None:
        for pid in self._found():
            try:
                command = (PROC / str(pid) / "cmdline").read_bytes()
                status = (PROC / str(pid) / "status").read_text()
                cpu = cpu_seconds(PROC / str(pid))
            except OSError:
                continue
            if not command:
                continue  # it has ended, and nobody has asked how
            # A fork that has not yet become another program has the command of its parent.
            self._kinds[pid] = next((kind for word, kind in KINDS.items() if word in command), "other")
            memory = self._memory.setdefault(pid, Memory(1))
            memory.peak = max(memory.peak, _bytes(status, "VmHWM"))
            memory.peak_own = max(memory.peak_own, _bytes(status, "RssAnon"))
            memory.cpu_seconds = cpu

    @property
    def cpu_seconds(self) -> float:
        """Of all processes, as they were last seen."""
        with self._looking:
            return sum(memory.cpu_seconds for memory in self._memory.values())

    def _found(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for pid in _processes():
            children.setdefault(parent(pid), []).append(pid)
        # One whose parent was killed is a child of process 1, but was known before.
        found = {pid for pid in self._kinds if (PROC / str(pid)).exists()}
        left = [*children.get(os.getpid(), ()), *found]
        while left:
            pid = left.pop()
            found.add(pid)
            left += (child for child in children.get(pid, ()) if child not in found)
        return sorted(found)

    def stop(self) -> dict[str, Memory]:
        """What was seen, by kind."""
        self._ended.set()
        self.join()
        told: dict[str, Memory] = {}
        for pid, memory in self._memory.items():
            of_kind = told.setdefault(self._kinds[pid], Memory())
            of_kind.processes += 1
            of_kind.peak = max(of_kind.peak, memory.peak)
            of_kind.peak_own = max(of_kind.peak_own, memory.peak_own)
            of_kind.cpu_seconds += memory.cpu_seconds
        return told


def parent(pid: int) -> int:
    """Process id of the parent, 0 when the process has ended."""
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def writers(directory: Path, prefix: str) -> Iterator[int]:
    """Processes that have a file below ``directory`` open whose name begins with ``prefix``."""
    for pid in _processes():
        try:
            for entry in os.scandir(PROC / str(pid) / "fd"):
                path = Path(os.readlink(entry.path))
                if path.name.startswith(prefix) and path.is_relative_to(directory):
                    yield pid
                    break
        except OSError:
            continue


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdigit())


def _bytes(status: str, name: str) -> int:
    """0 when the process has just ended."""
    found = status.partition(f"{name}:")[2].split(maxsplit=2)
    return int(found[0]) * 1024 if found else 0
