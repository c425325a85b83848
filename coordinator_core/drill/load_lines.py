"""Loads of offsets partitions in a broker's log, of any release.

``CoordinatorRuntime`` (the new coordinator) and ``GroupMetadataManager`` (the classic one) write a line each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_FINISHED = re.compile(
    r"Finished loading (?:of metadata|offsets and group metadata|offsets) from "
    r"\[?__consumer_offsets[-,](?P<partition>\d{1,9})\b\]?.*? in (?P<ms>\d{1,9}) ?(?:ms|milliseconds)"
)
_QUEUED = re.compile(r"\b(\d{1,9}) ?(?:ms|milliseconds) was spent in the scheduler")
_RECORDS = re.compile(r"Loaded (\d{1,18}) records which total to (\d{1,18}) bytes")
_EPOCH = re.compile(r"(?:with|for) epoch (\d{1,9})\b")


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
    """The loads among the lines of a log. Longer numbers than brokers log are taken for other text."""
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
