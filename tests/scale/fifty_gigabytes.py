"""A replay of 50 GB on a standalone Spark cluster of two workers whose executors are killed: memory of every process,
and the state hash of the local engine.

``python -m tests.scale.fifty_gigabytes [GB]`` prints a line of JSON. The log (``linked.py``) and all else takes up to
7 GB of disk, in a temporary directory. One Python worker is stopped while it writes the tables of a partition, so that
Spark does its task elsewhere. An executor is killed when one of its tasks writes folds; others, when they write shards,
merged shards, and the committed offsets of the giant partition.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.scale.linked import GIANT, LinkedLog, linked_log
from tests.scale.replaying import MIB, replay
from tests.scale.watching import Watch, parent, writers
from tests.spark.cluster import Cluster, cluster

STOPPED_AT = "fold and merge of a small partition"
BLOWS = {
    "fold": "fold-",
    STOPPED_AT: "part-",
    "cut": "shards-",
    "merge of a shard": "merged-",
    "combination of the shards": f"part-{GIANT:05}-",
}
"""Steps at which something befalls, in their order, and the beginning of the names of the files that they write."""

SETTINGS = {
    "spark.task.maxFailures": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "1s",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    # Tasks here read no records that Spark would count.
    "spark.speculation.efficiency.enabled": "false",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "5s",
    "spark.executor.cores": "1",
    "spark.driver.memory": "1g",
    # As Java chooses.
    "spark.executor.extraJavaOptions": "",
    "spark.driver.extraJavaOptions": "",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}


@dataclass(frozen=True)
class Measured:
    """``processes`` by kind: the largest resident set of one, the largest without the pages of mapped files, and the
    CPU seconds of all. ``cpu_seconds`` are those of the driver, its JVM, the executors and the Python workers."""

    gigabytes: float
    distinct_gigabytes: float
    segments: int
    smallest_partition_bytes: int
    largest_but_one_partition_bytes: int
    giant_partition_bytes: int
    befell: list[str]
    tasks_of_jobs: list[int]
    events: dict[str, int]
    seconds: float
    cpu_seconds: float
    processes: dict[str, dict[str, int]]
    local_cpu_seconds: float
    local_peak_mib: int
    rows: dict[str, int]
    is_as_local: bool


def measure(gigabytes: float, directory: Path) -> Measured:
    log = linked_log(directory, gigabytes)
    local = replay(log.path, directory / "local")
    (directory / "cluster").mkdir()
    with cluster(directory / "cluster", {"REGROUP_FOLD_CACHE": ""}) as running:
        watch = Watch()
        watch.start()
        began = time.perf_counter()
        summary, befell = _replayed(running, log, directory)
        seconds = time.perf_counter() - began
        seen = watch.stop()
    events = list(_events(directory / "events"))
    sizes = sorted(log.sizes.values())
    return Measured(
        gigabytes=round(log.bytes / 1e9, 2),
        distinct_gigabytes=round(log.distinct_bytes / 1e9, 2),
        segments=log.segments,
        smallest_partition_bytes=sizes[0],
        largest_but_one_partition_bytes=sizes[-2],
        giant_partition_bytes=log.sizes[GIANT],
        befell=befell,
        tasks_of_jobs=_tasks_of_jobs(events),
        events=dict(_counts(events)),
        seconds=round(seconds, 1),
        cpu_seconds=round(sum(of.cpu_seconds for kind, of in seen.items() if kind not in ("master", "worker")), 1),
        processes={
            kind: {
                "processes": of.processes,
                "peak_mib": of.peak // MIB,
                "peak_own_mib": of.peak_own // MIB,
                "cpu_seconds": round(of.cpu_seconds),
            }
            for kind, of in seen.items()
        },
        local_cpu_seconds=round(local.cpu_seconds, 1),
        local_peak_mib=local.peak_bytes // MIB,
        rows=local.summary["rows"],
        is_as_local=summary["state_hash"] == local.summary["state_hash"],
    )


def _replayed(running: Cluster, log: LinkedLog, directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Summary of a replay on the cluster, and the steps at which something befell it."""
    command = [sys.executable, "-m", "coordinator_core", "replay", str(log.path), "--engine", "spark"]
    command += ["--master", running.url, "--output", str(directory / "spark"), "--cluster", "scale"]
    command += ["--kafka-version", "4.3.1", "--no-fold-cache", "--format", "json"]
    events = directory / "events"
    events.mkdir()
    environment = running.environment(more={**SETTINGS, "spark.eventLog.dir": events.as_uri()})
    with (
        (directory / "driver.log").open("wb") as said,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=said, text=True) as driver,
    ):
        assert driver.stdout is not None
        left, stopped = list(BLOWS), 0
        try:
            while driver.poll() is None:
                if left and (struck := _strike(running, directory / "spark", left[0])):
                    stopped = struck if left.pop(0) == STOPPED_AT else stopped
                time.sleep(0.02)
            summary = json.loads(driver.stdout.read())
        except json.JSONDecodeError:
            raise RuntimeError((directory / "driver.log").read_text()[-4000:]) from None
        finally:
            driver.kill()
            if stopped:
                with suppress(ProcessLookupError):
                    # Nobody waits for it any more, so it ends.
                    os.kill(stopped, signal.SIGCONT)
    return summary, [step for step in BLOWS if step not in left]


def _strike(running: Cluster, output: Path, step: str) -> int:
    """Stop a Python worker that is at this step, or kill its executor; the worker, 0 when there is none."""
    executors = set(running.executors().values())
    for worker in writers(output, BLOWS[step]):
        executor = worker
        while executor > 1 and executor not in executors:
            executor = parent(executor)
        if executor in executors:
            if step == STOPPED_AT:
                os.kill(worker, signal.SIGSTOP)
            else:
                os.kill(executor, signal.SIGKILL)
            return worker
    return 0


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    """Spark's event log."""
    for path in directory.rglob("events_*"):
        with path.open() as lines:
            yield from map(json.loads, lines)


def _tasks_of_jobs(events: Iterable[dict[str, Any]]) -> list[int]:
    jobs = (event for event in events if event["Event"] == "SparkListenerJobStart")
    return [sum(stage["Number of Tasks"] for stage in job["Stage Infos"]) for job in jobs]


def _counts(events: Iterable[dict[str, Any]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for event in events:
        match event["Event"]:
            case "SparkListenerTaskStart":
                counts["tasks started"] += 1
                counts["of them speculative"] += event["Task Info"]["Speculative"]
            case "SparkListenerTaskEnd":
                counts[f"tasks ended: {event['Task End Reason']['Reason']}"] += 1
            case "SparkListenerExecutorAdded":
                counts["executors added"] += 1
            case "SparkListenerExecutorRemoved":
                counts["executors removed"] += 1
    return counts


def main(gigabytes: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(asdict(measure(gigabytes, Path(directory)))), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 50)
