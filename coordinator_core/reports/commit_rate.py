"""Commits a second of groups, over the time that the log covers.

A run knows of every group how many commits the log holds and when the first and the last of them were made,
not each of them: they are taken to be evenly spread between.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coordinator_core.durations import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from coordinator_core.rules.facts import Facts

MAX_SPAN_MS = 14 * DAY_MS
"""Commits earlier than this before the newest one are counted, not shown."""

MAX_BUCKETS = 24
_BUCKETS_MS = (
    *(SECOND_MS, 5 * SECOND_MS, 15 * SECOND_MS),
    *(MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS),
    *(HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, 12 * HOUR_MS, DAY_MS),
)


def commit_rate(facts: Facts) -> dict[str, Any]:
    """Commits by time: ``buckets`` of ``bucket_ms`` from ``at_ms`` on.

    ``commits`` are all in the log, of which ``earlier`` lie before the first bucket, and ``without_time`` in
    records without a timestamp (message format 0).
    """
    stats = facts.table("group_stats")
    of_offsets = stats.numbers("key_type") <= 1
    commits = (stats.numbers("records") - stats.numbers("tombstones"))[of_offsets].astype(np.float64)
    first = stats.numbers("first_timestamp_ms")[of_offsets]
    last = stats.numbers("last_timestamp_ms")[of_offsets]
    timed = (first >= 0) & (last >= 0) & (commits > 0)
    total, without_time = commits.sum(), commits[~timed].sum()
    document: dict[str, Any] = {
        "commits": int(total),
        "without_time": int(without_time),
        "earlier": 0,
        "bucket_ms": None,
        "buckets": [],
    }
    if not timed.any():
        return document
    commits = commits[timed]
    # Producers may send times of their own: the last record need not be the newest.
    first, last = np.minimum(first[timed], last[timed]), np.maximum(first[timed], last[timed])
    end = int(last.max())
    begin = max(int(first.min()), end - MAX_SPAN_MS)
    bucket_ms = next(size for size in _BUCKETS_MS if end // size - begin // size < MAX_BUCKETS)
    begins = (np.arange(begin // bucket_ms, end // bucket_ms + 1) * bucket_ms).tolist()
    before = [_before(at, commits, first, last) for at in begins]
    # The last bucket may end beyond an int64, and has all that is left.
    counts = np.round(np.diff([*before, commits.sum()]), 3)
    document["bucket_ms"] = bucket_ms
    document["earlier"] = round(before[0])
    document["buckets"] = [
        {"at_ms": at, "commits": round(count), "per_second": round(count * 1000 / bucket_ms, 3)}
        for at, count in zip(begins, counts.tolist(), strict=True)
    ]
    return document


def _before(edge_ms: int, commits: Any, first: Any, last: Any) -> float:
    """Commits made before ``edge_ms``: of a group none up to its first, all from its last on."""
    span = np.maximum(last - first, 1)
    share = np.clip((edge_ms - first) / span, 0, 1)
    return float((commits * np.where(edge_ms > last, 1, share)).sum())
