"""Offsets of groups that were not asked for, as far as a replay tells: the newest commit of each offset key."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.history.lessons import Lessons
from coordinator_core.merge.schema import MergedPartition


def learn_elsewhere(lessons: Lessons, partition: MergedPartition, asked: Collection[str]) -> None:
    """Tell which topics groups other than ``asked`` have offsets of at the end of the log."""
    known = pa.array(sorted(asked), pa.string())
    for block in partition.offsets.blocks():
        others = block.filter(pc.invert(pc.is_in(block["group_id"], known)))
        newest = others.group_by(["topic", "group_id"]).aggregate([("commit_timestamp_ms", "min")])
        for topic, group_id, committed_ms in zip(*(column.to_pylist() for column in newest.columns), strict=True):
            by_group = lessons.elsewhere.setdefault(topic, {})
            by_group[group_id] = min(committed_ms, by_group.get(group_id, committed_ms))
