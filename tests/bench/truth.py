"""A fast wrong answer is no answer: a published run against what the generator wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.generator import Truth

Int64s = npt.NDArray[np.int64]


class WrongAnswerError(Exception):
    """A run does not hold what was generated."""


def check_truth(run: Path, truths: Sequence[Truth]) -> None:
    """Every committed offset, and members and generation or epoch of every group, no more and no less.

    Raises :class:`WrongAnswerError`. Takes about a second per million slots.
    """
    columns = ["offsets_partition", "group_id", "topic", "partition", "committed_offset"]
    offsets = pq.read_table(run / "offsets", columns=columns)
    columns = ["offsets_partition", "group_id", "member_count", "generation", "group_epoch"]
    groups = pq.read_table(run / "groups", columns=columns)
    for truth in truths:
        of_offsets = offsets.filter(pc.field("offsets_partition") == truth.offsets_partition)
        of_groups = groups.filter(pc.field("offsets_partition") == truth.offsets_partition)
        _compare(run, "offsets", _found_offsets(of_offsets, truth), _expected_offsets(truth))
        _compare(run, "groups", _found_groups(of_groups, truth), _expected_groups(truth))
    known = {truth.offsets_partition for truth in truths}
    if set(offsets["offsets_partition"].unique().to_pylist()) - known:
        raise WrongAnswerError(f"{run}: offsets of offsets partitions that were not generated")


def _compare(run: Path, table: str, found: Int64s, expected: Int64s) -> None:
    """Rows of numbers, in any order."""
    if len(found) != len(expected):
        raise WrongAnswerError(f"{run}: {len(found)} rows of {table}, {len(expected)} were generated")
    found, expected = (rows[np.lexsort(rows.T[::-1])] for rows in (found, expected))
    wrong = np.flatnonzero((found != expected).any(axis=1))
    if len(wrong):
        first = wrong[0]
        raise WrongAnswerError(
            f"{run}: {len(wrong)} rows of {table} are not what was generated, the first "
            f"{found[first].tolist()} instead of {expected[first].tolist()}"
        )


def _numbers(column: pa.ChunkedArray) -> Int64s:
    """-1 for null."""
    return np.asarray(column.fill_null(-1).cast(pa.int64()).to_numpy())


def _places(column: pa.ChunkedArray, names: list[str]) -> Int64s:
    """Index of each value among ``names``, -1 for another one."""
    return _numbers(pc.index_in(column, pa.array(names)))


def _found_offsets(table: pa.Table, truth: Truth) -> Int64s:
    return np.column_stack(
        (
            _places(table["group_id"], truth.groups),
            _places(table["topic"], truth.topics),
            _numbers(table["partition"]),
            _numbers(table["committed_offset"]),
        )
    )


def _expected_offsets(truth: Truth) -> Int64s:
    live = truth.committed >= 0
    columns = (truth.group_of_slot, truth.topic_of_slot, truth.partition_of_slot, truth.committed)
    return np.column_stack([column[live].astype(np.int64) for column in columns])


def _found_groups(table: pa.Table, truth: Truth) -> Int64s:
    """A group without a group record of its own says nothing of members and generation."""
    group = _places(table["group_id"], truth.groups)
    epoch = _numbers(pc.coalesce(table["generation"], table["group_epoch"]))
    rows = np.column_stack((group, _numbers(table["member_count"]), epoch))
    return rows[(group < 0) | (truth.epochs[group] >= 0)]


def _expected_groups(truth: Truth) -> Int64s:
    group = np.flatnonzero(truth.epochs >= 0)
    return np.column_stack((group, truth.members[group], truth.epochs[group]))
