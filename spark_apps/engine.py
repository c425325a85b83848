"""The Spark engine: a task folds segments, and merges them at once when they are all of their offsets partition.

Neighbouring partitions and segments share a task. Where a partition has several, or its folds are too large for the
task that made them, a second stage merges them; those of giant partitions, however many there are, are cut into
shards in one job, merged in the next and combined in a third, in which the other partitions are merged. The driver
lists the files of the tasks that count, and writes the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError, RegroupError
from coordinator_core.fold.pin import Pin, snapshot_of
from coordinator_core.fold.tasks import fold_tasks, packed
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.merge.cuts import CutFolds
from coordinator_core.merge.shards import StoredShard
from coordinator_core.releases import Profile
from coordinator_core.runs.local import check_source
from coordinator_core.runs.manifest import ReplayFacts
from coordinator_core.runs.place import RunPlace, check_count, source_directories
from coordinator_core.runs.publish import Manifest, RunWriter
from spark_apps import tasks
from spark_apps.packing import MIB, fold_task_bytes, share_out
from spark_apps.replay_tasks import ReplayTask
from spark_apps.session import Session
from spark_apps.tasks import MergeTask, StagedFold, WholePartition

if TYPE_CHECKING:
    from pyspark import SparkContext

MAX_MERGE_BYTES = 192 * MIB
"""Folds that one task merges. It holds four times as much where nothing is dead, and 0.1 GiB: less than 1 GiB."""

P = TypeVar("P", StagedFold, CutFolds, StoredShard)
T = TypeVar("T")
A = TypeVar("A")
F = TypeVar("F")
W = TypeVar("W")


def replay(
    session: Session,
    source: Snapshot | Pin,
    place: RunPlace,
    *,
    profile: Profile | None,
    now_ms: int,
    on_damage: OnDamage = OnDamage.FAIL,
    offsets_topic_num_partitions: int | None = None,
    bytes_per_task: int | None = None,
    bytes_per_merge: int = MAX_MERGE_BYTES,
) -> Manifest:
    """Replay ``source`` and publish the run, like ``coordinator_core.runs.local.replay_to_run``.

    Segments share a task up to about ``bytes_per_task`` (default: as suits the session). A partition whose
    folds have more than ``bytes_per_merge`` is merged in several tasks.
    """
    from coordinator_core.fold.inference import infer_profile

    began = perf_counter()
    snapshot = snapshot_of(source)
    check_count(snapshot, offsets_topic_num_partitions)
    # Each task sees whether its own file is as it was pinned.
    check_source(snapshot, on_damage)
    with RunWriter(place, sources=source_directories(snapshot)) as writer:
        chosen = profile or infer_profile(snapshot.partitions)
        inferred = perf_counter()
        context = session.context
        started = perf_counter()
        storage.make_directory(writer.staging_path)
        rules = ReplayTask(chosen, place.path, now_ms)
        answers = folded_and_merged(
            context, source, rules, on_damage, bytes_per_task=bytes_per_task, bytes_per_merge=bytes_per_merge
        )
        facts = {number: told for answer in answers for number, told in answer.facts.items()}
        for answer in answers:
            if answer.written is not None:
                writer.adopt(*answer.written)
        replayed = perf_counter()
        replay_facts = ReplayFacts(
            snapshot=snapshot,
            partitions=[facts[log.offsets_partition] for log in snapshot.partitions],
            profile=chosen,
            profile_inferred=profile is None,
            now_ms=now_ms,
            on_damage=on_damage,
            engine="spark",
            offsets_topic_num_partitions=offsets_topic_num_partitions,
        )
        steps = {
            "profile": inferred - began,
            "session": started - inferred,
            "replay": replayed - started,
        }
        return writer.commit(replay_facts.as_dict(), seconds=perf_counter() - began, steps=steps)


def folded_and_merged(
    context: SparkContext,
    source: Snapshot | Pin,
    rules: MergeTask[F, W],
    on_damage: OnDamage,
    *,
    bytes_per_task: int | None = None,
    bytes_per_merge: int = MAX_MERGE_BYTES,
) -> list[tasks.Answer[F, W]]:
    """Answers of the tasks that merged, by offsets partition.

    Raises :class:`DamagedInputError` for the first damage in the order of partitions and segments.
    """
    sizes = [segment.size for segment in snapshot_of(source).segments]
    limit = bytes_per_task or fold_task_bytes(sizes, context.defaultParallelism)
    works = share_out(fold_tasks(source, on_damage), limit)
    answers = in_tasks(context, partial(tasks.fold, rules=rules), works)
    in_order = [answer for _, answer in sorted(zip(works, answers, strict=True), key=lambda pair: pair[0].place)]
    damage: dict[int, Damage] = {}
    for answer in in_order:
        for number, found in answer.damage.items():
            damage.setdefault(number, found)
    if damage:
        raise DamagedInputError(damage[min(damage)])
    folds = _by_partition(staged for answer in in_order for staged in answer.folds)
    merged = _merged(context, list(folds.values()), rules, bytes_per_merge)
    return sorted((answer for answer in [*in_order, *merged] if answer.facts), key=lambda answer: min(answer.facts))


def _merged(
    context: SparkContext,
    partitions: list[list[StagedFold]],
    rules: MergeTask[F, W],
    bytes_per_merge: int = MAX_MERGE_BYTES,
) -> list[tasks.Answer[F, W]]:
    """Answers of the tasks that merged ``partitions``, each given as its folds in log order."""
    by_size = sorted(partitions, key=_size, reverse=True)
    giants = {folds[0].offsets_partition: folds for folds in by_size if _size(folds) > bytes_per_merge}
    small = by_size[len(giants) :]
    parts: list[tuple[list[StagedFold], int]] = []
    for folds in giants.values():
        count = -(-_size(folds) // bytes_per_merge)
        runs = packed([staged.size for staged in folds], bytes_per_merge)
        parts += [(folds[run.start : run.stop], count) for run in runs]
    cuts = _by_partition(in_tasks(context, partial(tasks.cut, rules=rules), parts))
    of_shards = [
        (number, of_shard)
        for number, of_partition in cuts.items()
        for of_shard in zip(*(part.shards for part in of_partition), strict=True)
    ]
    shards = _by_partition(in_tasks(context, partial(tasks.merge_one_shard, rules=rules), of_shards))
    # The task that combines a giant takes longest, and one core: the others are merged beside it.
    whole = [WholePartition(folds, cuts[number], shards[number]) for number, folds in giants.items()]
    whole += [WholePartition(folds) for folds in small]
    return in_tasks(context, partial(tasks.merge, rules=rules), whole)


def _by_partition(items: Iterable[P]) -> dict[int, list[P]]:
    found: dict[int, list[P]] = {}
    for item in items:
        found.setdefault(item.offsets_partition, []).append(item)
    return found


def _size(folds: Sequence[StagedFold]) -> int:
    return sum(staged.size for staged in folds)


def in_tasks(context: SparkContext, function: Callable[[T], A], items: Sequence[T]) -> list[A]:
    """``function`` of each item, in a Spark task each. Tasks start in the order of the items.

    Raises the error of the first item that has one.
    """
    return [tasks.taken(answer) for answer in answers_of_tasks(context, function, items)]


def answers_of_tasks(context: SparkContext, function: Callable[[T], A], items: Sequence[T]) -> list[A | RegroupError]:
    """The same; errors are answers."""
    if not items:
        return []
    return context.parallelize(items, len(items)).map(partial(tasks.attempted, function)).collect()
