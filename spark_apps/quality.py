"""Spark app ``quality``: the expectations on a published run, large tables a task for some offsets partitions.

Prints the output of ``python -m expectations RUN --format json``, as one line. Executors need the extra ``quality``.

    spark-submit spark_apps/quality.py --run RUN --findings DIR --data-docs DIR
    python -m spark_apps.quality --master 'local[2]' --run RUN
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from coordinator_core.process.plain import PLAIN
from spark_apps.arguments import parse
from spark_apps.exits import App, tell

if TYPE_CHECKING:
    from pyspark import SparkContext

    from coordinator_core.runs.read import Run
    from expectations.frames import Part
    from expectations.gate import Answers, Question

PROGRAM = "regroup-quality"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with exit code 2 when they are not usable."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Evaluate the expectations on a published run.")
    parser.add_argument("--run", required=True, metavar="RUN", help="directory of a published run")
    parser.add_argument("--findings", metavar="DIR", help="findings of the app reconcile about it")
    parser.add_argument("--data-docs", metavar="DIR", help="write Data Docs into this directory")
    parser.add_argument("--result", metavar="FILE", help="write the output into this file, too")
    return parse(parser, argv)


def execute(arguments: argparse.Namespace) -> None:
    """Evaluate and print; a gate that is not passed is no error of the app."""
    from coordinator_core.runs.read import open_run
    from expectations.gate import evaluate
    from spark_apps.session import Session

    run = open_run(arguments.run)
    with Session(PROGRAM, arguments.master) as session:
        context = session.context
        context.environment[PLAIN] = for_pandas()
        try:
            in_parts = partial(answers, context)
            result = evaluate(run, findings=arguments.findings, data_docs=arguments.data_docs, in_parts=in_parts)
        finally:
            del context.environment[PLAIN]
    tell({**result.as_dict(), "data_docs": arguments.data_docs}, arguments.result)
    session.close()


def answers(context: SparkContext, question: Question) -> Iterable[Answers]:
    """Answers of all parts, each of a task."""
    from expectations.gate import evaluate_part
    from spark_apps.engine import in_tasks

    return in_tasks(context, partial(evaluate_part, question), parts_of(question.run, context.defaultParallelism))


def parts_of(run: Run, count: int) -> list[Part]:
    """The offsets partitions of a run in so many parts at most, of about equal bytes of log.

    No more than there are cores: every task has its own start of GX.
    """
    from coordinator_core.fold.tasks import packed
    from expectations.frames import Part

    sizes = run.log_bytes
    sizes.update(map(int, run.manifest["cut"]))
    numbers = sorted(sizes)
    runs = packed([sizes[number] for number in numbers], -(-sum(sizes.values()) // count))
    of = {number: at for at, part in enumerate(runs) for number in numbers[part.start : part.stop]}
    return [Part(at, of) for at in range(max(1, len(runs)))]


def for_pandas() -> str:
    """Setting of a process that may import pandas, which GX is made of, and gives back the memory of its frames."""
    return ",".join([*filter(None, [os.environ.get(PLAIN)]), "pandas", "allocator"])


APP = App(PROGRAM, parse_arguments, execute)

if __name__ == "__main__":
    os.environ[PLAIN] = for_pandas()
    APP.main()
