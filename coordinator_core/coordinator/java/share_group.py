"""A share group (KIP-932) at request time: members, target assignment, subscriptions.

Sources: ``ShareGroup``, ``ShareGroupMember``, ``ModernGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from coordinator_core.coordinator.classic import Ageing
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.consumer_group import partitions_of
from coordinator_core.coordinator.java.modern_group import ModernGroup
from coordinator_core.coordinator.java.modern_records import of_group
from coordinator_core.coordinator.java.offsets import Validate
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import Partitions, TimelineHashMap
from coordinator_core.coordinator.requests import Committer
from coordinator_core.groups.model import Assignment, ShareGroup, ShareMember
from coordinator_core.groups.modern import ShareRecords

SHARE_PROTOCOL_TYPE = "share"


@dataclass(slots=True)
class LiveShareGroup(ShareGroup, ModernGroup[ShareMember]):
    """The replayed group with the questions of request handlers.

    Its maps iterate as Kafka's do. ``metadata_deadline_ms`` and ``_epoch`` are the refresh deadline of its topics'
    metadata, which no record holds.
    """

    protocol_type: ClassVar[str] = SHARE_PROTOCOL_TYPE

    members: dict[str, ShareMember] = field(default_factory=TimelineHashMap)
    target_assignment: dict[str, Assignment] = field(default_factory=TimelineHashMap)
    metadata_deadline_ms: int = 0
    metadata_deadline_epoch: int = 0

    def target(self, member_id: str) -> Partitions:
        return partitions_of(self.target_assignment.get(member_id, {}))

    def subscriptions(self, old: Iterable[ShareMember] = (), new: ShareMember | None = None) -> dict[str, int]:
        """Topics with the number of members that name them, once ``old`` members are replaced by ``new``."""
        gone = {member.member_id for member in old}
        members = [member for member in self.members.values() if member.member_id not in gone]
        counts: dict[str, int] = {}
        for member in [*members, *([new] if new is not None else [])]:
            for topic in member.subscribed_topics:
                counts[topic] = counts.get(topic, 0) + 1
        return counts

    # Group

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions()

    def ageing(self) -> Ageing | None:
        """Nothing of a share group expires (KAFKA-19016)."""
        return None

    def _refuse(self) -> NoReturn:
        raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def validate_offset_commit(self, who: Committer, version: int) -> Validate:
        self._refuse()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._refuse()

    def validate_offset_delete(self) -> None:
        self._refuse()

    def tombstones(self) -> list[Record]:
        """The end of the group, which has no members."""
        types = (ShareRecords.target_metadata, ShareRecords.state_metadata, ShareRecords.metadata)
        return [of_group(one, self.group_id) for one in types]
