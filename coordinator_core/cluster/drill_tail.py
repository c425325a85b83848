"""Records that the offsets logs gained and lost during a drill, read from their leaders: the proof of rebalances.

Brokers send a classic group's generation to its members only; but each one reached is in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coordinator_core.cluster.check import captured_log
from coordinator_core.cluster.client import LATEST, Client
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.fetch import Fetcher, Fetching, RateLimiter
from coordinator_core.cluster.files import PartitionFiles
from coordinator_core.log.reader import read_records
from coordinator_core.log.segments import partition_directory_name
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.records.codec import RecordDecodeError, decode_key, decode_value
from coordinator_core.topology import TopicInfo

_GROUP_METADATA = {
    "GroupMetadata": ("classic", "group", "generation"),
    "ConsumerGroupMetadata": ("consumer", "groupId", "epoch"),
    "ShareGroupMetadata": ("share", "groupId", "epoch"),
    "StreamsGroupMetadata": ("streams", "groupId", "epoch"),
}
"""By record type: type of the group, field of the key with its id, field of the value that a rebalance counts
up."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Position of an offsets partition: leader, leader epoch and high watermark."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Generation:
    """A record that says which generation (or group epoch) a group reached; ``None``: its tombstone."""

    offsets_partition: int
    record_offset: int
    group_id: str
    type: str
    generation: int | None


@dataclass(frozen=True, slots=True)
class Gained:
    """One partition since its pin. ``shared_end`` is below the pinned end when the leader lacks records."""

    offsets_partition: int
    shared_end: int
    end_offset: int
    generations: tuple[Generation, ...]


def pins(client: Client, info: TopicInfo) -> dict[int, Pin]:
    """Pins of the partitions that have a leader now."""
    leaders = {(OFFSETS_TOPIC, each.partition): each.leader for each in info.partitions}
    epochs = {each.partition: each.leader_epoch for each in info.partitions}
    ends = client.offsets(leaders, LATEST)
    return {partition: Pin(epochs[partition], end) for (_, partition), end in sorted(ends.items())}


def gained(client: Client, info: TopicInfo, since: Mapping[int, Pin], directory: Path) -> list[Gained]:
    """Records of the leaders' logs that the pinned ones had not; their bytes are kept in ``directory``.

    Partitions without a leader, or whose leader changes meanwhile, are left out.
    """
    leaders = {(OFFSETS_TOPIC, each.partition): each.leader for each in info.partitions}
    ends = {partition: end for (_, partition), end in client.offsets(leaders, LATEST).items()}
    shared: dict[int, int] = {}
    tails = []
    for each in info.partitions:
        if each.partition not in since or each.partition not in ends:
            continue
        pin, end = since[each.partition], ends[each.partition]
        first = _shared_end(client, each.partition, each.leader, pin)
        if first is None:
            continue
        shared[each.partition] = first
        files = PartitionFiles(directory / partition_directory_name(each.partition))
        tails.append(Fetching(each.partition, first, end, each.leader, each.leader_epoch, files, first))
    Fetcher(client, OFFSETS_TOPIC, limiter=RateLimiter(None)).run([tail for tail in tails if not tail.done])
    for tail in tails:
        tail.files.flush()
    return [
        Gained(tail.partition, shared[tail.partition], tail.end_offset, tuple(_generations(tail))) for tail in tails
    ]


def _shared_end(client: Client, partition: int, leader: int, pin: Pin) -> int | None:
    """Record offset up to which the leader's log is the pinned one (KIP-101); ``None`` if unknown."""
    try:
        answer = client.epoch_end_offset(OFFSETS_TOPIC, partition, leader, pin.leader_epoch)
    except ClusterError:
        return None
    if answer is None:
        return None
    epoch, end = answer
    return pin.end_offset if epoch < 0 else min(pin.end_offset, end)


def _generations(tail: Fetching) -> Iterator[Generation]:
    if not tail.files.batches:
        return
    log = captured_log(tail.partition, tail.start_offset, [tail.files])
    for _, batch, records in read_records(log):
        for record in [] if batch.is_control else records:
            found = _generation(tail.partition, record.offset, record.key, record.value)
            if found is not None:
                yield found


def _generation(partition: int, offset: int, key: bytes | None, value: bytes | None) -> Generation | None:
    try:
        decoded = decode_key(key or b"")
        if decoded.name not in _GROUP_METADATA or decoded.data is None:
            return None
        kind, id_field, field = _GROUP_METADATA[decoded.name]
        data = None if value is None else decode_value(decoded.type, value).data
    except RecordDecodeError:
        # Verify names the damage; it is no generation that a group reached.
        return None
    return Generation(partition, offset, decoded.data[id_field], kind, None if data is None else data[field])
