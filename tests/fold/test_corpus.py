"""Every log of the corpus, folded and merged, against the sequential replay of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.fold.segments import fold_partition
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_partition
from coordinator_core.log.types import PartitionLog
from coordinator_core.merge.partition import merge_columns
from coordinator_core.releases import Loader, Profile, profile_for_release
from tests.cases import CASES, FEW_CASES, Case, cross_section
from tests.fold.parity import PROFILES, assert_merges, fold_batches, fold_in_runs, sequential_outcome


def own_profile(case: Case) -> Profile:
    return profile_for_release(case.release, case.coordinator)


def other_profile(case: Case) -> Profile:
    """A coordinator of the other kind, which did not write the log."""
    return PROFILES["4.3.1" if own_profile(case).loader is Loader.SCALA else "0.11.0.3"]


def partitions(case: Case) -> list[PartitionLog]:
    return [log for path in case.paths for log in discover([str(path)]).partitions]


def policy(case: Case) -> OnDamage:
    return OnDamage.SALVAGE if case.name.startswith("k431-torn/") else OnDamage.FAIL


def pieces(log: PartitionLog, profile: Profile, on_damage: OnDamage) -> Iterator[SegmentFold]:
    """A fold for every batch of the partition."""
    for segment, batch in read_partition(log, on_damage=on_damage, damage=[]):
        yield fold_batches(
            [batch], rules=FoldRules.of(profile), offsets_partition=log.offsets_partition, path=segment.path
        )


@pytest.mark.parametrize("case", cross_section(CASES))
def test_segments(case: Case) -> None:
    assert_folds(case, own_profile(case))


@pytest.mark.parametrize("case", cross_section(CASES))
def test_segments_by_other_rules(case: Case) -> None:
    assert_folds(case, other_profile(case))


def assert_folds(case: Case, profile: Profile) -> None:
    for log in partitions(case):
        expected, damage = sequential_outcome(log, profile, policy(case))
        found: list[Damage] = []
        folds = list(fold_partition(log, rules=FoldRules.of(profile), on_damage=policy(case), damage=found))
        assert not isinstance(expected, Damage)
        assert found == damage
        assert_merges(expected, folds, profile)


@pytest.mark.parametrize("case", cross_section(CASES, FEW_CASES))
def test_segments_folded_together(case: Case) -> None:
    profile = own_profile(case)
    for log in partitions(case):
        expected, _ = sequential_outcome(log, profile, OnDamage.FAIL)
        if not isinstance(expected, Damage):
            folds = fold_in_runs(log, profile, 3)
            assert len(folds) == len(log.segments)
            assert_merges(expected, folds, profile)


@pytest.mark.parametrize("case", cross_section(CASES, FEW_CASES))
def test_one_batch_pieces(case: Case) -> None:
    profile = own_profile(case)
    for log in partitions(case):
        expected, _ = sequential_outcome(log, profile, policy(case))
        assert not isinstance(expected, Damage)
        assert_merges(expected, list(pieces(log, profile, policy(case))), profile)


@pytest.mark.parametrize("case", cross_section(CASES))
def test_columns_hold_what_the_objects_hold(case: Case) -> None:
    profile = own_profile(case)
    for log in partitions(case):
        folds = list(fold_partition(log, rules=FoldRules.of(profile), on_damage=OnDamage.SALVAGE, damage=[]))
        columns = merge_columns(folds, profile, log.offsets_partition)
        state = columns.to_state()
        assert columns.offsets.num_rows == len(state.offsets)
        assert columns.pending.num_rows == sum(map(len, state.pending.values()))
        assert columns.transactions.num_rows == len(state.transactions)
        records = sum(fold.counts.records - fold.counts.control_records for fold in folds)
        assert sum(state.record_counts.values()) + len(state.carried) == records


@pytest.mark.parametrize("on_damage", [OnDamage.FAIL, OnDamage.RECOVER])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name.startswith("k431-torn/")], ids=lambda case: case.name
)
def test_torn_logs_by_other_policies(case: Case, on_damage: OnDamage) -> None:
    profile = own_profile(case)
    for log in partitions(case):
        expected, damage = sequential_outcome(log, profile, on_damage)
        found: list[Damage] = []
        rules = FoldRules.of(profile)
        reading = fold_partition(log, rules=rules, on_damage=on_damage, damage=found)
        if isinstance(expected, Damage):
            with pytest.raises(DamagedInputError) as raised:
                list(reading)
            assert raised.value.damage == expected
        else:
            assert_merges(expected, list(reading), profile)
        assert found == damage
