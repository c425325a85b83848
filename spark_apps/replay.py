"""Spark app ``replay``: a snapshot of the offsets log becomes a published run.

One task folds a segment, one task merges an offsets partition and stages its rows (small ones share a task);
the driver takes over what the tasks that count have staged, and writes the manifest.  Prints the summary of
the run as one line of JSON.

    spark-submit spark_apps/replay.py --snapshot LOGDIR --output DIR --cluster NAME
    python -m spark_apps.replay --master 'local[2]' --pin FILE --output DIR --cluster NAME
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from coordinator_core import __version__
from coordinator_core.errors import DamagedInputError, ExitCode, RegroupError
from coordinator_core.groups.hashing import DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.replay.fold import FoldRules
from coordinator_core.replay.inference import infer_profile
from coordinator_core.replay.profiles import PROFILE_RELEASES, Profile, profile_for, profile_for_release
from coordinator_core.runs.folding import fold_tasks
from coordinator_core.runs.local import check_source
from coordinator_core.runs.manifest import ReplayFacts, summary
from coordinator_core.runs.pin import Pin, read_pin
from coordinator_core.runs.publish import (
    Manifest,
    RunPlace,
    RunWriter,
    default_window,
    new_run_id,
    promote,
    source_directories,
)
from spark_apps.packing import packed, task_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = "regroup-replay"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with exit code 2 when they are not usable."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Replay a copy of __consumer_offsets and publish a run."
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--pin", metavar="FILE", help="snapshot manifest: read what it pins")
    source.add_argument(
        "--snapshot",
        metavar="PATH",
        nargs="+",
        action="extend",
        help="log directories, or their parts (repeatable)",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="where runs are published (path or URI)"
    )
    parser.add_argument("--cluster", required=True, metavar="NAME", help="cluster that the log comes from")
    parser.add_argument("--window", metavar="KEY", help="scheduling window (default: the UTC date of now)")
    parser.add_argument("--run-id", metavar="ID", help="id of the run (default: a new one)")
    parser.add_argument("--now-ms", type=int, metavar="MS", help="the time to judge by (default: the clock)")
    rules = parser.add_mutually_exclusive_group()
    rules.add_argument(
        "--profile", choices=["auto", *PROFILE_RELEASES], default="auto", help="coordinator rules"
    )
    rules.add_argument("--kafka-version", metavar="RELEASE", help="coordinator rules of this Kafka release")
    parser.add_argument(
        "--coordinator", choices=["classic", "new"], help="which, for releases that have both"
    )
    parser.add_argument(
        "--offsets-topic-num-partitions", type=int, default=DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS, metavar="N"
    )
    damage = parser.add_mutually_exclusive_group()
    damage.add_argument("--partial", action="store_true", help="go on past damage as a starting broker would")
    damage.add_argument("--salvage", action="store_true", help="go on past damage at the next whole batch")
    parser.add_argument(
        "--master", metavar="URL", help="Spark master (default: that of spark-submit, or local[*])"
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    arguments = parser.parse_args(argv)
    if arguments.coordinator and not arguments.kafka_version:
        parser.error("--coordinator goes with --kafka-version")
    if arguments.offsets_topic_num_partitions < 1:
        parser.error("--offsets-topic-num-partitions must be at least 1")
    return arguments


def replay(
    spark: SparkSession,
    source: Snapshot | Pin,
    place: RunPlace,
    *,
    profile: Profile | None,
    now_ms: int,
    on_damage: OnDamage = OnDamage.FAIL,
    offsets_topic_num_partitions: int = DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS,
    bytes_per_task: int | None = None,
) -> Manifest:
    """Replay ``source`` and publish the run, like ``coordinator_core.runs.local.replay_to_run``.

    Small segments share a task up to ``bytes_per_task`` (default: as suits the session).
    """
    from spark_apps.session import spark_schema
    from spark_apps.tasks import FOLDED, MERGED, MergedTask, folder, merger

    began = perf_counter()
    snapshot = source.snapshot if isinstance(source, Pin) else source
    check_source(source, on_damage)
    with RunWriter(place, sources=source_directories(snapshot)) as writer:
        rules = profile or infer_profile(snapshot.partitions)
        inferred = perf_counter()
        tasks = fold_tasks(source, on_damage)
        sizes = [sum(segment.size for segment in task.segments) for task in tasks]
        limit = bytes_per_task or task_bytes(sizes, spark.sparkContext.defaultParallelism)
        fold_runs = packed(sizes, limit)
        partition_sizes = [sum(segment.size for segment in log.segments) for log in snapshot.partitions]
        merge_runs = packed(partition_sizes, limit)
        merge_task_of = {
            snapshot.partitions[index].offsets_partition: merge_task
            for merge_task, run in enumerate(merge_runs)
            for index in run
        }
        folded = spark.range(0, len(fold_runs), 1, len(fold_runs)).mapInArrow(
            folder(tasks, fold_runs, merge_task_of, FoldRules.of(rules)), spark_schema(FOLDED)
        )
        merged = (
            folded.repartitionById(len(merge_runs), "merge_task")
            .sortWithinPartitions("offsets_partition", "fold_task", "chunk")
            .mapInArrow(merger(rules, now_ms, writer.staging_path), spark_schema(MERGED))
        )
        # The pickles are our own tasks' answers; nothing else writes them.
        answers: list[MergedTask] = [pickle.loads(row.data) for row in merged.collect()]
        damage = {number: found for answer in answers for number, found in answer.damage.items()}
        if damage:
            raise DamagedInputError(damage[min(damage)])
        facts = {number: told for answer in answers for number, told in answer.facts.items()}
        for answer in sorted(answers, key=lambda answer: min(answer.facts, default=0)):
            writer.adopt(answer.files, answer.digests)
        replayed = perf_counter()
        replay_facts = ReplayFacts(
            snapshot=snapshot,
            partitions=[facts[log.offsets_partition] for log in snapshot.partitions],
            profile=rules,
            profile_inferred=profile is None,
            now_ms=now_ms,
            engine="spark",
            offsets_topic_num_partitions=offsets_topic_num_partitions,
        )
        steps = {"profile": inferred - began, "replay": replayed - inferred}
        return writer.commit(replay_facts.as_dict(), seconds=perf_counter() - began, steps=steps)


def run(arguments: argparse.Namespace) -> None:
    """Check everything that can be checked without Spark, then start it."""
    now_ms = time.time_ns() // 1_000_000 if arguments.now_ms is None else arguments.now_ms
    place = RunPlace(
        arguments.output,
        arguments.cluster,
        arguments.window or default_window(now_ms),
        arguments.run_id or new_run_id(),
    )
    profile = chosen_profile(arguments)
    source = read_pin(arguments.pin) if arguments.pin else discover(arguments.snapshot)

    from spark_apps.session import build_session

    spark = build_session(PROGRAM, arguments.master)
    try:
        manifest = replay(
            spark,
            source,
            place,
            profile=profile,
            now_ms=now_ms,
            on_damage=chosen_damage_policy(arguments),
            offsets_topic_num_partitions=arguments.offsets_topic_num_partitions,
        )
    finally:
        spark.stop()
    print(json.dumps(summary(manifest, path=place.path, latest=promote(place, manifest)), ensure_ascii=False))


def chosen_profile(arguments: argparse.Namespace) -> Profile | None:
    """The profile asked for, ``None`` for the one that the records tell."""
    if arguments.kafka_version:
        return profile_for_release(arguments.kafka_version, arguments.coordinator)
    return None if arguments.profile == "auto" else profile_for(arguments.profile)


def chosen_damage_policy(arguments: argparse.Namespace) -> OnDamage:
    if arguments.salvage:
        return OnDamage.SALVAGE
    return OnDamage.RECOVER if arguments.partial else OnDamage.FAIL


def main(argv: Sequence[str] | None = None) -> int:
    """Run the app; returns its exit code."""
    arguments = parse_arguments(argv)
    try:
        run(arguments)
    except RegroupError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        print(f"{PROGRAM}: internal error: {type(error).__name__}: {last_line(error)}", file=sys.stderr)
        return ExitCode.INTERNAL
    return ExitCode.CLEAN


def last_line(error: Exception) -> str:
    """What a task's exception said: Spark puts Python's traceback and Java's around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if not line.startswith(("at ", "File ", "JVM stacktrace"))]
    return python[-1] if python else ""


if __name__ == "__main__":
    sys.exit(main())
