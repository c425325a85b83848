"""Rules and figures in Spark: one task for rules that look across offsets partitions, and some for all else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coordinator_core.fold.tasks import packed
from coordinator_core.rules.beside import FOUND_LOG_BYTES
from coordinator_core.rules.evaluate import Hits, Reconciliation, chosen_rules, find, find_in_part, reconciled
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.figures import Figures, figures_of_part, figures_of_parts, figures_together
from coordinator_core.rules.inputs import Inputs
from spark_apps.engine import in_tasks
from spark_apps.packing import TASKS_PER_CORE

if TYPE_CHECKING:
    from pyspark import SparkContext

Part = frozenset[int] | None
"""Offsets partitions; ``None``: rules that need all of them at once."""


def reconcile(context: SparkContext, inputs: Inputs) -> tuple[Facts, Reconciliation, Figures]:
    """Result of ``coordinator_core.rules.evaluate.evaluate`` for the same inputs, and the figures; made in Spark."""
    facts = inputs.facts()
    chosen = chosen_rules(facts, inputs.codes)
    parts: list[Part] = [None, *parts_of(inputs, TASKS_PER_CORE * context.defaultParallelism)]
    hits: list[Hits] = []
    figures: list[Figures] = []
    for answer in in_tasks(context, partial(look_at_part, inputs=inputs), parts):
        hits += answer.hits
        figures += [] if answer.figures is None else [answer.figures]
    return facts, reconciled(facts, chosen, hits, inputs.settings), figures_together(figures)


def parts_of(inputs: Inputs, tasks: int) -> list[frozenset[int]]:
    """The offsets partitions of both runs, in parts of about equal bytes of log: as many as ``tasks``, or more where
    a log is walked over, whose history a task holds in memory.
    """
    sizes = inputs.run.log_bytes
    runs = [inputs.run] if inputs.against is None else [inputs.run, inputs.against]
    sizes.update({int(name) for run in runs for name in run.manifest["cut"]})
    numbers = sorted(sizes)
    share = -(-sum(sizes.values()) // tasks)
    parts = packed([sizes[number] for number in numbers], min(share, FOUND_LOG_BYTES) if inputs.log else share)
    return [frozenset(numbers[part.start : part.stop]) for part in parts] or [frozenset()]


@dataclass(frozen=True)
class Found:
    """What a task found: results of rules, and of some offsets partitions the figures."""

    hits: list[Hits]
    figures: Figures | None


def look_at_part(part: Part, inputs: Inputs) -> Found:
    """Results of a part, in a worker."""
    facts = inputs.facts(part)
    rules = [rule for rule in chosen_rules(facts, inputs.codes).evaluated if rule.across == (part is None)]
    if part is None:
        return Found(find(facts, rules, inputs.settings, is_all=True), None)
    # Both at once: what they read of a part, and what rules note about it, serves the figures, too.
    answers = facts.each_part(
        lambda some: (find_in_part(some, rules, inputs.settings, is_all=False), figures_of_part(some, facts))
    )
    return Found([hits for found, _ in answers for hits in found], figures_of_parts(made for _, made in answers))
