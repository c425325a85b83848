"""Loads of offsets partitions in a broker's log, of any release.

``CoordinatorRuntime`` (the new coordinator) and ``GroupMetadataManager`` (the classic one) write a line each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_FINISHED = re.compile(
    r"Finished loading (?:of metadata|offsets and group metadata|offsets) from "
    r"\[?__consumer_offsets[-,](?P<partition>\d+)\]?.*? in (?P<ms>\d+) ?(?:ms|milliseconds)"
)
_QUEUED = re.compile(r"(\d+) ?(?:ms|milliseconds) was spent in the scheduler")
_RECORDS = re.compile(r"Loaded (\d+) records which total to (\d+) bytes")
_EPOCH = re.compile(r"(?:with|for) epoch (\d+)")


@dataclass(frozen=True, slots=True)
class LoadLine:
    """One load; ``load_ms`` holds ``queued_ms``, behind other loads. ``None``: the release does not log it."""

    offsets_partition: int
    leader_epoch: int | None
    load_ms: int
    queued_ms: int | None
    records: int | None
    bytes: int | None


def load_lines(lines: Iterable[str]) -> Iterator[LoadLine]:
    """The loads among the lines of a log."""
    for line in lines:
        finished = _FINISHED.search(line)
        if finished is None:
            continue
        queued, told, epoch = _QUEUED.search(line), _RECORDS.search(line), _EPOCH.search(line)
        yield LoadLine(
            offsets_partition=int(finished["partition"]),
            leader_epoch=int(epoch[1]) if epoch else None,
            load_ms=int(finished["ms"]),
            queued_ms=int(queued[1]) if queued else None,
            records=int(told[1]) if told else None,
            bytes=int(told[2]) if told else None,
        )
