"""A cluster of one broker in this process: its answers are Kafka's, but for those that a test makes itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace as Answer
from typing import Any

from coordinator_core.cluster.client import EARLIEST, LATEST, Client
from coordinator_core.cluster.settings import client_settings
from coordinator_core.log.types import OFFSETS_TOPIC

BROKER = 1
Offsets = dict[tuple[str, int], tuple[int, int, str]]


class OneProcess(Client):
    """``groups`` has what they have committed; ``topics`` ids, and start, end and leader epoch of partitions.

    ``answer(name of the request, request)`` is asked first: ``None`` leaves it to the broker.
    """

    def __init__(
        self, groups: dict[str, Offsets], topics: dict[str, tuple[int, dict[int, tuple[int, int, int]]]]
    ) -> None:
        self.settings = client_settings("broker:9092", {})
        self.patience_seconds = 5.0
        self.groups, self.logs = groups, topics
        self.answer: Callable[[str, Any], Any] = lambda _name, _request: None
        self._answers: dict[str, Callable[[Any], Any]] = {
            "Metadata": self._metadata,
            "ListOffsets": self.list_offsets,
            "DescribeConfigs": self._describe_configs,
            "ListGroups": self._list_groups,
            "DescribeGroups": self._describe_groups,
            "FindCoordinator": self._find_coordinator,
            "OffsetFetch": self.offset_fetch,
            "OffsetCommit": self._offset_commit,
            "OffsetDelete": self._offset_delete,
            "DeleteGroups": self._delete_groups,
        }

    @property
    def cluster_id(self) -> str:
        return "cluster"

    def close(self) -> None:
        """Nothing is open."""

    def max_version(self, request: Any) -> int:
        return 9

    def knows(self, request: Any) -> bool:
        return request.__name__.removesuffix("Request") in self._answers

    def forget(self, name: str) -> None:
        """Have no such request any more, as older brokers."""
        del self._answers[name]

    def ask(self, make: Callable[[], Any], node_id: int | None = None, *, patience: float | None = None) -> Any:
        request = make()
        name = type(request).__name__.removesuffix("Request")
        found = self.answer(name, request)
        return self._answers[name](request) if found is None else found

    def _metadata(self, request: Any) -> Any:
        logs = {OFFSETS_TOPIC: (99, {0: (0, 0, 0)}), **self.logs}
        wanted = logs if request.topics is None else [one.name for one in request.topics]
        return Answer(
            brokers=[Answer(node_id=BROKER, host="broker", port=9092, rack=None)],
            controller_id=BROKER,
            topics=[_topic(name, *logs.get(name, (0, {}))) for name in wanted],
        )

    def list_offsets(self, request: Any) -> Any:
        def one(topic: str, asked: Any) -> Any:
            start, end, epoch = self.logs[topic][1][asked.partition_index]
            offset = {EARLIEST: start, LATEST: end}.get(asked.timestamp, (start + end) // 2)
            return Answer(
                partition_index=asked.partition_index, error_code=0, offset=offset, timestamp=-1, leader_epoch=epoch
            )

        return _by_topic(request.topics, one)

    def _describe_configs(self, _: Any) -> Any:
        return Answer(results=[])

    def _list_groups(self, _: Any) -> Any:
        kinds = {"group_type": "classic", "protocol_type": "", "group_state": "Empty"}
        return Answer(error_code=0, groups=[Answer(group_id=group_id, **kinds) for group_id in self.groups])

    def _describe_groups(self, request: Any) -> Any:
        def one(group_id: str) -> Any:
            state = "Empty" if group_id in self.groups else "Dead"
            return Answer(group_id=group_id, error_code=0, group_state=state, protocol_type="", members=[])

        return Answer(groups=[one(group_id) for group_id in request.groups])

    def _find_coordinator(self, request: Any) -> Any:
        return Answer(coordinators=[Answer(key=key, error_code=0, node_id=BROKER) for key in request.coordinator_keys])

    def offset_fetch(self, request: Any) -> Any:
        return Answer(groups=[self._offsets_of(group) for group in request.groups])

    def _offsets_of(self, asked: Any) -> Any:
        held = self.groups.get(asked.group_id, {})
        keys = held.keys() if asked.topics is None else _keys(asked.topics, "partition_indexes")
        return Answer(group_id=asked.group_id, error_code=0, topics=[fetched(key, held.get(key)) for key in keys])

    def _offset_commit(self, request: Any) -> Any:
        held = self.groups.setdefault(request.group_id, {})

        def one(topic: str, asked: Any) -> Any:
            value = asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata
            held[topic, asked.partition_index] = value
            return Answer(partition_index=asked.partition_index, error_code=0)

        return _by_topic(request.topics, one)

    def _offset_delete(self, request: Any) -> Any:
        def one(topic: str, asked: Any) -> Any:
            del self.groups[request.group_id][topic, asked.partition_index]
            return Answer(partition_index=asked.partition_index, error_code=0)

        return Answer(error_code=0, **vars(_by_topic(request.topics, one)))

    def _delete_groups(self, request: Any) -> Any:
        for group_id in request.groups_names:
            del self.groups[group_id]
        return Answer(results=[Answer(group_id=group_id, error_code=0) for group_id in request.groups_names])


def fetched(key: tuple[str, int], value: tuple[int, int, str] | None, code: int = 0) -> Any:
    """The topic in an answer of OffsetFetch."""
    offset, epoch, metadata = value or (-1, -1, "")
    one = {"partition_index": key[1], "committed_offset": offset, "committed_leader_epoch": epoch}
    return Answer(name=key[0], partitions=[Answer(**one, metadata=metadata, error_code=code)])


def _topic(name: str, topic_id: int, logs: Mapping[int, tuple[int, int, int]]) -> Any:
    places = {"leader_id": BROKER, "replica_nodes": [BROKER], "isr_nodes": [BROKER], "offline_replicas": []}
    partitions = [Answer(partition_index=number, leader_epoch=epoch, **places) for number, (*_, epoch) in logs.items()]
    return Answer(name=name, topic_id=uuid.UUID(int=topic_id), error_code=0 if logs else 3, partitions=partitions)


def _by_topic(topics: Iterable[Any], one: Callable[[str, Any], Any]) -> Any:
    return Answer(
        topics=[
            Answer(name=topic.name, partitions=[one(topic.name, each) for each in topic.partitions]) for topic in topics
        ]
    )


def _keys(topics: Iterable[Any], field: str) -> list[tuple[str, int]]:
    return [(topic.name, number) for topic in topics for number in getattr(topic, field)]
