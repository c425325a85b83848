"""Lag and status of every group and partition, on one cut: the run's commits and the topics' ends.

Lag begins at the log start: records that retention has deleted cannot be read any more.  It is never negative: an
offset committed beyond the end that the topic snapshot knows has lag 0 (rule R31 explains it).  A partition that a
member owns and nobody has committed has the status ``no_commit`` and no lag.  With a previous run there are also those
of Burrow's statuses that two moments can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import GroupType
from coordinator_core.rules.columns import Int64s, combined_pair, is_in
from coordinator_core.rules.commits import same_topic
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.history import matched_offsets, of_one_topic, without_deleted_topics
from coordinator_core.rules.topics import lag_between
from coordinator_core.runs.read import Run


class LagStatus(IntEnum):
    """Status of a partition; the numbers are those of Burrow (2 is its warning, 3 its error)."""

    OK = 1
    """No lag, or it moves, or there is no previous run to compare with."""

    NO_COMMIT = 2
    """A member owns the partition, and nothing was committed."""

    LOST = 3
    """The committed offset is below the log start: records are gone unread."""

    STOPPED = 4
    """Lag, and no commit since the previous run, of a copy that was made later."""

    STALLED = 5
    """Lag, and commits since the previous run that did not move."""

    REWOUND = 6
    """The committed offset is lower than in the previous run."""

    @property
    def label(self) -> str:
        return self.name.lower()


_FROM_BEST = (
    LagStatus.OK,
    LagStatus.NO_COMMIT,
    LagStatus.STALLED,
    LagStatus.STOPPED,
    LagStatus.REWOUND,
    LagStatus.LOST,
)
_RANK = np.zeros(max(LagStatus) + 1, np.int64)
_RANK[list(_FROM_BEST)] = np.arange(len(_FROM_BEST))

LAG = pa.schema(
    [
        pa.field("offsets_partition", pa.int32()),
        pa.field("record_offset", pa.int64()),
        pa.field("group_id", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("committed_offset", pa.int64()),
        pa.field("log_start_offset", pa.int64()),
        pa.field("log_end_offset", pa.int64()),
        pa.field("lag", pa.int64()),
        pa.field("share_of_log", pa.float64()),
        pa.field("status", pa.string()),
    ]
)
"""``share_of_log`` is the lag as a part of the records that the partition holds: at 1 the next record that
retention deletes is one that the group has not read."""


KEPT = 100_000
"""Partitions that are kept of a run that is looked at in parts."""

MOST = (1 << 63) - 1
"""The largest sum of lags that is told."""

_HALF, _LOW = pa.scalar(32, pa.int64()), pa.scalar((1 << 32) - 1, pa.int64())


@dataclass(frozen=True)
class Lag:
    """``partitions`` is of schema ``LAG``; of a run in parts (:meth:`Facts.each_part`), :data:`KEPT` with the largest
    lags. There are ``count``, of which ``known`` have a lag, ``total`` together, at most :data:`MOST`.

    ``groups`` has a row for each group of an offsets partition, ``topics`` for each of its topics with a known lag,
    which is the sum.
    """

    partitions: pa.Table
    groups: pa.Table
    topics: pa.Table
    count: int
    known: int
    total: int


def lag_of_part(facts: Facts, *, is_whole: bool) -> Lag | None:
    """Lag of every committed offset of a part of a run, or of the whole, whose partition's end is known; ``None``
    without a topic snapshot."""
    if facts.topics is None:
        return None
    lag = _lag(_partitions(facts))
    return lag if is_whole else _largest(lag)


def largest_first(partitions: pa.Table) -> pa.Table:
    """Rows of schema ``LAG``: the largest lag first, none last."""
    by_name = [(name, "ascending") for name in ("group_id", "topic", "partition")]
    return partitions.sort_by([("lag", "descending"), *by_name])


def _lag(partitions: pa.Table) -> Lag:
    known = partitions.filter(pc.is_valid(partitions["lag"]))
    return Lag(
        partitions=partitions,
        groups=_of_groups(partitions),
        topics=_of_topics(known),
        count=partitions.num_rows,
        known=known.num_rows,
        total=_joined(*map(pc.sum, _halves(known["lag"]))).as_py() or 0,
    )


def _largest(lag: Lag) -> Lag:
    return replace(lag, partitions=largest_first(lag.partitions).slice(0, KEPT).combine_chunks())


def lag_together(parts: Sequence[Lag]) -> Lag:
    """Lag of a run from that of its parts, which have no group in common."""
    whole = Lag(
        partitions=pa.concat_tables(part.partitions for part in parts),
        groups=_in_order(pa.concat_tables(part.groups for part in parts)),
        topics=_of_topics(pa.concat_tables(part.topics for part in parts)),
        count=sum(part.count for part in parts),
        known=sum(part.known for part in parts),
        total=min(sum(part.total for part in parts), MOST),
    )
    return _largest(whole)


def _of_topics(rows: pa.Table) -> pa.Table:
    # A group may lie in two offsets partitions (rule R22): one of them is stale.
    names = ["offsets_partition", "group_id", "topic"]
    return _summed(rows, names).select([*names, "lag"])


def _summed(rows: pa.Table, by: list[str], *more: tuple[str, str]) -> pa.Table:
    """``lag``, the sum of ``lag`` for each group of rows, at most :data:`MOST`, and ``more`` aggregations."""
    high, low = _halves(rows["lag"])
    halves = rows.append_column("high", high).append_column("low", low)
    found = halves.group_by(by).aggregate([("high", "sum"), ("low", "sum"), *more])
    return found.append_column("lag", _joined(found["high_sum"], found["low_sum"]))


def _halves(lag: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The upper and the lower 32 bits: a sum of lags may be more than an int64 holds, sums of these are not."""
    return pc.shift_right(lag, _HALF), pc.bit_wise_and(lag, _LOW)


def _joined(high: Any, low: Any) -> Any:
    """The sum of which these are the sums of the halves."""
    high = pc.add(high, pc.shift_right(low, _HALF))
    whole = pc.add(pc.shift_left(high, _HALF), pc.bit_wise_and(low, _LOW))
    return pc.if_else(pc.greater(high, MOST >> _HALF.as_py()), MOST, whole)


def _partitions(facts: Facts) -> pa.Table:
    topics = facts.topics
    assert topics is not None
    offsets = facts.offsets
    at = facts.offset_place
    known = np.flatnonzero((at >= 0) & (topics.end[at] >= 0)) if len(topics.end) else np.zeros(0, np.int64)
    start, end = topics.start[at[known]], topics.end[at[known]]
    committed = offsets.numbers("committed_offset")[known]
    lag = lag_between(committed, start, end)
    status = _statuses(facts)[known]
    status[(lag == 0) & (status != LagStatus.REWOUND)] = LagStatus.OK
    status[(start >= 0) & (committed >= 0) & (committed < start) & same_topic(facts)[known]] = LagStatus.LOST
    held = np.maximum(end - np.maximum(start, 0), 1)
    rows = offsets.rows(known, "group_id", "topic", "partition", "committed_offset")
    columns = {
        **{name: rows[name] for name in rows.column_names},
        "log_start_offset": pa.array(start, mask=start < 0),
        "log_end_offset": pa.array(end),
        "lag": pa.array(lag),
        "share_of_log": pa.array(lag / held),
        "status": _labels(status),
    }
    committed_rows = pa.table([columns[name].cast(LAG.field(name).type) for name in LAG.names], schema=LAG)
    return pa.concat_tables([committed_rows, _without_commit(facts)])


def _labels(status: Int64s) -> pa.Array:
    names = pa.array(["", *(status.label for status in LagStatus)])
    return names.take(pa.array(status))


def _statuses(facts: Facts) -> Int64s:
    """Status of each committed offset by comparison with the previous run; OK without one."""
    status = np.full(len(facts.offsets), LagStatus.OK, np.int64)
    if facts.previous is None:
        return status
    matched = matched_offsets(facts)
    now, before = (
        {name: one.offsets.numbers(name)[rows] for name in ("committed_offset", "record_offset")}
        for one, rows in ((facts, matched.now), (facts.previous, matched.before))
    )
    # One copy, replayed again, tells nothing new. Where nobody commits, a later copy has the same bytes.
    captured_ms, then_ms = None if facts.topics is None else facts.topics.captured_at_ms, facts.previous.captured_ms
    is_later = captured_ms is not None and then_ms is not None and captured_ms > then_ms
    is_later = is_later or not _is_of_same_bytes(facts.run, facts.previous.run)
    stayed = now["committed_offset"] == before["committed_offset"]
    again = now["record_offset"] > before["record_offset"]
    rewound = of_one_topic(facts, now["committed_offset"] < before["committed_offset"])
    for found, pairs in (
        (LagStatus.STALLED, of_one_topic(facts, stayed & again)),
        (LagStatus.STOPPED, of_one_topic(facts, stayed & ~again & is_later)),
        (LagStatus.REWOUND, without_deleted_topics(facts, rewound)),
    ):
        status[matched.now[pairs]] = found
    return status


def _is_of_same_bytes(run: Run, before: Run) -> bool:
    """Whether both runs have read the same log, and as far; a part of a run names all segments, too."""
    names = ("offsets_partition", "base_offset", "bytes", "fingerprint")
    now, then = run.manifest["inputs"], before.manifest["inputs"]
    # Logs that differ do so early, in the last segment of the first partition.
    return len(now) == len(then) and all(
        one[name] == other[name] for one, other in zip(now, then, strict=True) for name in names
    )


def _without_commit(facts: Facts) -> pa.Table:
    """Rows for partitions that members of consumer groups own and nobody committed."""
    assert facts.topics is not None
    assigned = facts.assigned
    consumers = ~facts.groups.equals("type", GroupType.SHARE)[assigned.group]
    rows = np.flatnonzero((assigned.topic >= 0) & consumers)
    offsets = facts.offsets
    owned, committed = combined_pair(
        (assigned.group[rows], assigned.topic[rows], assigned.partition[rows]),
        (facts.group_row("offsets"), facts.offset_topic, offsets.numbers("partition")),
    )
    # Rule R10 tells of two owners.
    is_first = np.zeros(len(rows), np.bool_)
    is_first[np.unique(owned, return_index=True)[1]] = True
    rows = rows[is_first & ~is_in(owned, committed)]
    at = facts.topics.locate(facts.live_topic[assigned.topic[rows]], assigned.partition[rows])
    rows, at = rows[at >= 0], at[at >= 0]
    start, end = facts.topics.start[at], facts.topics.end[at]
    found = facts.groups.rows(assigned.group[rows], "group_id")
    size = len(rows)
    columns = {
        "offsets_partition": found["offsets_partition"],
        "record_offset": found["record_offset"],
        "group_id": found["group_id"],
        "topic": facts.topic_names(assigned.topic[rows]),
        "partition": pa.array(assigned.partition[rows]),
        "log_start_offset": pa.array(start, mask=start < 0),
        "log_end_offset": pa.array(end, mask=end < 0),
        "status": _labels(np.full(size, LagStatus.NO_COMMIT, np.int64)),
    }
    return pa.table(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(size, field.type)
            for field in LAG
        ],
        schema=LAG,
    )


def _of_groups(partitions: pa.Table) -> pa.Table:
    """By group: partitions, sum and maximum of the lag, and the worst status; the largest sum first."""
    ranks = {status.label: int(_RANK[status]) for status in LagStatus}
    status = partitions["status"].combine_chunks().dictionary_encode()
    rank = pa.array([ranks[label] for label in status.dictionary.to_pylist()], pa.int64()).take(status.indices)
    grouped = _summed(
        partitions.append_column("rank", rank),
        ["offsets_partition", "group_id"],
        *(("lag", "max"), ("partition", "count"), ("share_of_log", "max"), ("rank", "max")),
    )
    labels = pa.array([one.label for one in _FROM_BEST], pa.string())
    worst = labels.take(grouped["rank_max"].combine_chunks())
    renamed = pa.table(
        {
            "offsets_partition": grouped["offsets_partition"],
            "group_id": grouped["group_id"],
            "partitions": grouped["partition_count"],
            "lag": grouped["lag"],
            "max_lag": grouped["lag_max"],
            "share_of_log": grouped["share_of_log_max"],
            "status": worst,
        }
    )
    return _in_order(renamed)


def _in_order(groups: pa.Table) -> pa.Table:
    return groups.sort_by([("lag", "descending"), ("offsets_partition", "ascending"), ("group_id", "ascending")])
