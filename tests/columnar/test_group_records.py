"""Group records that newer ones replace are not decoded, and the groups are those of the sequential replay."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_core.fold.schema import FoldRules, SegmentFold
from coordinator_core.fold.segments import fold_batches
from coordinator_core.groups.model import ClassicGroup, Group, PartitionState
from coordinator_core.kernels.layout import Note
from coordinator_core.log.batch import parse_batch
from coordinator_core.merge.partition import PartitionMerge
from coordinator_core.merge.shards import combine_shards
from coordinator_core.releases import Profile, profile_for_release
from tests.columnar.group_histories import (
    GROUPS,
    USUAL,
    Item,
    hostile_items,
    items,
    usual_items,
)
from tests.columnar.parity import PROFILES, differences
from tests.replay.histories import History

MODERN = {
    **PROFILES,
    "3.8.1 new": profile_for_release("3.8.1", "new"),
    "4.0.1": profile_for_release("4.0.1"),
    "4.1.1": profile_for_release("4.1.1"),
}
NEWEST = PROFILES["4.3.1"]

every_profile = pytest.mark.parametrize("name", MODERN)
many = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def history(records: Sequence[Item], size: int = 3) -> History:
    """Batches of so many records."""
    made = History()
    for first in range(0, len(records), size):
        made.records(*records[first : first + size])
    return made


def folds(log: History, profile: Profile, cuts: Sequence[int] = ()) -> list[SegmentFold]:
    """A fold of each part of the log, cut before the batches with these numbers."""
    batches = [parse_batch(memoryview(data), 0) for data in log.batches]
    bounds = sorted({0, len(batches), *(cut for cut in cuts if cut < len(batches))})
    rules = FoldRules.of(profile)
    return [
        fold_batches(batches[first:last], rules=rules, offsets_partition=0)
        for first, last in pairwise(bounds)
    ]


def merged(parts: Sequence[SegmentFold], profile: Profile, *, pickled: bool = False) -> PartitionMerge:
    """The folds merged; ``pickled`` after each, as in a fold cache."""
    merge = PartitionMerge(profile, 0)
    for part in parts:
        merge.add(part)
        if pickled:
            merge._replay = pickle.loads(pickle.dumps(merge._replay))
    return merge


def finished(merge: PartitionMerge) -> PartitionState:
    shard = merge.finish()
    sent = replace(shard, replay=pickle.loads(pickle.dumps(shard.replay)))
    return combine_shards([sent]).to_state()


def orders(groups: dict[str, Group]) -> dict[str, Any]:
    """The order of dictionaries, which comparing them does not look at."""
    return {
        group_id: [list(getattr(group, name, ())) for name in ("members", "target_assignment", "regexes")]
        for group_id, group in groups.items()
        if not isinstance(group, ClassicGroup)
    }


def assert_same(expected: PartitionState, found: PartitionState) -> None:
    assert not differences(expected, found), "\n".join(differences(expected, found))
    assert orders(expected.groups) == orders(found.groups)


@every_profile
@many
@given(
    records=usual_items | hostile_items, cuts=st.lists(st.integers(1, 40), max_size=3), pickled=st.booleans()
)
def test_groups_are_those_of_the_sequential_replay(
    name: str, records: list[Item], cuts: list[int], pickled: bool
) -> None:
    profile = MODERN[name]
    log = history(records)
    expected = log.replay(profile)
    assert_same(expected, finished(merged(folds(log, profile, cuts), profile, pickled=pickled)))


@many
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(USUAL)), st.integers(0, 1), st.integers(0, 40))))
def test_what_coordinators_write_gets_no_note(steps: list[tuple[str, int, int]]) -> None:
    log = history(items(steps, GROUPS))
    merge = merged(folds(log, NEWEST), NEWEST)
    assert [Note(note) for note in merge.finish().replay.newest.notes()] == []
    assert log.replay(NEWEST).load_failures == []
