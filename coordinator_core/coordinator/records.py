"""The records that coordinators append for offsets and classic groups.

Source: ``GroupMetadataManager`` (Scala), ``GroupCoordinatorRecordHelpers`` (Java).
"""

from __future__ import annotations

from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.record_data import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from coordinator_core.coordinator.requests import CommitPartition
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.groups.loaders import LoadedRecord
from coordinator_core.groups.model import ClassicGroup, OffsetKey
from coordinator_core.groups.offsets import metadata_length
from coordinator_core.records.types import ZERO_UUID

OFFSET_COMMIT = 1
GROUP_METADATA = 2
NO_TIMESTAMP = -1
GROUP_METADATA_VERSION = 3


def requested_commit(
    offset_key: OffsetKey,
    partition: CommitPartition,
    *,
    now_ms: int,
    expire_timestamp_ms: int | None,
    version: int,
    topic_id: str = ZERO_UUID,
) -> Record:
    """The record of a partition of an OffsetCommit or TxnOffsetCommit; see :func:`offset_commit`."""
    timestamp_ms = partition.commit_timestamp
    return offset_commit(
        offset_key,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms if timestamp_ms == NO_TIMESTAMP else timestamp_ms,
        expire_timestamp_ms=expire_timestamp_ms,
        version=version,
        topic_id=topic_id,
    )


def metadata_fits(partition: CommitPartition, settings: BrokerSettings) -> bool:
    """Whether the metadata of a commit is within ``offset.metadata.max.bytes``."""
    return metadata_length(partition.committed_metadata or "") <= settings.offset_metadata_max_bytes


def offset_commit(
    offset_key: OffsetKey,
    *,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int | None,
    version: int,
    topic_id: str = ZERO_UUID,
) -> Record:
    """``version`` is that of a commit without an expiry of its own; one with it is always version 1."""
    expires = expire_timestamp_ms is not None
    value = OffsetCommitValue(
        offset,
        metadata,
        commit_timestamp_ms,
        leader_epoch=None if expires else leader_epoch,
        expire_timestamp=expire_timestamp_ms,
        topic_id=topic_id if version >= 4 and not expires else None,
    )
    return Record(OFFSET_COMMIT, OffsetCommitKey(*offset_key), 1 if expires else version, value)


def offset_tombstone(offset_key: OffsetKey) -> Record:
    return Record(OFFSET_COMMIT, OffsetCommitKey(*offset_key))


def offset_key_of(record: LoadedRecord) -> OffsetKey:
    """Offset key of a record of type 0 or 1."""
    return OffsetKey(record.key["group"], record.key["topic"], record.key["partition"])


def group_metadata(group: ClassicGroup) -> Record:
    """The record of a group, which ``groups.classic`` reads back."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=tuple(
            GroupMetadataMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in group.members
        ),
    )
    return Record(GROUP_METADATA, GroupMetadataKey(group.group_id), GROUP_METADATA_VERSION, value)


def group_tombstone(group_id: str) -> Record:
    return Record(GROUP_METADATA, GroupMetadataKey(group_id))
