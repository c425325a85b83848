"""Replays of logs of very many segments of one batch each, on Spark and by the local engine: what a task is sent, and
what each step and each process takes.

``python -m tests.scale.many_segments 1000 3000 10000`` prints a line of JSON for each number of segments. With
``REGROUP_SEGMENTS_PER_TASK=10`` so many segments share a task.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coordinator_core.fold.pin import Pin, read_pin, write_pin
from coordinator_core.fold.tasks import fold_tasks
from coordinator_core.groups.model import OffsetKey
from coordinator_core.log.discovery import discover
from coordinator_core.log.limits import MIB
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.publish import RunWriter
from spark_apps import engine
from spark_apps.packing import Work, share_out
from spark_apps.session import Session
from tests.disk import on_disk
from tests.replay.histories import History
from tests.scale.watching import Watch

PARTITIONS, GROUPS = 50, 100
PER_TASK = int(os.environ.get("REGROUP_SEGMENTS_PER_TASK", "1"))
"""Segments of a task. A stage of its own merges them all the same: no partition is one task's."""

MASTER = "local[2]"


def write_segments(directory: Path, segments: int, partitions: int = PARTITIONS) -> None:
    """A log of so many segments, each a commit; a broker's would have 100 MB in each."""
    for number in range(partitions):
        partition = directory / f"__consumer_offsets-{number}"
        partition.mkdir(parents=True)
        batches = [_batch(OffsetKey(f"group-{group}", "topic", number)) for group in range(GROUPS)]
        for offset in range(segments // partitions):
            # No CRC covers the base offset.
            content = offset.to_bytes(8, "big") + batches[offset % GROUPS][8:]
            (partition / f"{offset:020d}.log").write_bytes(content)


def _batch(key: OffsetKey) -> bytes:
    (batch,) = History().commit(1, key).batches
    return bytes(batch)


def works(pin: Pin) -> list[Work]:
    """The tasks of a replay of what is pinned."""
    return share_out(fold_tasks(pin, OnDamage.FAIL), bytes_per_task(pin))


def bytes_per_task(pin: Pin) -> int:
    """Bytes of the segments of a task; all segments are of one size, but for the names of their groups."""
    return PER_TASK * max(segment.size for segment in pin.snapshot.segments)


def task_bytes(planned: Sequence[Work]) -> list[int]:
    """Bytes that Spark sends to each task of its own."""
    return [len(pickle.dumps(work)) for work in planned]


@dataclass(frozen=True)
class Measured:
    """``cpu_seconds`` of all processes by step: ``plan`` is from the pin to tasks as they are sent; ``start``, what the
    replay takes besides the other steps. ``driver_cpu_seconds`` is this process's part of them, without the JVM and the
    workers. ``*_peak_mib`` are the largest resident sets; the JVM of a local master is also that of the executor.
    """

    segments: int
    tasks: int
    most_task_bytes: int
    all_task_bytes: int
    cpu_seconds: dict[str, float]
    driver_cpu_seconds: float
    jvm_cpu_seconds: float
    seconds: float
    python_peak_mib: int
    jvm_peak_mib: int
    worker_peak_mib: int
    local_cpu_seconds: float
    local_seconds: float
    local_peak_mib: int
    state_hash: str
    is_as_local: bool


class Steps:
    """CPU seconds of this process and of those that it started, by step of a replay."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        before = self._now()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self._now() - before

    def within(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` as a part of the step ``name``."""

        def called(*arguments: Any, **named: Any) -> Any:
            with self.step(name):
                return function(*arguments, **named)

        return called

    def _now(self) -> float:
        self._watch.look()
        return self.driver + self._watch.cpu_seconds

    @property
    def driver(self) -> float:
        """CPU seconds of this process so far, but for the watch's."""
        return time.process_time() - self._watch.own_cpu_seconds


@contextmanager
def watched(steps: Steps) -> Iterator[None]:
    """Replays in this process tell the ``fold``, the ``merge`` and the publication (``publish``) of their run."""
    in_tasks, commit = engine.in_tasks, RunWriter.commit

    def told(context: Any, function: Any, items: Any) -> list[Any]:
        name = "fold" if function.func is engine.tasks.fold else "merge"
        found: list[Any] = steps.within(name, in_tasks)(context, function, items)
        return found

    engine.in_tasks, RunWriter.commit = told, steps.within("publish", commit)  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        engine.in_tasks, RunWriter.commit = in_tasks, commit  # type: ignore[method-assign]


def measure(segments: int, directory: Path) -> Measured:
    """A pinned replay in this process, which must not have done one before, and a local one in another."""
    log = directory / "log"
    write_segments(log, segments)
    watch = Watch()
    steps = Steps(watch)
    path = str(directory / "pin.json")
    driver_began = steps.driver
    with steps.step("pin"):
        write_pin(discover([str(log)]), path)
    with steps.step("plan"):
        pin = read_pin(path)
        sizes = task_bytes(works(pin))
    with Session("regroup-many-segments", MASTER) as session:
        watch.start()
        began = time.perf_counter()
        place = RunPlace(str(directory / "spark"), "c", "w", "r")
        profile = profile_for_release("4.3.1")
        with watched(steps), steps.step("replay"):
            found = engine.replay(session, pin, place, profile=profile, now_ms=0, bytes_per_task=bytes_per_task(pin))
        seconds = time.perf_counter() - began
        driver_cpu_seconds = steps.driver - driver_began
        python_peak = _peak_bytes(os.getpid())
        jvm = session.context._gateway.proc.pid
        jvm_peak = _peak_bytes(jvm)
    seen = watch.stop()
    replayed = steps.seconds.pop("replay")
    within = sum(steps.seconds[name] for name in ("fold", "merge", "publish"))
    # What this loads is no part of the driver.
    from tests.scale.replaying import replay

    local_began = time.perf_counter()
    local = replay(log, directory / "local")
    return Measured(
        segments=segments,
        tasks=len(sizes),
        most_task_bytes=max(sizes),
        all_task_bytes=sum(sizes),
        cpu_seconds={name: round(taken, 2) for name, taken in (steps.seconds | {"start": replayed - within}).items()},
        driver_cpu_seconds=round(driver_cpu_seconds, 2),
        jvm_cpu_seconds=round(seen["driver JVM"].cpu_seconds, 1),
        seconds=round(seconds, 1),
        python_peak_mib=python_peak // MIB,
        jvm_peak_mib=jvm_peak // MIB,
        worker_peak_mib=seen["Python worker"].peak // MIB,
        local_cpu_seconds=round(local.cpu_seconds, 1),
        local_seconds=round(time.perf_counter() - local_began, 1),
        local_peak_mib=local.peak_bytes // MIB,
        state_hash=found["state_hash"],
        is_as_local=found["state_hash"] == local.summary["state_hash"],
    )


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main(counts: list[int]) -> None:
    if len(counts) == 1:
        with on_disk() as directory:
            print(json.dumps(asdict(measure(counts[0], directory))), flush=True)
        return
    for count in counts:
        subprocess.run([sys.executable, "-m", __spec__.name, str(count)], check=True)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
