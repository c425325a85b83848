"""Spark app ``forecast``: what expires of a snapshot of the offsets log, now and later.

Prints ``forecast.json`` as one line. Its directory has the table ``tombstones``, and ``pin.json`` with the fingerprints
of the bytes that were read.

    spark-submit spark_apps/forecast.py --pin FILE --output DIR --run-id ID
    python -m spark_apps.forecast --master 'local[2]' --snapshot LOGDIR --output DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from coordinator_core.durations import clock_ms
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import chosen_profile
from spark_apps.arguments import add_rules, add_source, captured_retention_ms, output_of, parse, warn, whole
from spark_apps.exits import App, tell

PROGRAM = "regroup-forecast"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with exit code 2 when they are not usable."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Tell what expires of a copy of __consumer_offsets.")
    add_source(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of the forecast (path or URI)")
    parser.add_argument("--run-id", metavar="ID", help="write to this directory below --output")
    parser.add_argument("--now-ms", type=whole(0), metavar="MS", help="the time to judge by (default: the clock)")
    add_rules(parser)
    parser.add_argument("--offsets-retention-ms", type=whole(1), metavar="MS", help="offsets.retention.minutes, in ms")
    parser.add_argument("--partial", action="store_true", help="cut damaged partitions as a broker would")
    return parse(parser, argv)


def execute(arguments: argparse.Namespace) -> None:
    """Check everything that can be checked without Spark, then start it."""
    from coordinator_core.fold.pin import read_pin, snapshot_of
    from coordinator_core.ingest.unknown import refuse_records
    from coordinator_core.lifecycle.forecast_publish import ForecastWriter
    from coordinator_core.log.unread import snapshot_warnings
    from coordinator_core.replay.writer import refuse_other_rules
    from coordinator_core.rules.beside import beside_log
    from coordinator_core.runs.finding import find_snapshot
    from coordinator_core.runs.local import check_source
    from coordinator_core.runs.place import source_directories

    profile = chosen_profile(arguments.profile, arguments.kafka_version, arguments.coordinator)
    source = read_pin(arguments.pin) if arguments.pin else find_snapshot(arguments.snapshot)
    snapshot, output = snapshot_of(source), output_of(arguments.output, arguments.run_id)
    on_damage = OnDamage.chosen(partial=arguments.partial, salvage=False)
    warn(PROGRAM, snapshot_warnings(snapshot))
    refuse_records(snapshot)
    refuse_other_rules(snapshot)
    # Each task sees whether its own file is as it was pinned.
    check_source(snapshot, on_damage)
    now_ms = clock_ms() if arguments.now_ms is None else arguments.now_ms
    retention_ms = arguments.offsets_retention_ms or captured_retention_ms(beside_log(snapshot.sources), PROGRAM)

    with ForecastWriter(output, sources=source_directories(snapshot)) as writer:
        from coordinator_core.fold.inference import infer_profile
        from spark_apps.engine import folded_and_merged
        from spark_apps.forecast_tasks import ForecastTask
        from spark_apps.session import Session

        with Session(PROGRAM, arguments.master) as session:
            chosen = profile or infer_profile(snapshot.partitions)
            retention_ms = retention_ms or chosen.expiry.default_offsets_retention_ms
            rules = ForecastTask(chosen, output, now_ms, retention_ms)
            answers = folded_and_merged(session.context, source, rules, on_damage)
        document = writer.commit(
            snapshot,
            [part for answer in answers for _, part in sorted(answer.facts.items())],
            [answer.written for answer in answers if answer.written is not None],
            {
                "profile": chosen.label,
                "now_ms": now_ms,
                "offsets_retention_ms": retention_ms,
                "partial": arguments.partial,
            },
        )
    tell(document)
    session.close()


APP = App(PROGRAM, parse_arguments, execute)

if __name__ == "__main__":
    APP.main()
