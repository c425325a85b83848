"""The partitioned replay equals the sequential one, for random logs and any cut into whole batches."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.fold.schema import NO_ROWS, SegmentFold
from tests.examples import examples
from tests.fold.parity import (
    PROFILES,
    assert_merges,
    every_profile,
    fold_all,
    fold_batch_by_batch,
    fold_in_runs,
    write_log,
)
from tests.fold.random_logs import Log, contended_logs, logs
from tests.replay.reference import replay_partition

random_logs = examples(40)


def without_rows(fold: SegmentFold) -> SegmentFold:
    return replace(fold, **NO_ROWS)


@every_profile
@random_logs
@given(log=logs, cuts=st.sets(st.integers(1, 13), max_size=4))
def test_any_cut_gives_the_sequential_state(name: str, log: Log, cuts: set[int]) -> None:
    profile = PROFILES[name]
    with tempfile.TemporaryDirectory() as directory:
        whole = write_log(Path(directory), log)
        expected = replay_partition(whole, profile, damage=[])
        assert_merges(expected, fold_all(whole, profile), profile)
        assert_merges(expected, fold_batch_by_batch(whole, profile), profile)
        pieces = write_log(Path(directory), log, (cut for cut in cuts if cut < len(log.batches)))
        folds = fold_all(pieces, profile)
        assert_merges(expected, folds, profile)
        for longest in (2, len(folds)):
            together = fold_in_runs(pieces, profile, longest)
            assert_merges(expected, together, profile)
            assert list(map(without_rows, together)) == list(map(without_rows, folds))
        sent = [SegmentFold.from_ipc(fold.to_ipc()) for fold in folds]
        assert sent == folds
        assert_merges(expected, sent, profile)


@every_profile
@examples(30)
@given(log=contended_logs)
def test_a_cut_at_every_boundary(name: str, log: Log) -> None:
    profile = PROFILES[name]
    with tempfile.TemporaryDirectory() as directory:
        expected = replay_partition(write_log(Path(directory), log), profile, damage=[])
        for cut in range(1, len(log.batches)):
            assert_merges(expected, fold_all(write_log(Path(directory), log, [cut]), profile), profile)
