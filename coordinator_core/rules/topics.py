"""The topics of a cluster at one moment: ids, partitions, offsets, leader epochs; how the offsets topic is kept.

From ``topics.json``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core import storage
from coordinator_core.durations import MINUTE_MS
from coordinator_core.errors import UsageError
from coordinator_core.jsontext import parse_json
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.rules.needs import Need
from coordinator_core.topology import PartitionInfo, partition_info
from coordinator_core.untrusted import INT32_END, is_utf8, whole_number

Int64s = npt.NDArray[np.int64]

UNKNOWN = -1
"""Offset, leader epoch or time that ``topics.json`` does not have."""
_METADATA_MAX_AGE_MS = 5 * MINUTE_MS
"""Default of ``metadata.max.age.ms``: for so long a consumer does not know of new partitions."""


_THRESHOLDS = {
    "expiry_grace_ms": ("offsets.retention.check.interval.ms", 2),
    "max_message_bytes": ("max.message.bytes", 1),
    "offset_metadata_max_bytes": ("offset.metadata.max.bytes", 1),
    "offsets_retention_ms": ("offsets.retention.minutes", MINUTE_MS),
    "transaction_max_timeout_ms": ("transaction.max.timeout.ms", 1),
}
"""Settings of brokers or of the offsets topic behind thresholds, and their factors."""


_CHECKED: Mapping[str, Callable[[str], bool]] = {
    "min.cleanable.dirty.ratio": lambda text: 0 <= float(text) <= 1,
    "min.compaction.lag.ms": lambda text: whole_number(text) is not None,
    "min.insync.replicas": lambda text: whole_number(text, INT32_END) is not None,
}
"""Settings of the offsets topic that rules take for numbers, and whether a text is one that Kafka takes."""


@dataclass(frozen=True)
class OffsetsTopic:
    """Settings of a cluster's offsets topic. ``config``: settings by name; ``racks``: by broker id, alive ones.

    ``thresholds``: those of rules that the brokers' settings decide, where all brokers have the same.
    """

    config: Mapping[str, str]
    partitions: tuple[PartitionInfo, ...]
    racks: Mapping[int, str | None]
    thresholds: Mapping[str, float]


@dataclass(frozen=True)
class Topics:
    """``names`` and ``ids`` are parallel; partitions ``first[i]`` to ``first[i] + count[i] - 1`` of the flat
    arrays are those of topic ``i``, in their order; ``UNKNOWN`` where there is none.

    ``start`` and ``end`` are offsets, ``oldest_epoch`` and ``epoch`` the leader epochs of the first record and of
    now, ``first_record_ms`` the time of the record at offset 0. ``tells``: the facts of the file for rules.
    """

    path: str
    sha256: str
    captured_at_ms: int | None
    names: pa.Array
    ids: tuple[str | None, ...]
    first: Int64s
    count: Int64s
    start: Int64s
    end: Int64s
    oldest_epoch: Int64s
    epoch: Int64s
    first_record_ms: Int64s
    offsets_topic: OffsetsTopic
    tells: frozenset[Need]

    def bounds(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Log start and end offset of one partition, ``UNKNOWN`` where not told; ``None`` for one that is not there."""
        at = self._by_name.get(topic)
        if at is None or not 0 <= partition < self.count[at]:
            return None
        place = self.first[at] + partition
        return int(self.start[place]), int(self.end[place])

    def begins_at_0(self, topic: str, partition: int) -> bool:
        """Whether the log of a partition is known to have all records from 0 on but for those that were cleaned."""
        bounds = self.bounds(topic, partition)
        return bounds is not None and bounds[0] == 0

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names.to_pylist())}

    @property
    def names_by_id(self) -> dict[str, str]:
        names = self.names.to_pylist()
        return {topic_id: name for topic_id, name in zip(self.ids, names, strict=True) if topic_id}

    def id_of(self, topic: str) -> str | None:
        """The topic's id, where it is there and its id is known."""
        at = self._by_name.get(topic)
        return None if at is None else self.ids[at]

    def lacks(self, topic: str) -> bool:
        """Whether topics of clients are listed, and this is none of them: it is gone, or may not be described."""
        return topic not in self._by_name and not self._by_name.keys() <= {OFFSETS_TOPIC}

    @cached_property
    def is_new(self) -> npt.NDArray[np.bool_]:
        """Partitions, as ``start`` and ``end``, that have no record so far, or have them since the last minutes before
        the capture: consumers may not know of them yet."""
        newest = UNKNOWN if self.captured_at_ms is None else self.captured_at_ms - _METADATA_MAX_AGE_MS
        found: npt.NDArray[np.bool_] = (self.end == 0) | ((newest >= 0) & (self.first_record_ms > newest))
        return found

    @cached_property
    def have_ids(self) -> bool:
        """Whether all topics of clients are listed with their ids."""
        return all(self.ids[at] for name, at in self._by_name.items() if name != OFFSETS_TOPIC)

    def locate(self, topic: Int64s, partition: Int64s) -> Int64s:
        """Position in ``start`` and ``end`` of partitions of topics by number; -1 where there is none."""
        position = np.full(len(topic), -1, np.int64)
        known = topic >= 0
        count = np.zeros(len(topic), np.int64)
        count[known] = self.count[topic[known]]
        there = known & (partition >= 0) & (partition < count)
        position[there] = self.first[topic[there]] + partition[there]
        return position


def lag_between(committed: Int64s, start: Int64s, end: Int64s) -> Int64s:
    """Records that a consumer has still to read: from the committed offset, or from the log start where that is
    beyond it, up to the log end. Never negative; ``UNKNOWN`` starts count as 0."""
    found: Int64s = np.maximum(end - np.maximum(committed, np.maximum(start, 0)), 0)
    return found


def configured_retention_ms(topics: Topics | None) -> int | None:
    """``offsets.retention.minutes`` of the brokers, where the topics are from a capture that has it."""
    found = None if topics is None else topics.offsets_topic.thresholds.get("offsets_retention_ms")
    return None if found is None else int(found)


def read_topics(path: str) -> Topics:
    """Read a ``topics.json``: the file that ``regroup capture`` writes, or a list of topics in snake_case.

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
    counts: list[int] = []
    partitions: list[Any] = []
    for entry in sorted(entries, key=lambda item: str(item["name"])):
        names.append(str(entry["name"]))
        ids.append(_text(_first(entry, "topic_id", "topicId")))
        info = _partitions(entry)
        by_number = {int(item["partition"]): item for item in info}
        if sorted(by_number) != list(range(len(info))):
            raise ValueError(f"the partitions of {names[-1]} are not 0 to n-1")
        counts.append(len(info))
        partitions += [by_number[number] for number in range(len(info))]
    if names == [OFFSETS_TOPIC]:
        raise UsageError(
            f"{path}: lists {OFFSETS_TOPIC} alone, so it does not tell which topics of the groups exist; give the "
            "topics.json of a capture, or leave the topics out"
        )
    if len(set(names)) != len(names):
        raise ValueError("a topic is listed twice")

    def column(*fields: str) -> Int64s:
        return np.array([_number(one, *fields) for one in partitions], np.int64)

    offsets_topic = _offsets_topic(document, entries)
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
        column("start_offset", "startOffset"),
        column("end_offset", "endOffset"),
        column("oldest_leader_epoch"),
        column("leader_epoch"),
        column("first_record_ms"),
        offsets_topic,
        _tells(offsets_topic, partitions),
    )


def _offsets_topic(document: Any, entries: Any) -> OffsetsTopic:
    found: Any = next((entry for entry in entries if entry["name"] == OFFSETS_TOPIC), {})
    infos = [partition_info(one) for one in found and _partitions(found) if "leader" in one and one.get("replicas")]
    config = {str(name): _text(str(value)) or "" for name, value in (found.get("config") or {}).items()}
    brokers = document.get("brokers", ())
    racks = {int(one["broker_id"]): _text(one.get("rack")) for one in brokers}
    for name, is_taken in _CHECKED.items():
        if name in config and not is_taken(config[name]):
            raise ValueError(f"{name} is {config[name]!r}")
    partitions = tuple(sorted(infos, key=lambda info: info.partition))
    return OffsetsTopic(config, partitions, racks, _thresholds([config, *(one.get("config") or {} for one in brokers)]))


def _thresholds(configs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {}
    for threshold, (setting, factor) in _THRESHOLDS.items():
        values = {int(config[setting]) for config in configs if setting in config}
        if len(values) == 1:
            found[threshold] = float(values.pop() * factor)
    return found


def _partitions(entry: Any) -> Any:
    return entry["partitionInfo"] if "partitionInfo" in entry else entry["partitions"]


def _tells(offsets_topic: OffsetsTopic, partitions: list[Any]) -> frozenset[Need]:
    has_epochs = any("first_record_ms" in one for one in partitions)
    answers = {
        Need.TOPICS: True,
        Need.EPOCHS: has_epochs,
        Need.REPLICAS: bool(offsets_topic.partitions),
        Need.CONFIG: bool(offsets_topic.config),
    }
    return frozenset(need for need, known in answers.items() if known)


def _text(value: Any) -> str | None:
    if not (value is None or (isinstance(value, str) and is_utf8(value))):
        raise TypeError(f"{value!r} is no text")
    return value


def _first(entry: Any, *names: str) -> Any:
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _number(entry: Any, *names: str) -> int:
    found = _first(entry, *names)
    return UNKNOWN if found is None or int(found) < 0 else int(found)
