"""Topics as brokers know them: names, ids, partition counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordinator_core.coordinator.maps import TopicId, java_set_order

MOST_PARTITIONS = 100_000
"""Partitions that all topics of a simulated cluster have at most, and its offsets topic."""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: TopicId
    partitions: int


class MetadataImage:
    """The topics of a cluster, by name and by id."""

    def __init__(self, topics: Mapping[str, tuple[str, int]]) -> None:
        """``topics`` maps names to topic id (22-character text) and number of partitions."""
        self._by_name = {name: Topic(name, TopicId(topic_id), count) for name, (topic_id, count) in topics.items()}

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._by_name.values())

    def topic(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: str) -> Topic | None:
        return next((topic for topic in self._by_name.values() if topic.topic_id == topic_id), None)

    def topic_ids(self, names: Iterable[str]) -> tuple[TopicId, ...]:
        """Ids of those of these topics that exist, in the order of Kafka's set of their names."""
        found = map(self.topic, java_set_order(sorted(names)))
        return tuple(topic.topic_id for topic in found if topic is not None)

    def has_partition(self, name: str, partition: int) -> bool:
        topic = self._by_name.get(name)
        return topic is not None and 0 <= partition < topic.partitions

    def having(self, topics: Mapping[str, tuple[str, int]]) -> MetadataImage:
        """The image after these topics were created, as in the constructor; ``ValueError`` when they are too large."""
        count = sum(topic.partitions for topic in self) + sum(count for _, count in topics.values())
        if count > MOST_PARTITIONS:
            raise ValueError(f"topics of {count} partitions, at most {MOST_PARTITIONS} are simulated")
        return MetadataImage({topic.name: (topic.topic_id, topic.partitions) for topic in self} | dict(topics))

    def without(self, name: str) -> MetadataImage:
        """The image after a topic was deleted."""
        return MetadataImage({topic.name: (topic.topic_id, topic.partitions) for topic in self if topic.name != name})
