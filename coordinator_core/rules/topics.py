"""The topics of a cluster at one moment: ids, partitions, log start and end offsets. From ``topics.json``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.jsontext import parse_json
from coordinator_core.log.types import OFFSETS_TOPIC

Int64s = npt.NDArray[np.int64]

UNKNOWN = -1
"""Start or end offset that ``topics.json`` does not have."""


@dataclass(frozen=True)
class Topics:
    """``names`` and ``ids`` are parallel; partitions ``first[i]`` to ``first[i] + count[i] - 1`` of the flat
    arrays ``start`` and ``end`` are those of topic ``i``, in their order; ``UNKNOWN`` where there is none."""

    path: str
    sha256: str
    captured_at_ms: int | None
    names: pa.Array
    ids: tuple[str | None, ...]
    first: Int64s
    count: Int64s
    start: Int64s
    end: Int64s

    @property
    def names_by_id(self) -> dict[str, str]:
        names = self.names.to_pylist()
        return {topic_id: name for topic_id, name in zip(self.ids, names, strict=True) if topic_id}

    def locate(self, topic: Int64s, partition: Int64s) -> Int64s:
        """Position in ``start`` and ``end`` of partitions of topics by number; -1 where there is none."""
        position = np.full(len(topic), -1, np.int64)
        known = topic >= 0
        count = np.zeros(len(topic), np.int64)
        count[known] = self.count[topic[known]]
        there = known & (partition >= 0) & (partition < count)
        position[there] = self.first[topic[there]] + partition[there]
        return position


def read_topics(path: str) -> Topics:
    """Read a ``topics.json``: what ``regroup capture`` writes, or a list of topics in snake_case.

    Both ``{"topics": {name: {"topicId", "partitionInfo": [{"partition", "startOffset", "endOffset"}]}}}`` and
    ``{"topics": [{"name", "topic_id", "partitions": [{"partition", "start_offset", "end_offset"}]}]}`` are
    understood; a partition without offsets is one whose offsets are not known.  Raises :class:`UsageError`.
    """
    data = bytes(storage.read(path))
    try:
        document: Any = parse_json(data)
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
    try:
        return _topics(path, data, document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"{path}: not a snapshot of topics ({type(error).__name__}: {error}); expected "
            '{"topics": [{"name", "topic_id", "partitions": [{"partition", "start_offset", "end_offset"}]}]}'
        ) from None


def _topics(path: str, data: bytes, document: Any) -> Topics:
    listed = document["topics"]
    entries = [{"name": name, **entry} for name, entry in listed.items()] if isinstance(listed, dict) else listed
    names: list[str] = []
    ids: list[str | None] = []
    starts: list[int] = []
    ends: list[int] = []
    counts: list[int] = []
    for entry in sorted(entries, key=lambda item: str(item["name"])):
        names.append(str(entry["name"]))
        ids.append(_first(entry, "topic_id", "topicId"))
        info = entry["partitionInfo"] if "partitionInfo" in entry else entry["partitions"]
        by_number = {int(item["partition"]): item for item in info}
        if sorted(by_number) != list(range(len(info))):
            raise ValueError(f"the partitions of {names[-1]} are not 0 to n-1")
        counts.append(len(info))
        starts += [_offset(by_number[number], "start_offset", "startOffset") for number in range(len(info))]
        ends += [_offset(by_number[number], "end_offset", "endOffset") for number in range(len(info))]
    if names == [OFFSETS_TOPIC]:
        raise UsageError(
            f"{path}: lists {OFFSETS_TOPIC} alone, so it does not tell which topics of the groups exist; give the "
            "topics.json of a capture, or leave the topics out"
        )
    if len(set(names)) != len(names):
        raise ValueError("a topic is listed twice")
    captured = _first(document, "captured_at_ms", "capturedAtMs")
    count = np.array(counts, np.int64)
    return Topics(
        path,
        hashlib.sha256(data).hexdigest(),
        None if captured is None else int(captured),
        pa.array(names, pa.string()),
        tuple(ids),
        np.cumsum(count) - count,
        count,
        np.array(starts, np.int64),
        np.array(ends, np.int64),
    )


def _first(entry: Any, *names: str) -> Any:
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _offset(entry: Any, *names: str) -> int:
    found = next((entry[name] for name in names if entry.get(name) is not None), None)
    return UNKNOWN if found is None or int(found) < 0 else int(found)
