"""The records that would make a replayed group, so that the coordinator model can load it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from coordinator_core.coordinator.java import consumer_records as records
from coordinator_core.coordinator.java import share_records, streams_records
from coordinator_core.coordinator.java.consumer_group import partitions_of
from coordinator_core.coordinator.java.streams_member import LiveStreamsMember
from coordinator_core.coordinator.log import OffsetsLog, Record
from coordinator_core.coordinator.protocol import from_json
from coordinator_core.coordinator.record_data import StreamsTopology
from coordinator_core.coordinator.records import group_metadata, offset_commit
from coordinator_core.groups.model import (
    ClassicGroup,
    CommittedOffset,
    ConsumerGroup,
    OffsetKey,
    PartitionState,
    ShareGroup,
    StreamsGroup,
    StreamsMember,
    Tasks,
)


def seed(log: OffsetsLog, state: PartitionState, group_id: str) -> None:
    """Append the records of a group in ``state``, its open transactions last."""
    partition = state.offsets_partition
    group = state.groups.get(group_id)
    if isinstance(group, ClassicGroup) and group.record_offset is not None:
        log.append(partition, [group_metadata(group)], group.state_timestamp_ms or 0)
    elif isinstance(group, ConsumerGroup):
        log.append(partition, list(_consumer(group)), 0)
    elif isinstance(group, ShareGroup):
        log.append(partition, list(_share(group)), 0)
    elif isinstance(group, StreamsGroup):
        log.append(partition, list(_streams(group)), 0)
    for offset_key, committed in state.offsets.items():
        if offset_key.group_id == group_id:
            log.append(partition, [_commit(offset_key, committed)], committed.commit_timestamp_ms)
    for producer_id, pending in state.pending.items():
        for offset_key, committed in pending.items():
            if offset_key.group_id == group_id:
                log.append(
                    partition,
                    [_commit(offset_key, committed)],
                    committed.commit_timestamp_ms,
                    producer_id=producer_id,
                    producer_epoch=committed.producer_epoch or 0,
                )


def _commit(offset_key: OffsetKey, committed: CommittedOffset) -> Record:
    return offset_commit(
        offset_key,
        offset=committed.committed_offset,
        leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp_ms=committed.commit_timestamp_ms,
        expire_timestamp_ms=committed.expire_timestamp_ms,
        version=3,
    )


def _consumer(group: ConsumerGroup) -> Iterator[Record]:
    """Records in an order that every loader takes: members before their target and current assignments."""
    group_id = group.group_id
    for member in group.members.values():
        yield records.member(group_id, member)
    for expression, regex in group.regexes.items():
        yield records.regex(group_id, expression, regex)
    yield records.epoch(group_id, group.group_epoch, group.metadata_hash)
    for member_id, target in group.target_assignment.items():
        yield records.target(group_id, member_id, partitions_of(target))
    yield records.target_metadata(group_id, group.assignment_epoch, group.assignment_timestamp_ms)
    # The former owner of a partition comes before the present one.
    for member in sorted(group.members.values(), key=lambda member: member.member_epoch):
        yield records.current(group_id, member)


def _share(group: ShareGroup) -> Iterator[Record]:
    group_id = group.group_id
    for member in group.members.values():
        yield share_records.member(group_id, member)
    yield share_records.epoch(group_id, group.group_epoch, group.metadata_hash)
    if group.topics:
        yield share_records.StateTopics.of(group.topics).record(group_id)
    for member_id, target in group.target_assignment.items():
        yield share_records.target(group_id, member_id, partitions_of(target))
    yield share_records.target_metadata(group_id, group.assignment_epoch, group.assignment_timestamp_ms)
    for member in group.members.values():
        yield share_records.current(group_id, member)


def _streams(group: StreamsGroup) -> Iterator[Record]:
    group_id = group.group_id
    for member in group.members.values():
        yield streams_records.member(group_id, member)
    validated, configs = group.validated_topology_epoch, group.last_assignment_configs
    yield streams_records.epoch(group_id, group.group_epoch, group.metadata_hash, validated, configs)
    if group.topology is not None:
        yield streams_records.topology(group_id, from_json(StreamsTopology, group.topology))
    for member_id, target in group.target_assignment.items():
        yield streams_records.target(group_id, member_id, target)
    yield streams_records.target_metadata(group_id, group.assignment_epoch, group.assignment_timestamp_ms)
    for member in group.members.values():
        yield streams_records.current(group_id, _live(member))


def _live(member: StreamsMember) -> LiveStreamsMember:
    """The member with tasks assigned in its epoch: a replayed one does not keep when they were."""

    def since(tasks: Tasks) -> Tasks:
        return {subtopology: (member.member_epoch,) * len(found) for subtopology, found in tasks.items()}

    known = {one.name: getattr(member, one.name) for one in fields(member)}
    revoking = since(member.pending_revocation.active)
    return LiveStreamsMember(**known, active_epochs=since(member.assigned.active), revoking_epochs=revoking)
