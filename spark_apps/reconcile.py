"""Spark app ``reconcile``: the rules on a published run, a task for some of its offsets partitions.

Publishes the findings, and beside them the figures that the report of the run needs. Prints one line: the output of
``regroup reconcile --format json``, with the directory of the findings in place of them.

    spark-submit spark_apps/reconcile.py --run RUN --against RUN --topics FILE
    python -m spark_apps.reconcile --master 'local[2]' --run RUN
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from spark_apps.arguments import parse
from spark_apps.exits import App, tell

PROGRAM = "regroup-reconcile"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with exit code 2 when they are not usable."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Evaluate the rules on a published run.")
    parser.add_argument("--run", required=True, metavar="RUN", help="directory of a published run")
    parser.add_argument("--topics", metavar="FILE", help="ids, partitions, start and end offsets of topics")
    parser.add_argument("--against", metavar="RUN", help="the run before this one")
    parser.add_argument(
        "--log", action="append", default=[], metavar="SNAPSHOT", help="the log that the run was made of (repeatable)"
    )
    parser.add_argument(
        "--transaction-log",
        action="append",
        default=[],
        metavar="DIR",
        help="log directory with __transaction_state-<n> (repeatable)",
    )
    parser.add_argument("--rules", type=Path, metavar="FILE", help="severities, thresholds and mutes")
    parser.add_argument("--rule", action="append", default=[], metavar="CODE", help="only this rule")
    parser.add_argument("--result", metavar="FILE", help="write the output into this file, too")
    return parse(parser, argv)


def execute(arguments: argparse.Namespace) -> None:
    """Check everything that can be checked without Spark, then start it."""
    from coordinator_core.rules.figures_publish import publish_figures
    from coordinator_core.rules.inputs import Inputs
    from coordinator_core.rules.publish import publish_findings, summary_of

    inputs = Inputs.read(
        arguments.run,
        topics=arguments.topics,
        against=arguments.against,
        log=arguments.log,
        transaction_log=arguments.transaction_log,
        settings_file=arguments.rules,
        codes=arguments.rule,
    )

    from spark_apps.rules import reconcile
    from spark_apps.session import Session

    with Session(PROGRAM, arguments.master) as session:
        facts, found, figures = reconcile(session.context, inputs)
    directory = publish_findings(facts, found)
    publish_figures(figures, directory)
    tell({"findings": directory, **summary_of(facts, found)}, arguments.result)
    session.close()


APP = App(PROGRAM, parse_arguments, execute)

if __name__ == "__main__":
    APP.main()
