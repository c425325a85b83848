"""Replays on Spark of a log of very many segments of one batch each: what a task is sent, what the driver takes.

``python -m tests.scale.many_segments 1000 3000 10000`` prints a line of JSON for each number of segments. With
``REGROUP_SEGMENTS_PER_TASK=10`` so many segments share a task.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coordinator_core.fold.pin import Pin, read_pin, write_pin
from coordinator_core.fold.tasks import fold_tasks
from coordinator_core.groups.model import OffsetKey
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from spark_apps.engine import replay
from spark_apps.packing import Work, share_out
from spark_apps.session import Session
from tests.replay.histories import History

PARTITIONS, GROUPS = 50, 100
PER_TASK = int(os.environ.get("REGROUP_SEGMENTS_PER_TASK", "1"))
"""Segments of a task. A stage of its own merges them all the same: no partition is one task's."""


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
    """``plan``: from the pin to tasks as they are sent. ``cpu`` is that of this process, the driver's Python, without
    the JVM and the workers. ``*_peak_bytes`` are the largest resident sets; the JVM of a local master runs the tasks,
    too.
    """

    segments: int
    tasks: int
    most_task_bytes: int
    all_task_bytes: int
    pin_cpu_seconds: float
    plan_cpu_seconds: float
    replay_cpu_seconds: float
    replay_seconds: float
    python_peak_bytes: int
    jvm_peak_bytes: int
    is_as_local: bool


def measure(segments: int, directory: Path) -> Measured:
    """A pinned replay in this process, which must not have done one before."""
    log = directory / "log"
    write_segments(log, segments)
    began = time.process_time()
    path = str(directory / "pin.json")
    write_pin(discover([str(log)]), path)
    pinned = time.process_time()
    pin = read_pin(path)
    sizes = task_bytes(works(pin))
    planned = time.process_time()
    profile = profile_for_release("4.3.1")
    session = Session("regroup-many-segments", "local[2]")
    try:
        started = time.perf_counter()
        place = RunPlace(str(directory / "spark"), "c", "w", "r")
        found = replay(session, pin, place, profile=profile, now_ms=0, bytes_per_task=bytes_per_task(pin))
        ended, done = time.perf_counter(), time.process_time()
        python_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        status = Path(f"/proc/{session.context._gateway.proc.pid}/status").read_text()
        jvm_peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    finally:
        session.stop()
    local = replay_to_run(
        discover([str(log)]), RunPlace(str(directory / "local"), "c", "w", "r"), profile=profile, now_ms=0
    )
    return Measured(
        segments=segments,
        tasks=len(sizes),
        most_task_bytes=max(sizes),
        all_task_bytes=sum(sizes),
        pin_cpu_seconds=round(pinned - began, 2),
        plan_cpu_seconds=round(planned - pinned, 2),
        replay_cpu_seconds=round(done - planned, 2),
        replay_seconds=round(ended - started, 1),
        python_peak_bytes=python_peak,
        jvm_peak_bytes=jvm_peak,
        is_as_local=found["state_hash"] == local["state_hash"],
    )


def main(counts: list[int]) -> None:
    if len(counts) == 1:
        with tempfile.TemporaryDirectory() as directory:
            print(json.dumps(asdict(measure(counts[0], Path(directory)))), flush=True)
        return
    for count in counts:
        subprocess.run([sys.executable, "-m", __spec__.name, str(count)], check=True)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
