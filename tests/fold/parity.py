"""Replays a log both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.fold.segments import Folder, Piece, fold_run, fold_segment
from coordinator_core.groups.model import PartitionState
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.log.types import Batch, PartitionLog, SegmentFile
from coordinator_core.log.windows import SegmentWindows
from coordinator_core.merge.partition import merge_columns
from coordinator_core.releases import Profile, profile_for_release
from tests.fold.random_logs import Log
from tests.replay.reference import replay_partition

PROFILES = {
    "4.3.1": profile_for_release("4.3.1"),
    "3.7.2 new": profile_for_release("3.7.2", "new"),
    "3.9.2 classic": profile_for_release("3.9.2", "classic"),
    "2.4.1": profile_for_release("2.4.1"),
    "0.11.0.3": profile_for_release("0.11.0.3"),
}
"""Both loaders, all rules for the merge offset, both treatments of pending offsets by tombstones."""

every_profile = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=name, marks=() if name in ("4.3.1", "3.9.2 classic") else pytest.mark.full)
        for name in PROFILES
    ],
)
"""For slow tests: one profile of each loader, and the others in the tier *full*."""


def partition_log(segments: Iterable[SegmentFile], start_offset: int | None = None) -> PartitionLog:
    """A partition of these segments; its directory is none, so that nothing lies beside them."""
    return PartitionLog(0, "no-directory", tuple(segments), start_offset, clean_shutdown=False)


def write_log(directory: Path, log: Log, cuts: Iterable[int] = ()) -> PartitionLog:
    """The log as segment files, cut before the batches whose numbers are in ``cuts``."""
    bounds = [0, *sorted(set(cuts) - {0}), len(log.batches)]
    segments = []
    for first, stop in pairwise(bounds):
        data = b"".join(log.batches[first:stop])
        path = directory / f"{log.starts[first]:020d}.{first}-{stop}.log"
        path.write_bytes(data)
        segments.append(SegmentFile(str(path), 0, log.starts[first], len(data)))
    return partition_log(segments)


def whole_fold(segment: SegmentFile, **arguments: Any) -> SegmentFold:
    """The only fold of a segment that unpacks to little."""
    [fold] = fold_segment(segment, **arguments)
    return fold


def fold_all(log: PartitionLog, profile: Profile) -> list[SegmentFold]:
    rules = FoldRules.of(profile)
    return [whole_fold(segment, rules=rules, end_offset=end_offset) for segment, end_offset in log.segment_ranges()]


def fold_in_runs(log: PartitionLog, profile: Profile, longest: int) -> list[SegmentFold]:
    """Up to ``longest`` segments folded together, where that can be done."""
    rules = FoldRules.of(profile)
    pieces = [Piece(segment, SegmentWindows(segment), end_offset) for segment, end_offset in log.segment_ranges()]
    folds: list[SegmentFold] = []
    for first in range(0, len(pieces), longest):
        run = pieces[first : first + longest]
        folds += fold_run(run, rules=rules) or [
            whole_fold(piece.segment, rules=rules, end_offset=piece.end_offset) for piece in run
        ]
    return folds


def fold_batches(
    batches: Iterable[Batch],
    *,
    rules: FoldRules,
    offsets_partition: int,
    path: str = "",
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
) -> SegmentFold:
    """Fold batches that were read already and follow each other; ``path`` names their file in errors."""
    folder = Folder(SegmentFile(path, offsets_partition, 0, 0), rules, Limits(), check_utf8=True)
    folder.fold_read(batches, on_damage, [] if damage is None else damage)
    return folder.finish()


def merge_folds(folds: Iterable[SegmentFold], profile: Profile, offsets_partition: int) -> PartitionState:
    """State after the segments whose ``folds`` are given in log order."""
    return merge_columns(folds, profile, offsets_partition).to_state()


def fold_batch_by_batch(log: PartitionLog, profile: Profile) -> list[SegmentFold]:
    rules = FoldRules.of(profile)
    return [
        fold_batches([batch], rules=rules, offsets_partition=0, path=segment.path)
        for segment in log.segments
        for batch in read_segment(segment)
    ]


def differences(left: PartitionState, right: PartitionState) -> list[str]:
    """Differences of two states, one line a field, so that a failure can be read."""
    return [
        f"{name}:\n  sequential {getattr(left, name)}\n  merged     {getattr(right, name)}"
        for name in PartitionState.__dataclass_fields__
        if getattr(left, name) != getattr(right, name)
    ]


def assert_merges(expected: PartitionState, folds: Sequence[SegmentFold], profile: Profile) -> None:
    merged = merge_folds(folds, profile, expected.offsets_partition)
    assert not differences(expected, merged), "\n".join(differences(expected, merged))


def sequential_outcome(
    log: PartitionLog, profile: Profile, on_damage: OnDamage
) -> tuple[PartitionState | Damage, list[Damage]]:
    """State or first damage, and all damage passed over, of the sequential replay."""
    damage: list[Damage] = []
    try:
        return replay_partition(log, profile, on_damage=on_damage, damage=damage), damage
    except DamagedInputError as error:
        return error.damage, damage
