"""Group epochs, regular expressions and target assignments of consumer groups.

Source: ``GroupMetadataManager`` (``updateSubscriptionMetadata``, ``maybeUpdateRegularExpressions``,
``maybeUpdateTargetAssignment``, ``maybeReconcile``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import consumer_records as records
from coordinator_core.coordinator.java.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from coordinator_core.coordinator.java.consumer_group import LiveConsumerGroup
from coordinator_core.coordinator.java.group_spec import GroupSpec, Spec
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager
from coordinator_core.coordinator.java.modern_group import NEVER_MS
from coordinator_core.coordinator.java.modern_records import of_group
from coordinator_core.coordinator.java.reconciliation import reconcile
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap, Partitions, TopicId
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.requests import Owned
from coordinator_core.groups.model import ConsumerMember, MemberState, ResolvedRegex
from coordinator_core.groups.modern import ConsumerRecords

REGEX_REFRESH_MIN_INTERVAL_MS = 10_000
REGEX_RESOLUTION_MS = 2
"""Time that the coordinator's background thread takes in this model: the heartbeat is answered before."""


class Assignments:
    """The steps of a heartbeat. Each method appends to the records of the heartbeat."""

    def __init__(self, manager: JavaGroupMetadataManager, metadata: Callable[[], MetadataImage]) -> None:
        self._manager = manager
        self._metadata = metadata
        self._resolving: set[str] = set()

    @property
    def _now_ms(self) -> int:
        return self._manager.clock.now_ms

    # Group epoch

    def metadata_hash(self, topics: Iterable[str]) -> int:
        """Changes with the topics, their ids and partition counts; 0 for none of them.

        Kafka's own is an XXH3 of the same; nothing but this coordinator compares it.
        """
        image = self._metadata()
        known = [topic for topic in map(image.topic, sorted(set(topics))) if topic is not None]
        if not known:
            return 0
        text = "\0".join(f"{topic.topic_id} {topic.name} {topic.partitions}" for topic in known)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True) or 1

    def bump_epoch(
        self, group: LiveConsumerGroup, bump: bool, member: ConsumerMember, updated: ConsumerMember, out: list[Record]
    ) -> int:
        """The group's epoch: the next one with ``bump`` or after a change of its topics, else the current one."""
        metadata_hash = self.metadata_hash(group.subscriptions([member], updated))
        epoch = group.group_epoch
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            out.append(records.epoch(group.group_id, epoch, metadata_hash))
        group.metadata_deadline_ms, group.metadata_deadline_epoch = NEVER_MS, epoch
        if group.has_partition_metadata_record:
            out.append(of_group(ConsumerRecords.partition_metadata, group.group_id))
        return epoch

    # Regular expressions

    def update_regexes(
        self, group: LiveConsumerGroup, member: ConsumerMember, updated: ConsumerMember, out: list[Record]
    ) -> tuple[bool, bool]:
        """Whether the member's regex changed, and whether its topics are known already."""
        old, new = member.subscribed_regex, updated.subscribed_regex
        changed, resolved, refresh = old != new, False, False
        counts = group.regex_counts()
        if changed:
            if old and counts.get(old) == 1:
                out.append(records.regex_tombstone(group.group_id, old))
            if new:
                if not counts.get(new):
                    _compiled(new)
                    refresh = True
                else:
                    resolved = new in group.regexes
            elif old:
                resolved = True
        if not refresh and not counts:
            return changed, resolved
        last_ms = next((one.timestamp_ms for one in group.regexes.values()), -NEVER_MS)
        if group.group_id in self._resolving or self._now_ms <= last_ms + REGEX_REFRESH_MIN_INTERVAL_MS:
            return changed, resolved
        wanted = group.regex_counts(member, updated)
        interval_ms = self._manager.settings.group_consumer_regex_refresh_interval_ms
        refresh = refresh or len(wanted) != len(group.regexes) or self._now_ms > last_ms + interval_ms
        if refresh and wanted:
            self._resolve_later(group.group_id, list(wanted))
        return changed, resolved

    def _resolve_later(self, group_id: str, regexes: list[str]) -> None:
        self._resolving.add(group_id)
        resolved_ms = self._now_ms
        names = [topic.name for topic in self._metadata()]
        found = {
            regex: ResolvedRegex(
                tuple(sorted(name for name in names if _compiled(regex).fullmatch(name))), 1, resolved_ms, -1
            )
            for regex in regexes
        }
        self._manager.clock.at(self._now_ms + REGEX_RESOLUTION_MS, lambda: self._resolved(group_id, found))

    def _resolved(self, group_id: str, found: dict[str, ResolvedRegex]) -> None:
        self._resolving.discard(group_id)
        group = self._manager.groups.get(group_id)
        if not isinstance(group, LiveConsumerGroup):
            return
        counts = group.regex_counts()
        out: list[Record] = []
        bump = False
        topics = {topic for member in group.members.values() for topic in member.subscribed_topics}
        for regex, resolved in JavaHashMap(found).items():
            if not counts.get(regex):
                continue
            old = group.regexes.get(regex)
            bump = bump or (old.topics if old else ()) != resolved.topics
            out.append(records.regex(group_id, regex, resolved))
        for regex in counts:
            known = found.get(regex) or group.regexes.get(regex)
            topics.update(known.topics if known else ())
        metadata_hash = self.metadata_hash(topics)
        if bump or metadata_hash != group.metadata_hash:
            out.append(records.epoch(group_id, group.group_epoch + 1, metadata_hash))
            group.metadata_deadline_ms, group.metadata_deadline_epoch = NEVER_MS, group.group_epoch + 1
        try:
            self._manager.write_group(group_id, out)
        except ApiError:
            # The next heartbeat schedules it again.
            return

    # Target assignment

    def update_target(
        self,
        group: LiveConsumerGroup,
        group_epoch: int,
        member: ConsumerMember,
        updated: ConsumerMember,
        out: list[Record],
        *,
        counts_anew: bool,
    ) -> tuple[int, Partitions]:
        """Epoch of the target assignment and the member's part of it, computed anew where that is due.

        ``counts_anew``: the member's change made the group look at its subscriptions again. Else the assignor is told
        whether all had the same ones before it.
        """
        interval_ms = self._manager.settings.group_consumer_assignment_interval_ms
        if group.assignment_epoch >= group_epoch or not group.may_assign(interval_ms, self._now_ms):
            return group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id)
        name = group.next_assignor(member, updated) or DEFAULT_ASSIGNOR
        instance_id = updated.instance_id
        previous_id = None if instance_id is None else group.static_members.get(instance_id)
        replaced = previous_id if previous_id not in (None, updated.member_id) else None
        specs: dict[str, Spec] = JavaHashMap()
        for member_id, one in group.members.items():
            specs[member_id] = self._spec(group, one, group.target(member_id))
        if replaced is not None:
            specs.pop(replaced, None)
        specs[updated.member_id] = self._spec(group, updated, group.target(replaced or updated.member_id))
        if counts_anew:
            regexes, topics = group.regex_counts(member, updated), group.subscriptions([member], updated)
            members = len({*group.members, updated.member_id} - {replaced})
        else:
            regexes, topics, members = group.regex_counts(), group.subscriptions(), len(group.members)
        assignment = ASSIGNORS[name](
            GroupSpec(
                members=specs,
                partitions={topic.topic_id: topic.partitions for topic in self._metadata()},
                homogeneous=_homogeneous(regexes, topics, members),
                is_assigned=_is_assigned(group),
            )
        )
        for member_id in specs:
            new = assignment.get(member_id, {})
            if member_id not in group.target_assignment or new != group.target(member_id):
                out.append(records.target(group.group_id, member_id, new))
        out.append(records.target_metadata(group.group_id, group_epoch, self._now_ms))
        return group_epoch, assignment.get(updated.member_id, {})

    def _spec(self, group: LiveConsumerGroup, member: ConsumerMember, target: Partitions) -> Spec:
        return Spec(self.topic_ids(group, member), member.instance_id, target)

    def topic_ids(self, group: LiveConsumerGroup, member: ConsumerMember) -> tuple[TopicId, ...]:
        """Ids of the existing topics that a member subscribes to, by name or regex."""
        topics = set(member.subscribed_topics)
        resolved = group.regexes.get(member.subscribed_regex or "")
        if resolved is not None:
            topics.update(resolved.topics)
        return self._metadata().topic_ids(topics)

    # Reconciliation

    def reconcile(
        self,
        group: LiveConsumerGroup,
        member: ConsumerMember,
        target_epoch: int,
        target: Partitions,
        *,
        subscription_changed: bool,
        owned: Owned,
        out: list[Record],
        on_rebalance_timeout: Callable[[ConsumerMember], None],
    ) -> ConsumerMember:
        """``maybeReconcile``. A member with partitions to revoke has its rebalance timeout to do so."""
        if not subscription_changed and member.is_reconciled_to(target_epoch):
            return member
        updated = reconcile(
            member,
            target_epoch,
            target,
            is_owned=lambda topic_id, partition: (topic_id, partition) in group.partition_epochs,
            subscribed_topic_ids=set(self.topic_ids(group, member)),
            subscription_changed=subscription_changed,
            owned=owned,
        )
        if updated != member:
            out.append(records.current(group.group_id, updated))
            if not updated.speaks_classic:
                if updated.state is MemberState.UNREVOKED_PARTITIONS:
                    on_rebalance_timeout(updated)
                else:
                    self._manager.timers.cancel(("rebalance", group.group_id, updated.member_id))
        return updated


def _compiled(regex: str) -> re.Pattern[str]:
    """Kafka has RE2's syntax; syntax that RE2 refuses and this takes (backreferences, lookaround) is refused too."""
    try:
        if re.search(r"\(\?(?:=|!|<=|<!|P=|>)|\\[1-9]", regex):
            raise ApiError(Errors.INVALID_REGULAR_EXPRESSION)
        return re.compile(regex)
    except re.error as error:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error.msg}."
        raise ApiError(Errors.INVALID_REGULAR_EXPRESSION, text) from None


def _homogeneous(regexes: dict[str, int], topics: dict[str, tuple[int, int]], members: int) -> bool:
    """Whether all members subscribe to the same topics (``ConsumerGroup.subscriptionType``)."""
    if not regexes:
        return all(by_name == members for by_name, _ in topics.values())
    if next(iter(regexes.values())) != members:
        return False
    return all(by_regex == 1 and by_name == 0 for by_name, by_regex in topics.values())


def _is_assigned(group: LiveConsumerGroup) -> Callable[[TopicId, int], bool]:
    assigned: set[tuple[str, int]] = {
        (topic_id, partition)
        for target in group.target_assignment.values()
        for topic_id, partitions in target.items()
        for partition in partitions
    }
    return lambda topic_id, partition: (topic_id, partition) in assigned
