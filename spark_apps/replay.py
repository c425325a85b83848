"""Spark app ``replay``: a snapshot of the offsets log becomes a published run.

Prints the summary of the run as one line of JSON.

    spark-submit spark_apps/replay.py --snapshot LOGDIR --output DIR --cluster NAME
    python -m spark_apps.replay --master 'local[2]' --pin FILE --output DIR --cluster NAME
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from coordinator_core.durations import clock_ms
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import chosen_profile
from coordinator_core.untrusted import INT32_END
from spark_apps.arguments import add_damage, add_rules, add_source, parse, warn, whole
from spark_apps.exits import App, tell

PROGRAM = "regroup-replay"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with exit code 2 when they are not usable."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Replay a copy of __consumer_offsets and publish a run.")
    add_source(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="where runs are published (path or URI)")
    parser.add_argument("--cluster", required=True, metavar="NAME", help="cluster that the log comes from")
    parser.add_argument("--window", metavar="KEY", help="scheduling window (default: the UTC date of now)")
    parser.add_argument("--run-id", metavar="ID", help="id of the run (default: a new one)")
    parser.add_argument("--no-latest", action="store_true", help="do not let latest.json name the run; a gate will")
    parser.add_argument("--now-ms", type=whole(0), metavar="MS", help="the time to judge by (default: the clock)")
    add_rules(parser)
    parser.add_argument(
        "--offsets-topic-num-partitions",
        type=whole(1, INT32_END - 1),
        metavar="N",
        help="(default: told by where the groups are)",
    )
    add_damage(parser)
    return parse(parser, argv)


def execute(arguments: argparse.Namespace) -> None:
    """Check everything that can be checked without Spark, then start it."""
    from coordinator_core.fold.pin import read_pin, snapshot_of
    from coordinator_core.log.unread import snapshot_warnings
    from coordinator_core.runs.finding import find_snapshot
    from coordinator_core.runs.place import RunPlace, default_window, new_run_id
    from coordinator_core.runs.publish import promote

    now_ms = clock_ms() if arguments.now_ms is None else arguments.now_ms
    place = RunPlace(
        arguments.output,
        arguments.cluster,
        arguments.window or default_window(now_ms),
        arguments.run_id or new_run_id(),
    )
    profile = chosen_profile(arguments.profile, arguments.kafka_version, arguments.coordinator)
    source = read_pin(arguments.pin) if arguments.pin else find_snapshot(arguments.snapshot)

    from spark_apps.session import Session

    with Session(PROGRAM, arguments.master) as session:
        warn(PROGRAM, snapshot_warnings(snapshot_of(source)))
        from coordinator_core.runs.manifest import summary
        from spark_apps.engine import replay

        manifest = replay(
            session,
            source,
            place,
            profile=profile,
            now_ms=now_ms,
            on_damage=OnDamage.chosen(partial=arguments.partial, salvage=arguments.salvage),
            offsets_topic_num_partitions=arguments.offsets_topic_num_partitions,
        )
    latest = not arguments.no_latest and promote(place, manifest)
    tell(summary(manifest, path=place.path, latest=latest))
    session.close()


APP = App(PROGRAM, parse_arguments, execute)

if __name__ == "__main__":
    APP.main()
