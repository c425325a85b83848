"""``make bench``: replay and dump against Kafka 4.3.1 on the same bytes, in turn, in one run.

The reference of a replay is the broker's own "Finished loading": only its loading, without the start of the
broker, against our whole process from start to published run.
"""

from __future__ import annotations

import argparse
import compileall
import sys
import tempfile
from pathlib import Path

from tests.bench.documents import publish
from tests.bench.kafka import kafka_as_it_comes
from tests.bench.plans import FULL, QUICK, Plan
from tests.bench.report import promises, table
from tests.bench.results import ROOT, Result, machine, read_results, revision, write_results
from tests.bench.takes import Bench, describe_log
from tests.bench.truth import WrongAnswerError
from tests.live.broker import Kafka

BUILD = ROOT / "build" / "bench"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every table, some 40 minutes")
    parser.add_argument("--fresh", action="store_true", help="measure again what a full bench has measured")
    parser.add_argument("--only", action="append", metavar="TABLE", help="only this one; can be repeated")
    parser.add_argument("--runs", type=int, help="how often everything is measured")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the logs, to try the bench itself")
    parser.add_argument("--publish", action="store_true", help="write the results into docs/ and the README")
    options = parser.parse_args()
    plans = FULL if options.full else QUICK
    unknown = set(options.only or ()) - {plan.name for plan in plans}
    if unknown:
        parser.error(f"no such table: {', '.join(sorted(unknown))}")
    if options.publish and (not options.full or options.scale != 1):
        parser.error("only tables of the full bench are published")
    path = BUILD / f"{'full' if options.full else 'quick'}-{options.scale:g}.jsonl"
    # As an installation has them: under PYTHONDONTWRITEBYTECODE every process would compile what was edited since.
    for package in ("coordinator_core", "spark_apps"):
        compileall.compile_dir(ROOT / package, quiet=1)
    # A quick bench is for looking at a change, so it always measures; a full one goes on where it stopped.
    kept = read_results(path) if options.full else []
    kafka = kafka_as_it_comes()
    failed: list[str] = []
    for plan in plans:
        if options.only and plan.name not in options.only:
            continue
        if not options.fresh and any(result.plan == plan.name for result in kept):
            continue
        try:
            result = _measure(plan.scaled(options.scale), options.runs, kafka)
        except (RuntimeError, TimeoutError, WrongAnswerError) as error:
            # The other tables take long too; what is missing is measured next time.
            print(f"{plan.name}: {error}", file=sys.stderr, flush=True)
            failed.append(plan.name)
            continue
        kept = [old for old in kept if old.plan != plan.name] + [result]
        kept.sort(key=lambda result: [each.name for each in plans].index(result.plan))
        write_results(path, kept)
        print(table(result), end="\n\n", flush=True)
    print(promises(kept))
    if not options.full:
        print("\nThe limits are those of a full bench. The start of a process is a large part of so small a log.")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")
    if options.publish:
        publish(kept)


def _measure(plan: Plan, runs: int | None, kafka: Kafka) -> Result:
    print(f"{plan.name} …", file=sys.stderr, flush=True)
    with Bench(plan, kafka, Path(tempfile.mkdtemp(prefix="regroup-bench-"))) as bench:
        rows = bench.take(runs or plan.runs)
        log = describe_log(bench.truths, bench.segments)
    return Result(plan.name, plan.title, log, rows, machine(kafka.version), revision())


if __name__ == "__main__":
    main()
