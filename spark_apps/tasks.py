"""What Spark's Python workers do: fold segments, merge partitions.

What a task makes goes into files beside the run in the making; its answer says which. Another attempt of the
task writes other files, and those count that the answer names which Spark took. So folds pass neither through
the JVM nor through a shuffle, and outlive the executor that made them.

Damaged input is an answer, not an exception: Spark would retry the task and bury the position in a traceback.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.replay.fold import FoldRules, SegmentFold
from coordinator_core.replay.profiles import Profile
from coordinator_core.runs.folding import FoldTask, SegmentResult, run_fold_task
from coordinator_core.runs.manifest import PartitionFacts
from coordinator_core.runs.merging import merge_partition
from coordinator_core.runs.publish import StagedTables, TableFile
from coordinator_core.runs.state_hash import TableDigests
from spark_apps.packing import Work


@dataclass(frozen=True)
class StagedFold:
    """A result whose fold lies in the file ``path`` (``None``: there is no fold) of ``size`` bytes."""

    result: SegmentResult
    path: str | None
    size: int


@dataclass
class Answer:
    """What a task says.

    Of partitions that it has merged: ``facts``, the ``files`` with their rows, the rows' ``digests``.
    Of one that it folded a part of: ``folds``. ``damage`` has the first damage of each partition that could
    not be read for it.
    """

    facts: dict[int, PartitionFacts] = field(default_factory=dict)
    files: list[TableFile] = field(default_factory=list)
    digests: TableDigests = field(default_factory=dict)
    folds: list[StagedFold] = field(default_factory=list)
    damage: dict[int, Damage] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """What all tasks of a replay have in common."""

    profile: Profile
    now_ms: int
    staging_path: str


def fold(work: Work, rules: Rules) -> Answer:
    """Fold segments and, where they are whole partitions, merge them."""
    answer = Answer()
    staged = StagedTables(rules.staging_path)
    for offsets_partition, tasks in groupby(work.tasks, key=lambda task: task.log.offsets_partition):
        try:
            results = _folded(tasks, FoldRules.of(rules.profile))
            if work.whole:
                _merge(offsets_partition, results, rules, staged, answer)
            else:
                answer.folds += [_staged(result, rules.staging_path) for result in results]
        except DamagedInputError as error:
            answer.damage[offsets_partition] = error.damage
    answer.files, answer.digests = staged.close()
    return answer


def merge(folds: list[StagedFold], rules: Rules) -> Answer:
    """Merge the folds of one partition, given in log order."""
    answer = Answer()
    staged = StagedTables(rules.staging_path)
    _merge(folds[0].result.segment.offsets_partition, map(_unstaged, folds), rules, staged, answer)
    answer.files, answer.digests = staged.close()
    return answer


def _folded(tasks: Iterable[FoldTask], rules: FoldRules) -> Iterator[SegmentResult]:
    for task in tasks:
        yield from run_fold_task(task, rules)


def _merge(
    offsets_partition: int,
    results: Iterator[SegmentResult],
    rules: Rules,
    staged: StagedTables,
    answer: Answer,
) -> None:
    tables, answer.facts[offsets_partition] = merge_partition(
        offsets_partition, results, rules.profile, now_ms=rules.now_ms
    )
    staged.write_tables(tables)


def _staged(result: SegmentResult, staging_path: str) -> StagedFold:
    if result.fold is None:
        return StagedFold(result, None, 0)
    data = result.fold.to_ipc()
    path = storage.join(staging_path, f"fold-{secrets.token_hex(8)}.arrows")
    system, inner = storage.filesystem(path)
    with system.open_output_stream(inner) as file:
        file.write(data)
    return StagedFold(replace(result, fold=None), path, len(data))


def _unstaged(staged: StagedFold) -> SegmentResult:
    if staged.path is None:
        return staged.result
    return replace(staged.result, fold=SegmentFold.from_ipc(storage.read(staged.path)))
