"""Spark app ``compact``: a snapshot of the offsets log becomes a compacted one, a task for each offsets
partition, and many for a large one.

Prints the document of ``regroup compact --format json`` as one line. The output directory must be one that
all workers see under the same path, or a URI.

    spark-submit spark_apps/compact.py --snapshot LOGDIR --output DIR
    spark-submit spark_apps/compact.py --plan FILE --plan-digest SHA256 --output DIR --run-id ID
    python -m spark_apps.compact --master 'local[2]' --snapshot LOGDIR --output DIR
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from coordinator_core import storage
from coordinator_core.durations import clock_ms
from coordinator_core.errors import Damage, UsageError
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec
from coordinator_core.releases import Profile, chosen_profile
from coordinator_core.untrusted import INT32_END
from spark_apps.arguments import add_rules, captured_retention_ms, output_of, parse, warn, whole
from spark_apps.exits import App, tell

if TYPE_CHECKING:
    from pyspark import SparkContext

    from coordinator_core.lifecycle.compact import CompactionOptions, CompactionReport
    from coordinator_core.lifecycle.compact_tasks import PartSizes
    from coordinator_core.log.types import PartitionLog, SegmentFile, Snapshot

PROGRAM = "regroup-compact"
MAX_PARTITION_BYTES = 192 << 20
"""Partitions of more are compacted in parts: a task takes four times as much where no record is dead."""

_CHOSEN = (
    *("expire", "offsets_retention_ms", "delete_retention_ms", "renumber", "message_format"),
    *("codec", "offsets_partitions", "segment_bytes"),
)
"""Arguments of the names that ``CompactionOptions.chosen`` has."""
_PLANNED = (*("now_ms", "profile", "kafka_version", "coordinator", "partial"), *_CHOSEN)
"""Arguments that a plan takes the place of."""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with exit code 2 when they are not usable."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Compact a copy of __consumer_offsets, and prove it.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--snapshot", metavar="PATH", nargs="+", action="extend", help="log directories")
    source.add_argument("--plan", metavar="FILE", help="carry out this plan, which says all that rules say")
    parser.add_argument("--plan-digest", metavar="SHA256", help="of the plan that was approved")
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of the new log")
    parser.add_argument("--run-id", metavar="ID", help="write to this directory below --output")
    parser.add_argument("--now-ms", type=whole(0), metavar="MS", help="the time to judge by (default: the clock)")
    add_rules(parser)
    parser.add_argument("--expire", action="store_true", help="tombstone expired offsets first")
    parser.add_argument("--offsets-retention-ms", type=whole(1), metavar="MS")
    parser.add_argument("--delete-retention-ms", type=whole(0), metavar="MS")
    parser.add_argument("--renumber", action="store_true", help="consecutive record offsets")
    parser.add_argument("--message-format", choices=["keep", "2"], default="keep")
    codecs = ["keep", *(codec.name.lower() for codec in Codec)]
    parser.add_argument("--codec", choices=codecs, default="keep")
    parser.add_argument(
        "--offsets-partitions", type=whole(1, INT32_END - 1), metavar="N", help="another partition count"
    )
    parser.add_argument("--segment-bytes", type=whole(1024, (1 << 31) - 1), metavar="BYTES")
    parser.add_argument("--partial", action="store_true", help="cut damaged partitions as a broker would")
    arguments = parse(parser, argv)
    if bool(arguments.plan) != bool(arguments.plan_digest):
        parser.error("--plan and --plan-digest go together")
    given = [name for name in _PLANNED if getattr(arguments, name) != parser.get_default(name)]
    if arguments.plan and given:
        parser.error(f"--{given[0].replace('_', '-')}: the plan says that")
    if arguments.offsets_retention_ms is not None and not arguments.expire:
        parser.error("--offsets-retention-ms goes with --expire")
    return arguments


def execute(arguments: argparse.Namespace) -> None:
    """Check everything that can be checked without Spark, then start it."""
    from coordinator_core.lifecycle.approved import pinned_segments, read_plan
    from coordinator_core.lifecycle.compact_publish import finish_compaction, logs_to_compact
    from coordinator_core.log.unread import snapshot_warnings
    from coordinator_core.runs.finding import find_snapshot
    from coordinator_core.runs.place import check_output_outside

    began = time.perf_counter()
    chosen = chosen_profile(arguments.profile, arguments.kafka_version, arguments.coordinator)
    output = output_of(arguments.output, arguments.run_id)
    if arguments.offsets_partitions is not None and not storage.is_local(output):
        raise UsageError(f"--offsets-partitions: groups are moved in a local directory, {output} is none")
    with _new_log(output) as target:
        planned = read_plan(arguments.plan, arguments.plan_digest) if arguments.plan else None
        snapshot = find_snapshot(arguments.snapshot) if planned is None else planned.pin.snapshot
        warn(PROGRAM, snapshot_warnings(snapshot))
        check_output_outside(output, [log.directory for log in snapshot.partitions])
        partial_input = arguments.partial if planned is None else planned.partial
        damage: list[Damage] = []
        logs = logs_to_compact(snapshot, OnDamage.chosen(partial=partial_input, salvage=False), damage)

        from spark_apps.session import Session

        with Session(PROGRAM, arguments.master) as session:
            options = planned.options if planned else _options(arguments, chosen, snapshot)
            pinned = pinned_segments(planned.pin) if planned else {}
            reports = compact_all(session.context, logs, target, options, pinned)
        # Last: without its report it is no compacted log.
        with storage.directory_of(target) as staging:
            document = finish_compaction(
                reports,
                staging,
                options,
                output=output,
                sources=snapshot.sources,
                damage=damage,
                engine="spark",
                began=began,
                plan_sha256=planned.digest if planned else None,
            )
    tell(document)
    session.close()


def _options(arguments: argparse.Namespace, chosen: Profile | None, snapshot: Snapshot) -> CompactionOptions:
    from coordinator_core.fold.inference import infer_profile
    from coordinator_core.lifecycle.compact import CompactionOptions
    from coordinator_core.rules.beside import beside_log

    given = {name: getattr(arguments, name) for name in _CHOSEN}
    if arguments.expire and arguments.offsets_retention_ms is None:
        given["offsets_retention_ms"] = captured_retention_ms(beside_log(snapshot.sources), PROGRAM)
    return CompactionOptions.chosen(
        chosen or infer_profile(snapshot.partitions),
        now_ms=clock_ms() if arguments.now_ms is None else arguments.now_ms,
        **{name: value for name, value in given.items() if value is not None},
    )


@contextmanager
def _new_log(output: str) -> Iterator[str]:
    """The directory that tasks write to: ``output`` once the block has ended well, otherwise nothing is left."""
    if storage.is_local(output):
        with storage.new_directory(output) as making:
            yield str(making)
        return
    if storage.exists(output):
        raise UsageError(f"{output}: exists already, and is not overwritten")
    try:
        yield output
    except BaseException:
        storage.delete(output)
        raise


def compact_all(
    context: SparkContext,
    logs: Sequence[PartitionLog],
    target: str,
    options: CompactionOptions,
    pinned: Mapping[int, Sequence[tuple[SegmentFile, str]]],
    *,
    bytes_per_task: int = MAX_PARTITION_BYTES,
    sizes: PartSizes | None = None,
) -> list[CompactionReport]:
    """Compact the partitions into the directory ``target``, a URI too: one of more than ``bytes_per_task`` in parts.

    ``pinned`` are segments with their fingerprints by offsets partition, where a plan pins them. Raises for the first
    partition that fails.
    """
    from coordinator_core.lifecycle.approved import check_pinned
    from coordinator_core.lifecycle.compact_parts import compact_in_parts, is_for_parts
    from coordinator_core.runs.table_directory import staging_path
    from spark_apps.engine import answers_of_tasks, in_tasks
    from spark_apps.tasks import taken

    storage.make_directory(staging_path(target))

    run = partial(in_tasks, context)
    giants = [log for log in logs if log.size > bytes_per_task and is_for_parts(options)]
    # The largest first, so that none is left alone in the end.
    others = sorted((log for log in logs if log not in giants), key=attrgetter("size"), reverse=True)
    one = partial(compact_one, target=target, options=options)
    items = [(log, pinned.get(log.offsets_partition, ())) for log in others]
    answers = answers_of_tasks(context, one, items)
    by_partition = dict(zip([log.offsets_partition for log in others], answers, strict=True))
    reports = {number: taken(by_partition[number]) for number in sorted(by_partition)}

    def in_parts(log: PartitionLog) -> CompactionReport:
        run(check_pinned, [[segment] for segment in pinned.get(log.offsets_partition, ())])
        return compact_in_parts(log, target, options, run, sizes)

    # Some steps of a giant are one task: the others are compacted beside it.
    with ThreadPoolExecutor(context.defaultParallelism) as threads:
        try:
            reports |= zip([log.offsets_partition for log in giants], threads.map(in_parts, giants), strict=True)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            context.cancelAllJobs()
            raise
    storage.delete_while_written(staging_path(target))
    return [reports[number] for number in sorted(reports)]


Item = tuple["PartitionLog", "Sequence[tuple[SegmentFile, str]]"]
"""A partition, and its pin in a plan: segments with their fingerprints."""


def compact_one(item: Item, *, target: str, options: CompactionOptions) -> CompactionReport:
    """Compact one partition into the directory ``target``, a URI too, in a worker."""
    from coordinator_core.lifecycle.approved import check_pinned
    from coordinator_core.lifecycle.compact import compact_partition
    from coordinator_core.lifecycle.compact_output import adopt
    from coordinator_core.runs.table_directory import message_path

    log, pinned = item
    check_pinned(pinned)
    if not storage.is_local(target):
        # Files are put there whole, and another attempt puts the same.
        with storage.directory_of(target) as directory:
            return compact_partition(log, directory, options)
    attempt = message_path(target, "compacted")
    # Without parents: an attempt that comes late must not make the staging directory again in what is published.
    storage.make_directory(attempt, parents=False)
    report = compact_partition(log, storage.local_path(attempt), options)
    adopt(attempt, target, log.offsets_partition)
    return report


APP = App(PROGRAM, parse_arguments, execute)

if __name__ == "__main__":
    APP.main()
