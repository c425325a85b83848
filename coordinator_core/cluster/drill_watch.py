"""Leaders of the offsets partitions, and the committed offsets of all groups, looked at again and again.

The oracle of a drill: a committed offset never moves backwards, and never vanishes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from kafka.protocol.consumer import OffsetFetchRequest

from coordinator_core.cluster.client import Client, by_broker
from coordinator_core.cluster.drill_probes import Note
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.groups import GROUPS_PER_REQUEST, OFFSET_FETCH_VERSION, fetched_offsets
from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import PartitionInfo, TopicInfo

Committed = Mapping[str, Mapping[tuple[str, int], int]]
"""Committed offset by group, and by topic and partition."""


class Watch:
    """Looks every ``interval_seconds`` from :meth:`start` to :meth:`stop`; begins with what was ``before``.

    Notes ``leader`` when a partition has another leader, leader epoch or ISR, ``backwards`` when a committed
    offset is lower than it was (``after`` is ``None``: gone).
    """

    def __init__(
        self, client: Client, info: TopicInfo, before: Committed, note: Note, interval_seconds: float
    ) -> None:
        self._client = client
        self._note = note
        self._interval = interval_seconds
        self._offsets = {group_id: dict(slots) for group_id, slots in before.items()}
        self._version = client.max_version(OffsetFetchRequest(max_version=OFFSET_FETCH_VERSION))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self.partitions = {each.partition: each for each in info.partitions}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _go_on(self) -> None:
        while not self._stop.wait(self._interval):
            self.look()

    def look(self) -> set[str]:
        """One look at everything; the groups whose coordinator did not answer."""
        try:
            self._see_leaders(self._client.topic(OFFSETS_TOPIC).partitions)
        except ClusterError:
            return set(self._offsets)
        leaders = {each.partition: each.leader for each in self.partitions.values()}
        brokers = {
            group_id: leaders.get(partition_for(group_id, len(leaders)), -1) for group_id in self._offsets
        }
        left = {group_id for group_id, broker in brokers.items() if broker < 0}

        def one(broker: int, group_ids: list[str]) -> None:
            for first in range(0, len(group_ids), GROUPS_PER_REQUEST):
                part = group_ids[first : first + GROUPS_PER_REQUEST]
                try:
                    left.update(self._ask(broker, part))
                except ClusterError:
                    left.update(part)

        by_broker(brokers, one)
        return left

    def look_until_all_answer(self) -> None:
        """The last look, which leaves out no group. ``ClusterError`` when the client's patience is over."""
        self._client.until_settled(lambda: None if self.look() else True, "committed offsets of all groups")

    def _see_leaders(self, found: Iterable[PartitionInfo]) -> None:
        for each in found:
            if self.partitions.get(each.partition) != each:
                self.partitions[each.partition] = each
                note_partition(self._note, "leader", each)

    def _ask(self, broker: int, group_ids: list[str]) -> set[str]:
        left = set()
        asked: dict[str, list[tuple[str, int]]] = {group_id: [] for group_id in group_ids}
        for group_id, code, topics in fetched_offsets(self._client, broker, asked, True, self._version):
            if code:
                left.add(group_id)
                continue
            answers = [
                ((topic.name, answer.partition_index), answer)
                for topic in topics
                for answer in topic.partitions
            ]
            now = {slot: answer.committed_offset for slot, answer in answers if not answer.error_code}
            failed = {slot for slot, answer in answers if answer.error_code}
            self._compare(broker, group_id, now, failed)
        return left

    def _compare(
        self, broker: int, group_id: str, now: Mapping[tuple[str, int], int], failed: set[tuple[str, int]]
    ) -> None:
        before = self._offsets[group_id]
        for slot, offset in list(before.items()):
            found = now.get(slot, -1)
            if slot in failed or found >= offset:
                continue
            self._note(
                "backwards",
                group_id=group_id,
                topic=slot[0],
                partition=slot[1],
                before=offset,
                after=found if found >= 0 else None,
                coordinator=broker,
            )
            # Said once; later looks are compared with what was found.
            del before[slot]
        before.update({slot: offset for slot, offset in now.items() if offset >= 0})


def note_partition(note: Note, event: str, info: PartitionInfo, **more: object) -> None:
    """A partition as the cluster's metadata has it, as an event."""
    note(
        event,
        offsets_partition=info.partition,
        leader=None if info.leader < 0 else info.leader,
        leader_epoch=info.leader_epoch,
        replicas=list(info.replicas),
        isr=list(info.isr),
        **more,
    )
