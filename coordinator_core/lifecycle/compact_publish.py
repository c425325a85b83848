"""A snapshot compacted, moved to another partition count, published, and reported."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from coordinator_core import __version__, storage
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.ingest.unknown import refuse_records
from coordinator_core.lifecycle.compact import CompactionOptions, CompactionReport, compact_partition, proved_log
from coordinator_core.lifecycle.repartition import MovedPartition, repartition
from coordinator_core.log.reader import OnDamage, loadable
from coordinator_core.log.segments import partition_directory_name
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.process.workers import LARGE_BYTES, in_workers, most_workers
from coordinator_core.replay.writer import refuse_other_rules

REPORT = "compaction.json"
Document = dict[str, Any]
_SUMS = (
    "input_bytes",
    "input_records",
    "output_bytes",
    "output_records",
    "protected_records",
    "expired_offsets",
    "expired_groups",
)


def logs_to_compact(snapshot: Snapshot, on_damage: OnDamage, damage: list[Damage]) -> list[PartitionLog]:
    """The partitions as they are to be read.

    Under ``RECOVER`` cut as a starting broker would cut them, and where its load would fail; damage that it reads past
    is appended to ``damage``. Raises :class:`DamagedInputError` under ``FAIL`` for damage of the directories,
    :class:`UsageError` for a log that is not Kafka's.
    """
    if on_damage is OnDamage.SALVAGE:
        raise UsageError("--salvage: a log without its damaged batches is no log to start a broker on")
    refuse_records(snapshot)
    refuse_other_rules(snapshot)
    if snapshot.damage and on_damage is OnDamage.FAIL:
        raise DamagedInputError(snapshot.damage[0])
    damage += snapshot.damage
    if on_damage is OnDamage.RECOVER:
        return [loadable(log, damage=damage) for log in snapshot.partitions]
    return list(snapshot.partitions)


def compact_logs(logs: Sequence[PartitionLog], target: Path, options: CompactionOptions) -> list[CompactionReport]:
    """Compact partitions on this machine, in the order of ``logs``; raises for the first that fails.

    Large ones are compacted side by side, each in a process: those end at once when this one is interrupted.
    """
    cores = most_workers()
    abreast = max(1, min(cores, len(logs))) if sum(log.size for log in logs) > LARGE_BYTES else 1
    # A process that is ended leaves its files.
    with TemporaryDirectory(prefix="regroup-compact-") as scratch:
        compact = partial(
            compact_partition, target=target, options=options, workers=cores // abreast, scratch=Path(scratch)
        )
        return list(in_workers(compact, logs, abreast))


def _move_groups(
    reports: Sequence[CompactionReport], staging: Path, options: CompactionOptions
) -> tuple[list[CompactionReport], list[MovedPartition]]:
    """Make the partitions that were compacted into ``staging`` those of ``options.offsets_partitions``.

    The files that reports name are gone then. Without another partition count nothing happens.
    """
    count = options.offsets_partitions
    if count is None:
        return list(reports), []
    for report in reports:
        if report.open_producers:
            raise UsageError(
                f"offsets partition {report.offsets_partition}: producer {report.open_producers[0]} has an "
                "open transaction, whose end goes to this partition: its groups cannot move"
            )
    before = staging / ".before"
    before.mkdir()
    logs = []
    for report in sorted(reports, key=lambda item: item.offsets_partition):
        name = partition_directory_name(report.offsets_partition)
        (staging / name).rename(before / name)
        logs.append(proved_log(report.offsets_partition, str(before / name), report.segments))
    moved = repartition(
        logs,
        staging,
        count,
        options.profile,
        renumber=options.output.renumber,
        segment_bytes=options.segment_bytes,
        workers=os.cpu_count() or 1,
    )
    shutil.rmtree(before)
    return [replace(report, segments=()) for report in reports], moved


def finish_compaction(
    reports: Sequence[CompactionReport],
    staging: Path,
    options: CompactionOptions,
    *,
    output: str,
    sources: Sequence[str],
    damage: Sequence[Damage],
    engine: str,
    began: float,
    plan_sha256: str | None = None,
) -> Document:
    """Move groups where another partition count is asked for, and keep the report beside the partitions in ``staging``.

    ``regroup compact`` prints this report. ``began``: ``perf_counter`` at the start, in seconds; ``plan_sha256``: the
    plan that was carried out (``lifecycle.approved``).
    """
    reports, moved = _move_groups(reports, staging, options)
    partitions = [asdict(report) for report in sorted(reports, key=lambda item: item.offsets_partition)]
    sums = {name: sum(row[name] for row in partitions) for name in _SUMS}
    if moved:
        # Batches of several groups were split, and end markers are where data of their transaction is.
        sums["output_bytes"] = sum(partition.bytes for partition in moved)
        sums["output_records"] = sum(partition.records for partition in moved)
    document = {
        "regroup_version": __version__,
        "output": output,
        "plan_sha256": plan_sha256,
        "sources": list(sources),
        "profile": options.profile.label,
        "now_ms": options.rules.now_ms,
        "delete_retention_ms": options.rules.delete_retention_ms,
        "offsets_retention_ms": options.offsets_retention_ms,
        "renumbered": options.output.renumber,
        "converted": options.output.convert,
        "codec": None if options.output.codec is None else options.output.codec.name.lower(),
        "offsets_partitions": options.offsets_partitions,
        "engine": engine,
        "partial": bool(damage),
        "damage": [found.as_dict() for found in damage],
        **sums,
        "partitions": partitions,
        "moved": [asdict(partition) for partition in moved],
        "seconds": round(perf_counter() - began, 3),
    }
    write_report(str(staging), document)
    return document


def write_report(directory: str, document: Document) -> None:
    """Write ``compaction.json`` of the compacted log in a directory, a URI too."""
    text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    storage.write_text(storage.join(directory, REPORT), text)
