"""Leaders of the offsets partitions, and the committed offsets of all groups, looked at again and again.

The oracle of a drill: a committed offset never moves backwards, and never vanishes. An answer may, for a
while (:mod:`~coordinator_core.cluster.drill_probes`). A coordinator has heard of a high
watermark when that has moved since the coordinator answered. While it lags after an election ListOffsets answers
``OFFSET_NOT_AVAILABLE`` (``Partition.fetchOffsetForTimestamp``). An answer is not enough, for the coordinator may have
missed it; commits of the canary move it on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from kafka.protocol.consumer import OffsetFetchRequest

from coordinator_core.cluster.client import LATEST, Client, by_broker
from coordinator_core.cluster.drill_probes import Known, Note, OffsetKey
from coordinator_core.cluster.errors import ClusterError, LoginError
from coordinator_core.cluster.groups import GROUPS_PER_REQUEST, OFFSET_FETCH_VERSION, fetched_offsets
from coordinator_core.errors import RegroupError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import PartitionInfo, TopicInfo

Committed = Mapping[str, Mapping[OffsetKey, int]]
"""Committed offset by group, and by topic and partition."""

_Term = tuple[int, int, int]
"""Offsets partition, its leader, and the leader epoch."""


class Watch:
    """Looks every ``interval_seconds`` from :meth:`start` to :meth:`stop`; begins with the state ``before``.

    Notes ``leader`` when a partition has another leader, leader epoch or ISR, ``backwards`` when a committed
    offset is lower than it was (``after`` is ``None``: gone), ``behind`` when only answers were for a while.
    """

    def __init__(self, client: Client, info: TopicInfo, before: Committed, note: Note, interval_seconds: float) -> None:
        self._client = client
        self._note = note
        self._interval = interval_seconds
        self._groups = {group_id: Known(group_id, offset_keys, note) for group_id, offset_keys in before.items()}
        self._marks: dict[_Term, int | None] = {}
        """First high watermark after an answer that left a doubt; -1: it lagged, ``None``: to be asked."""
        self._version = client.max_version(OffsetFetchRequest(max_version=OFFSET_FETCH_VERSION))
        self._error: RegroupError | None = None
        self._stop = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self.partitions = {each.partition: each for each in info.partitions}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _go_on(self) -> None:
        try:
            while not self._stop.wait(self._interval):
                self.look()
        except RegroupError as error:
            self._error = error

    def check_going_on(self) -> None:
        """The error that has ended the looks: what they see cannot be noted, say."""
        if self._error is not None:
            raise self._error

    def look(self) -> set[str]:
        """Ask for everything once; returns the groups whose coordinator did not answer, or leaves a doubt."""
        with self._looking:
            try:
                self._see_leaders(self._client.topic(OFFSETS_TOPIC).partitions)
                heard = self._heard()
            except (ClusterError, LoginError):
                return set(self._groups)
            brokers = {group_id: self._term(group_id)[1] for group_id in self._groups}
            left = {group_id for group_id, broker in brokers.items() if broker < 0}

            def one(broker: int, group_ids: list[str]) -> None:
                for first in range(0, len(group_ids), GROUPS_PER_REQUEST):
                    part = group_ids[first : first + GROUPS_PER_REQUEST]
                    try:
                        left.update(self._ask(broker, part, heard))
                    except (ClusterError, LoginError):
                        left.update(part)

            by_broker(brokers, one)
            return left | {group_id for group_id, known in self._groups.items() if known.in_doubt}

    def look_until_all_answer(self, seconds: float | None = None) -> None:
        """The last look, which leaves out no group. ``ClusterError`` when it takes longer (``None``: than the client is
        patient, which in a drill is as long as a probe may take: a few looks at many groups take longer)."""
        what = "committed offsets of all groups"
        self._client.until_settled(lambda: None if self.look() else True, what, patience=seconds)

    def _term(self, group_id: str) -> _Term:
        info = self.partitions[partition_for(group_id, len(self.partitions))]
        return info.partition, info.leader, info.leader_epoch

    def _heard(self) -> set[_Term]:
        """Offsets partitions in doubt whose high watermark has moved since the coordinator answered."""
        doubted = {self._term(group_id) for group_id, known in self._groups.items() if known.in_doubt}
        doubted &= self._marks.keys()
        leaders = {(OFFSETS_TOPIC, number): leader for number, leader, _ in doubted}
        found = self._client.offsets(leaders, LATEST)
        heard = set()
        for term in doubted:
            mark, first = found.get((OFFSETS_TOPIC, term[0]), -1), self._marks[term]
            if first is None:
                self._marks[term] = mark
            elif mark > first:
                heard.add(term)
        return heard

    def _see_leaders(self, found: Iterable[PartitionInfo]) -> None:
        for each in found:
            known = self.partitions.get(each.partition)
            # A broker that has not heard of an election would lead us back to the old leader, which may still
            # answer and end a doubt about the new one.
            if known != each and (known is None or known.leader_epoch <= each.leader_epoch):
                self.partitions[each.partition] = each
                note_partition(self._note, "leader", each)

    def _ask(self, broker: int, group_ids: list[str], heard: set[_Term]) -> set[str]:
        left = set()
        asked: dict[str, list[OffsetKey]] = {group_id: [] for group_id in group_ids}
        for group_id, code, topics in fetched_offsets(self._client, broker, asked, True, self._version):
            if code:
                left.add(group_id)
                continue
            answers = [
                ((topic.name, answer.partition_index), answer) for topic in topics for answer in topic.partitions
            ]
            now = {offset_key: answer.committed_offset for offset_key, answer in answers if not answer.error_code}
            failed = {offset_key for offset_key, answer in answers if answer.error_code}
            known, term = self._groups[group_id], self._term(group_id)
            known.compare(broker, now, heard=term in heard, failed=failed)
            if known.in_doubt:
                self._marks.setdefault(term, None)
        return left


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
