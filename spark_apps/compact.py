"""Spark app ``compact``: a snapshot of the offsets log becomes a compacted one, a task for each offsets
partition.

Prints the document of ``regroup compact --format json`` as one line. The output directory must be one that
all workers see under the same path.

    spark-submit spark_apps/compact.py --snapshot LOGDIR --output DIR
    python -m spark_apps.compact --master 'local[2]' --snapshot LOGDIR --output DIR
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator_core import __version__
from coordinator_core.cli.process import start_light
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.reader import OnDamage
from coordinator_core.replay.profiles import PROFILE_RELEASES, Profile, chosen_profile
from spark_apps.exits import exit_code

if TYPE_CHECKING:
    from coordinator_core.lifecycle.compact import CompactionOptions, CompactionReport
    from coordinator_core.log.types import PartitionLog

PROGRAM = "regroup-compact"
_DAY_MS = 86_400_000
_SEGMENT_BYTES = 100 << 20


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with exit code 2 when they are not usable."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Compact a copy of __consumer_offsets, and prove it."
    )
    parser.add_argument(
        "--snapshot", metavar="PATH", nargs="+", action="extend", required=True, help="log directories"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of the new log")
    parser.add_argument("--now-ms", type=int, metavar="MS", help="the time to judge by (default: the clock)")
    rules = parser.add_mutually_exclusive_group()
    rules.add_argument("--profile", choices=["auto", *PROFILE_RELEASES], default="auto")
    rules.add_argument("--kafka-version", metavar="RELEASE", help="release of the brokers that will load it")
    parser.add_argument("--coordinator", choices=["classic", "new"])
    parser.add_argument("--expire", action="store_true", help="tombstone first what has expired")
    parser.add_argument("--offsets-retention-ms", type=int, metavar="MS")
    parser.add_argument("--delete-retention-ms", type=int, default=_DAY_MS, metavar="MS")
    parser.add_argument("--renumber", action="store_true", help="consecutive record offsets")
    parser.add_argument("--message-format", choices=["keep", "2"], default="keep")
    parser.add_argument("--segment-bytes", type=int, default=_SEGMENT_BYTES, metavar="BYTES")
    parser.add_argument("--partial", action="store_true", help="cut damaged partitions as a broker would")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: spark-submit's, or local[*])")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    arguments = parser.parse_args(argv)
    if arguments.coordinator and not arguments.kafka_version:
        parser.error("--coordinator goes with --kafka-version")
    if arguments.offsets_retention_ms is not None and not arguments.expire:
        parser.error("--offsets-retention-ms goes with --expire")
    return arguments


def execute(arguments: argparse.Namespace) -> None:
    """Check everything that can be checked without Spark, then start it."""
    from coordinator_core.columnar.inference import infer_profile
    from coordinator_core.lifecycle.compact_publish import Publication, compaction_document, logs_to_compact
    from coordinator_core.log.discovery import discover

    began = time.perf_counter()
    chosen = chosen_profile(arguments.profile, arguments.kafka_version, arguments.coordinator)
    on_damage = OnDamage.chosen(partial=arguments.partial, salvage=False)
    with Publication(arguments.output) as publication:
        snapshot = discover(arguments.snapshot)
        damage: list[Damage] = []
        logs = logs_to_compact(snapshot, on_damage, damage)

        from spark_apps.engine import in_tasks
        from spark_apps.session import Session

        session = Session(PROGRAM, arguments.master)
        try:
            options = _options(arguments, chosen or infer_profile(snapshot.partitions))
            # The largest first, so that none is left alone in the end.
            logs.sort(key=lambda log: sum(segment.size for segment in log.segments), reverse=True)
            answers = in_tasks(
                session.context, partial(compact_one, target=publication.staging, options=options), logs
            )
        finally:
            session.stop()
        reports = [_report(answer) for answer in sorted(answers, key=lambda answer: answer[0])]
        document = compaction_document(
            reports,
            options,
            output=arguments.output,
            sources=snapshot.sources,
            damage=damage,
            engine="spark",
            seconds=time.perf_counter() - began,
        )
        publication.commit(document)
    print(json.dumps(document, ensure_ascii=False), flush=True)
    session.close()


def _options(arguments: argparse.Namespace, profile: Profile) -> CompactionOptions:
    from coordinator_core.lifecycle.compact import CompactionOptions

    return CompactionOptions.chosen(
        profile,
        now_ms=time.time_ns() // 1_000_000 if arguments.now_ms is None else arguments.now_ms,
        expire=arguments.expire,
        offsets_retention_ms=arguments.offsets_retention_ms,
        delete_retention_ms=arguments.delete_retention_ms,
        renumber=arguments.renumber,
        message_format=arguments.message_format,
        segment_bytes=arguments.segment_bytes,
    )


Answer = tuple[int, "CompactionReport | Damage | str"]
"""Offsets partition; its report, its damage, or why its proof failed."""


def compact_one(log: PartitionLog, *, target: Path, options: CompactionOptions) -> Answer:
    """Compact one partition, in a worker. What ends the app is an answer too: Spark would tell its text
    only."""
    from coordinator_core.lifecycle.compact import compact_partition
    from coordinator_core.lifecycle.compact_proof import ProofFailedError

    try:
        return log.offsets_partition, compact_partition(log, target, options)
    except DamagedInputError as error:
        return log.offsets_partition, error.damage
    except ProofFailedError as error:
        return log.offsets_partition, str(error)


def _report(answer: Answer) -> CompactionReport:
    from coordinator_core.lifecycle.compact_proof import ProofFailedError

    match answer[1]:
        case Damage() as damage:
            raise DamagedInputError(damage)
        case str() as failure:
            raise ProofFailedError(failure)
        case report:
            return report


def main() -> None:
    """Run the app and leave the process with its exit code."""
    start_light()
    sys.exit(run())


def run(argv: Sequence[str] | None = None) -> int:
    """Run the app; returns the exit code instead of leaving, but for arguments that are not usable."""
    return exit_code(PROGRAM, execute, parse_arguments(argv))


if __name__ == "__main__":
    main()
