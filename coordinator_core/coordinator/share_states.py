"""State of share-partitions, as share coordinators keep it in ``__share_group_state``.

As much of it as group coordinators ask for (``Persister``): start offsets. The topics of a simulated cluster are
empty, so that a start offset alone says the lag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SHARE_STATE_TOPIC = "__share_group_state"
NO_OFFSET = -1
"""Start offset of a share-partition from which nobody has fetched (``PartitionFactory.UNINITIALIZED_START_OFFSET``)."""


class ShareStates:
    """Start offsets by group, topic id and partition; they outlive brokers."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, str, int], int] = {}

    def initialize(self, group_id: str, topic_id: str, start_offsets: Mapping[int, int]) -> None:
        """Give share-partitions new state (``initializeState``)."""
        for partition, offset in start_offsets.items():
            self._offsets[group_id, topic_id, partition] = offset

    def delete(self, group_id: str, topic_ids: Iterable[str]) -> None:
        """Forget the state of topics (``deleteState``)."""
        gone = set(topic_ids)
        for key in [key for key in self._offsets if key[0] == group_id and key[1] in gone]:
            del self._offsets[key]

    def start_offset(self, group_id: str, topic_id: str, partition: int) -> int:
        """The start offset (``readSummary``); ``NO_OFFSET`` where there is no state."""
        return self._offsets.get((group_id, topic_id, partition), NO_OFFSET)
