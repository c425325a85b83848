"""Numbers of partitions of a topology's internal topics and of tasks of its subtopologies.

Sources: ``InternalTopicManager``, ``RepartitionTopics``, ``CopartitionedTopicsEnforcer``, ``ChangelogTopics``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.maps import JavaHashMap, java_set_order
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.record_data import StreamsTopology, Subtopology, TopicInfo
from coordinator_core.coordinator.replies import DescribedSubtopology, DescribedTopology, Status

STALE_TOPOLOGY, MISSING_SOURCE_TOPICS, INCORRECTLY_PARTITIONED_TOPICS, MISSING_INTERNAL_TOPICS = range(4)
SHUTDOWN_APPLICATION, ASSIGNMENT_DELAYED = 4, 5
_NAMED_TOPICS = 3
"""Most topics that a status names."""


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    tasks: int
    source_topics: frozenset[str]
    repartition_sink_topics: frozenset[str]
    repartition_source_topics: tuple[TopicInfo, ...]
    changelog_topics: tuple[TopicInfo, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelog_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology with the numbers that follow from the cluster's topics.

    ``subtopologies`` by id, sorted; ``None`` when the topics do not fit, which ``problem`` says. ``missing``: internal
    topics to be created, with their numbers of partitions.
    """

    epoch: int
    subtopologies: dict[str, ConfiguredSubtopology] | None
    missing: dict[str, int] = field(default_factory=dict)
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


def by_id(topology: StreamsTopology) -> dict[str, Subtopology]:
    """Subtopologies as Kafka's map has them. Raises UNKNOWN_SERVER_ERROR, as Kafka does, for two of one id."""
    found: JavaHashMap[str, Subtopology] = JavaHashMap((one.subtopology_id, one) for one in topology.subtopologies)
    if topology.epoch < 0 or len(found) < len(topology.subtopologies):
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
    return found


def same_topology(one: StreamsTopology, other: StreamsTopology) -> bool:
    return one.epoch == other.epoch and dict(by_id(one)) == dict(by_id(other))


def inputs(subtopology: Subtopology) -> list[str]:
    """Topics that a subtopology reads."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def source_subtopologies(topology: StreamsTopology) -> dict[str, str]:
    """Topics that the application reads, with the id of the subtopology that reads each."""
    return {topic: one.subtopology_id for one in topology.subtopologies for topic in inputs(one)}


def required_topics(topology: StreamsTopology) -> list[str]:
    """Topics that have to exist, in the order of Kafka's set."""
    names = (
        name
        for one in by_id(topology).values()
        for name in (*inputs(one), *(topic.name for topic in one.state_changelog_topics))
    )
    return java_set_order(names)


class _MisfitError(Exception):
    """The topics of the cluster do not fit the topology (``TopicConfigurationException``)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = Status(status, text)


def configure(topology: StreamsTopology, image: MetadataImage) -> ConfiguredTopology:
    """``InternalTopicManager.configureTopics``.

    Raises :class:`ApiError`: STREAMS_INVALID_TOPOLOGY when numbers of partitions do not follow from the topology,
    UNKNOWN_SERVER_ERROR where Kafka breaks off.
    """
    subtopologies = by_id(topology)
    try:
        absent = {name for one in subtopologies.values() for name in one.source_topics if image.topic(name) is None}
        if absent:
            raise _MisfitError(MISSING_SOURCE_TOPICS, f"Source topics {_summary(sorted(absent))} are missing.")
        counts = _Counts(subtopologies, image)
        configured = {
            name: ConfiguredSubtopology(
                tasks=max((counts.of(topic) for topic in inputs(one)), default=0),
                source_topics=frozenset(one.source_topics),
                repartition_sink_topics=frozenset(one.repartition_sink_topics),
                repartition_source_topics=counts.sized(one.repartition_source_topics),
                changelog_topics=counts.sized(one.state_changelog_topics),
            )
            for name, one in sorted(subtopologies.items())
        }
        missing = _missing(configured, required_topics(topology), image)
    except _MisfitError as misfit:
        return ConfiguredTopology(topology.epoch, None, {}, misfit.status)
    problem = None
    if missing:
        problem = Status(MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_summary(list(missing))}")
    return ConfiguredTopology(topology.epoch, configured, dict(missing), problem)


def _missing(
    configured: Mapping[str, ConfiguredSubtopology], required: Iterable[str], image: MetadataImage
) -> dict[str, int]:
    missing: JavaHashMap[str, int] = JavaHashMap()
    for one in configured.values():
        for topic in (*one.repartition_source_topics, *one.changelog_topics):
            missing[topic.name] = topic.partitions
    for name in required:
        found = image.topic(name)
        expected = missing.pop(name, None) if found is not None else None
        if found is not None and expected not in (None, found.partitions):
            raise _MisfitError(
                INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {expected}, found {found.partitions}",
            )
    return missing


def _summary(names: list[str]) -> str:
    more = len(names) - _NAMED_TOPICS
    return ", ".join(names[:_NAMED_TOPICS]) + (f" and {more} additional topics" if more > 0 else "")


class _Counts:
    """Numbers of partitions: of topics that exist, then those that were decided."""

    def __init__(self, subtopologies: Mapping[str, Subtopology], image: MetadataImage) -> None:
        self._subtopologies = list(subtopologies.values())
        self._image = image
        self._decided: dict[str, int] = {}
        self._decided.update(self._repartition_topics())
        self._copartition()
        self._decided.update(self._changelogs())

    def known(self, name: str) -> int | None:
        found = self._image.topic(name)
        return self._decided.get(name) if found is None else found.partitions

    def of(self, name: str) -> int:
        count = self.known(name)
        if count is None:
            raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
        return count

    def sized(self, topics: Iterable[TopicInfo]) -> tuple[TopicInfo, ...]:
        """Internal topics with their numbers of partitions, by name."""
        return tuple(
            topic._replace(partitions=topic.partitions or self._decided[topic.name])
            for topic in sorted(topics, key=lambda topic: topic.name)
        )

    def _repartition_topics(self) -> dict[str, int]:
        """Partitions of a topic: those of the largest topic that is read where it is written."""
        sources = [topic for one in self._subtopologies for topic in one.repartition_source_topics]
        found = {topic.name: topic.partitions for topic in sources if topic.partitions}
        while True:
            progress = waiting = False
            for one in self._subtopologies:
                for sink in one.repartition_sink_topics:
                    if sink in found:
                        continue
                    counts = [found.get(topic.name) for topic in one.repartition_source_topics]
                    known = [count for count in (*counts, *map(self.known, one.source_topics)) if count is not None]
                    if known:
                        found[sink] = max(known)
                        progress = True
                    else:
                        waiting = True
            if not waiting:
                break
            if not progress:
                raise ApiError(
                    Errors.STREAMS_INVALID_TOPOLOGY,
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved.",
                )
        if any(topic.name not in found for topic in sources):
            raise ApiError(
                Errors.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics, because a repartition source "
                "topic is never used as a sink topic.",
            )
        return found

    def _copartition(self) -> None:
        sources = [topic for one in self._subtopologies for topic in one.repartition_source_topics]
        fixed = {topic.name for topic in sources if topic.partitions}
        flexible = {topic.name for topic in sources if not topic.partitions}
        for one in self._subtopologies:
            for group in one.copartition_groups:
                try:
                    topics = {one.source_topics[at] for at in group.source_topics}
                    topics |= {one.repartition_source_topics[at].name for at in group.repartition_source_topics}
                except IndexError:
                    raise ApiError(Errors.UNKNOWN_SERVER_ERROR) from None
                if topics:
                    self._decided.update(self._enforced(topics, fixed, flexible))

    def _enforced(self, topics: Collection[str], fixed: set[str], flexible: set[str]) -> dict[str, int]:
        """Repartition topics of one copartition group, with the number of partitions that they share."""
        internal = {name: self.of(name) for name in topics if name in fixed or name in flexible}
        external = {name: self.of(name) for name in topics if name not in internal}
        if external:
            count = _same(external, external, self.of)
        elif fixed:
            count = _same(internal, fixed, self.of)
        else:
            count = max(internal.values())
        for name, own in internal.items():
            if name in fixed and own != count:
                raise _MisfitError(
                    INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions "
                    f"[{count}] of the source topic.",
                )
        return dict.fromkeys(internal, count)

    def _changelogs(self) -> dict[str, int]:
        """Partitions of a changelog topic: the tasks of the subtopology."""
        found = {}
        for one in self._subtopologies:
            counts = [self.of(name) for name in inputs(one)]
            if not counts:
                text = f"No source topics found for subtopology {one.subtopology_id}"
                raise ApiError(Errors.STREAMS_INVALID_TOPOLOGY, text)
            found.update({topic.name: max(counts) for topic in one.state_changelog_topics})
        return found


def _same(shown: Mapping[str, int], names: Collection[str], count: Callable[[str], int]) -> int:
    counts = {count(name) for name in names}
    if len(counts) > 1:
        text = ", ".join(f"{name}={number}" for name, number in sorted(shown.items()))
        raise _MisfitError(
            INCORRECTLY_PARTITIONED_TOPICS, f"Following topics do not have the same number of partitions: [{{{text}}}]"
        )
    return counts.pop()


# Describe


def described(topology: StreamsTopology, configured: ConfiguredTopology | None) -> DescribedTopology:
    """The topology with the numbers of partitions, once it is configured and ready; else as it was sent."""
    ready = configured.subtopologies if configured is not None and configured.is_ready else None
    return DescribedTopology(
        topology.epoch,
        tuple(
            DescribedSubtopology(
                name,
                tuple(sorted(one.source_topics if ready is None else ready[name].source_topics)),
                tuple(sorted(one.repartition_sink_topics if ready is None else ready[name].repartition_sink_topics)),
                _by_name(one.state_changelog_topics if ready is None else ready[name].changelog_topics),
                _by_name(one.repartition_source_topics if ready is None else ready[name].repartition_source_topics),
            )
            for name, one in sorted(by_id(topology).items())
        ),
    )


def _by_name(topics: Iterable[TopicInfo]) -> tuple[TopicInfo, ...]:
    return tuple(sorted(topics, key=lambda topic: topic.name))
