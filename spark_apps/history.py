"""Spark app ``history``: the table ``history`` of a snapshot or of the log of a run, some offsets partitions a task.

Prints one line of JSON: the directory of the table, and the content of its ``history.json``.

    spark-submit spark_apps/history.py --run RUN
    spark-submit spark_apps/history.py --snapshot LOGDIR --output DIR --group GROUP
    python -m spark_apps.history --master 'local[2]' --pin FILE --output DIR
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import chosen_profile
from spark_apps.arguments import (
    add_damage,
    add_rules,
    add_source,
    captured_retention_ms,
    output_of,
    parse,
    warn,
    whole,
)
from spark_apps.exits import App

if TYPE_CHECKING:
    from pyspark import SparkContext

    from coordinator_core.fold.pin import Pin
    from coordinator_core.log.types import Snapshot
    from coordinator_core.reports.history_publish import PartFile
    from coordinator_core.rules.beside import Beside
    from spark_apps.history_tasks import Answer, HistoryTask

PROGRAM = "regroup-history"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with exit code 2 when they are not usable."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Write the table history of a copy of the offsets log.")
    source = add_source(parser)
    source.add_argument("--run", metavar="RUN", help="directory of a published run: its log, as far as it has read it")
    parser.add_argument("--output", metavar="DIR", help="directory of the table (path or URI; of a run: beside it)")
    parser.add_argument("--run-id", metavar="ID", help="write to this directory below --output")
    parser.add_argument("--group", action="append", default=[], metavar="GROUP", help="only this group (repeatable)")
    parser.add_argument("--offsets-retention-ms", type=whole(1), metavar="MS", help="offsets.retention.minutes, in ms")
    add_rules(parser)
    add_damage(parser)
    arguments = parse(parser, argv)
    if arguments.output is None and arguments.run is None:
        parser.error("--output goes with --snapshot and --pin")
    return arguments


def execute(arguments: argparse.Namespace) -> None:
    """Check everything that can be checked without Spark, then start it."""
    from coordinator_core.history.parts import Asked, absent_warnings
    from coordinator_core.ingest.unknown import directory_damage
    from coordinator_core.log.unread import snapshot_warnings
    from coordinator_core.releases import profile_from_label
    from coordinator_core.reports.history_publish import HistoryWriter, place_beside
    from coordinator_core.rules.transaction_log import read_transaction_log
    from coordinator_core.runs.place import new_run_id, source_directories
    from coordinator_core.runs.read import open_run

    began = time.perf_counter()
    profile = chosen_profile(arguments.profile, arguments.kafka_version, arguments.coordinator)
    pin, beside = _source(arguments)
    warn(PROGRAM, snapshot_warnings(pin.snapshot))
    snapshot, on_damage = pin.snapshot, OnDamage.chosen(partial=arguments.partial, salvage=arguments.salvage)
    if arguments.run is not None:
        run = open_run(arguments.run)
        profile = profile or profile_from_label(run.profile)
        on_damage = run.on_damage(on_damage)
    damage = directory_damage(snapshot, on_damage)
    run_id = arguments.run_id
    if arguments.output is None and run_id is None:
        run_id = new_run_id()
    output = output_of(arguments.output or place_beside(open_run(arguments.run).path), run_id)
    retention_ms = captured_retention_ms(beside, PROGRAM)
    transactional_ids = read_transaction_log(*beside.transaction_log).names if beside.transaction_log else {}

    with HistoryWriter(output, sources=source_directories(snapshot)) as writer:
        from coordinator_core.fold.inference import inferred_profile
        from spark_apps.history_tasks import HistoryTask
        from spark_apps.session import Session

        with Session(PROGRAM, arguments.master) as session:
            chosen, is_told = (profile, True) if profile else inferred_profile(snapshot.partitions)
            asked = Asked(
                chosen,
                snapshot.topic_names,
                on_damage,
                frozenset(arguments.group) or None,
                arguments.offsets_retention_ms,
                transactional_ids,
                captured_retention_ms=retention_ms,
            )
            parts, found = write_in_tasks(session.context, pin, HistoryTask(asked, output))
        damage += found
        document = writer.commit(
            parts,
            {
                "run": arguments.run,
                "sources": list(snapshot.sources),
                "profile": chosen.label,
                "profile_inferred": profile is None,
                "groups": None if asked.groups is None else sorted(asked.groups),
                "offsets_retention_ms": asked.retention_ms,
                "offsets_retention_captured_ms": asked.captured_retention_ms,
                "complete": not damage,
                "damage": [entry.as_dict() for entry in damage],
                "engine": "spark",
                "seconds": round(time.perf_counter() - began, 3),
            },
        )
    if arguments.group:
        warn(PROGRAM, absent_warnings(set(arguments.group) - _with_rows(output, document["files"])))
    told = {name: value for name, value in document.items() if name not in ("files", "proofs", "versions")}
    # Group ids may be anything: as ASCII no terminal obeys them.
    print(json.dumps({"history": output, "profile_told": is_told, **told}), flush=True)
    session.close()


def _with_rows(directory: str, files: Sequence[str]) -> set[str]:
    """Groups of a table that was published."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from coordinator_core import storage

    found = set()
    for name in files:
        path = storage.join(directory, name)
        with storage.reading(path), storage.input_file(path) as file:
            found.update(pc.unique(pq.read_table(file, columns=["group_id"])["group_id"]).to_pylist())
    return found


def _source(arguments: argparse.Namespace) -> tuple[Pin, Beside]:
    """The snapshot, and the files beside it; of a run no more than it has read, with the fingerprints of that."""
    from coordinator_core.fold.pin import Pin, check_pin, read_pin
    from coordinator_core.replay.writer import refuse_other_rules
    from coordinator_core.rules.beside import beside_log, beside_run
    from coordinator_core.runs.finding import find_snapshot
    from coordinator_core.runs.inputs import pin_of_run
    from coordinator_core.runs.read import open_run

    if arguments.run is not None:
        run = open_run(arguments.run)
        run.refuse_other_rules()
        return pin_of_run(run), beside_run(run)
    if arguments.pin is not None:
        pin = read_pin(arguments.pin)
        check_pin(pin)
        snapshot = pin.snapshot
    else:
        snapshot = find_snapshot(arguments.snapshot)
    refuse_other_rules(snapshot)
    return Pin(snapshot), beside_log(snapshot.sources)


def write_in_tasks(
    context: SparkContext, source: Snapshot | Pin, rules: HistoryTask, bytes_per_task: int | None = None
) -> tuple[list[PartFile], list[Any]]:
    """The files of the table, and the damage that was read past, by offsets partition.

    Segments of which ``source`` has a fingerprint must have it. Small partitions share a task up to ``bytes_per_task``
    (default: as suits the session). Raises the error of the first partition that cannot be read.
    """
    from coordinator_core.fold.pin import Pin, snapshot_of
    from coordinator_core.fold.tasks import packed
    from spark_apps.engine import in_tasks
    from spark_apps.history_tasks import Again, Work, judge_partition, take_partitions
    from spark_apps.packing import task_bytes

    logs = snapshot_of(source).partitions
    fingerprints = source.fingerprints if isinstance(source, Pin) else {}
    sizes = [log.size for log in logs]
    limit = bytes_per_task or task_bytes(sizes, context.defaultParallelism)
    works = [Work.of(logs[run.start : run.stop], fingerprints) for run in packed(sizes, limit)]
    # The largest first, so that none is left alone in the end.
    order = sorted(range(len(works)), key=lambda at: -sum(log.size for log in works[at].logs))
    done = in_tasks(context, partial(take_partitions, rules=rules), [works[at] for at in order])
    answers = [answer for _, answer in sorted(zip(order, done, strict=True), key=lambda pair: pair[0])]
    _raise_first(answers)
    lessons = tuple(answer.lessons for answer in answers)
    again = [
        (answer.records[log.offsets_partition], Again(log, answer.special, lessons))
        for work, answer in zip(works, answers, strict=True)
        for log in work.logs
        if log.offsets_partition in answer.records
    ]
    again.sort(key=lambda item: -item[0])
    judged = in_tasks(context, partial(judge_partition, rules=rules), [item for _, item in again])
    _raise_first(judged)
    parts = [part for answer in [*answers, *judged] for part in answer.parts]
    return parts, [entry for answer in answers for found in answer.damage.values() for entry in found]


def _raise_first(answers: Sequence[Answer]) -> None:
    failures = {number: error for answer in answers for number, error in answer.failures.items()}
    if failures:
        raise failures[min(failures)]


APP = App(PROGRAM, parse_arguments, execute)

if __name__ == "__main__":
    APP.main()
