"""Group records and their batches as bytes, put together by hand.

The codec of the product takes ten times as long; the tests compare both. Sources: the message schemas
GroupMetadataValue and ConsumerGroup…Key and …Value of Kafka 4.3.1, and its consumer's ConsumerProtocol.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.group_truth import Member
from tests.log.builders import uvarint, varint

Record = tuple[bytes, bytes | None]
"""Key and value; no value is a tombstone."""

SESSION_TIMEOUT_MS = 1_800_000
"""The most that a broker allows: one that loads the log must not write into it for want of heartbeats."""
REBALANCE_TIMEOUT_MS = 300_000

CLASSIC_GROUP, GROUP, PARTITION_METADATA, MEMBER, TARGET_METADATA, TARGET_MEMBER, CURRENT = range(2, 9)

_VARINTS = [varint(value) for value in range(1 << 13)]
_UVARINTS = [uvarint(value) for value in range(1 << 13)]
_NULL = varint(-1)
_HEADER = struct.Struct(">qiibIhiqqqhii")
_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_int32 = _INT.pack
_EPOCHS = struct.Struct(">hiib")
"""Version, member epoch, previous member epoch and state of a current assignment."""


@dataclass(frozen=True)
class Layout:
    """Topics of the partitions of a group: the ``place``-th is one of the topic ``place % len(topics)``."""

    group_id: str
    topics: Sequence[str]
    topic_ids: Sequence[bytes]
    places: int
    """Count of partitions."""
    all_places: frozenset[int] = field(init=False)
    numbers: Sequence[bytes] = field(init=False)
    """By place, the number of the partition as four bytes."""

    def __post_init__(self) -> None:
        count = len(self.topics)
        object.__setattr__(self, "all_places", frozenset(range(self.places)))
        object.__setattr__(self, "numbers", [_int32(place // count) for place in range(self.places)])

    def by_topic(self, places: Collection[int]) -> list[tuple[int, list[int]]]:
        """Topics (as index) that have some of the ``places``, with these, in order."""
        ordered, count = sorted(places), len(self.topics)
        if count == 1:
            return [(0, ordered)] if ordered else []
        return [
            (topic, mine) for topic in range(count) if (mine := [place for place in ordered if place % count == topic])
        ]

    def partitions(self, places: Iterable[int]) -> bytes:
        """Partition numbers, four bytes each."""
        return b"".join([self.numbers[place] for place in places])


def _varint(value: int) -> bytes:
    return _VARINTS[value] if value < len(_VARINTS) else varint(value)


def _uvarint(value: int) -> bytes:
    return _UVARINTS[value] if value < len(_UVARINTS) else uvarint(value)


def batch(records: Sequence[Record], now_ms: int) -> bytes:
    """A batch of the Java coordinator, without its offset and its CRC."""
    parts = [b""]
    for index, (key, value) in enumerate(records):
        head = b"\0\0" + _varint(index) + _varint(len(key)) + key
        record = head + _NULL + b"\0" if value is None else head + _varint(len(value)) + value + b"\0"
        parts.append(_varint(len(record)))
        parts.append(record)
    count, size = len(records), sum(map(len, parts))
    parts[0] = _HEADER.pack(0, _HEADER.size - 12 + size, 0, 2, 0, 0, count - 1, now_ms, now_ms, -1, -1, 0, count)
    return b"".join(parts)


def joined_keys(records: Iterable[Record]) -> bytes:
    """Keys of tombstones end to end, each behind its length: an ending, as ``filling.fill`` takes it."""
    return b"".join(_text(key) for key, _ in records)


# Strings. A key has plain ones, a value of a KIP-848 record compact ones.


def _text(text: bytes) -> bytes:
    return _SHORT.pack(len(text)) + text


def _nullable(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else _text(text.encode())


def _compact(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return _uvarint(len(encoded) + 1) + encoded


def key(key_type: int, *names: str) -> bytes:
    """A key of group id or of group id and member id."""
    return _SHORT.pack(key_type) + b"".join(_text(name.encode()) for name in names)


# Values of KIP-848 records


def member(layout: Layout, instance_id: str | None, client_id: str, host: str, timeout_ms: int) -> bytes:
    """Type 5: what a member subscribes to. A broker of 4.3.1 writes no regular expression as an empty one."""
    topics = b"".join(map(_compact, sorted(layout.topics)))
    return b"".join(
        (
            *(b"\0\0", _compact(instance_id), _compact(None), _compact(client_id), _compact(host)),
            *(_uvarint(len(layout.topics) + 1), topics, _compact(""), _int32(timeout_ms)),
            *(_compact(None), b"\0"),
        )
    )


def group(epoch: int, metadata_hash: int) -> bytes:
    """Type 3; a hash of 0, that of a group without members, is left out."""
    tags = b"\1\0\x08" + _LONG.pack(metadata_hash) if metadata_hash else b"\0"
    return b"\0\0" + _int32(epoch) + tags


def target_metadata(epoch: int, now_ms: int) -> bytes:
    """Type 6."""
    return b"\0\0" + _int32(epoch) + b"\1\0\x08" + _LONG.pack(now_ms)


def target(layout: Layout, places: frozenset[int]) -> bytes:
    """Type 7."""
    topics = layout.by_topic(places)
    parts = [b"\0\0", _uvarint(len(topics) + 1)]
    for topic, mine in topics:
        parts += (layout.topic_ids[topic], _uvarint(len(mine) + 1), layout.partitions(mine), b"\0")
    return b"".join((*parts, b"\0"))


def current(layout: Layout, one: Member) -> bytes:
    """Type 8."""
    return b"".join(
        (
            _EPOCHS.pack(0, one.epoch, one.previous_epoch, one.state),
            _with_epochs(layout, one.assigned),
            _with_epochs(layout, one.revoking),
            b"\0",
        )
    )


def _with_epochs(layout: Layout, owned: Mapping[int, int]) -> bytes:
    topics = layout.by_topic(owned)
    parts = [_uvarint(len(topics) + 1)]
    for topic, mine in topics:
        count = _uvarint(len(mine) + 1)
        epochs = count + struct.pack(f">{len(mine)}i", *[owned[place] for place in mine])
        parts += (layout.topic_ids[topic], count, layout.partitions(mine))
        parts += (b"\1\0", _uvarint(len(epochs)), epochs)
    return b"".join(parts)


# The value of a classic group


def classic_group(
    protocol_type: str,
    generation: int,
    protocol: str | None,
    leader: str | None,
    state_timestamp_ms: int,
    members: Sequence[bytes],
) -> bytes:
    """GroupMetadataValue, version 3; ``members`` are of :func:`classic_member` and :func:`sized`."""
    return b"".join(
        (
            *(b"\0\3", _text(protocol_type.encode()), _int32(generation)),
            *(_nullable(protocol), _nullable(leader), _LONG.pack(state_timestamp_ms)),
            *(_int32(len(members)), *members),
        )
    )


def classic_member(member_id: str, instance_id: str | None, client_id: str, host: str) -> bytes:
    """A member up to its subscription."""
    return b"".join(
        (
            *(_text(member_id.encode()), _nullable(instance_id)),
            *(_text(client_id.encode()), _text(host.encode())),
            *(_int32(REBALANCE_TIMEOUT_MS), _int32(SESSION_TIMEOUT_MS)),
        )
    )


def sized(data: bytes) -> bytes:
    """Bytes behind their length, as a record that is not flexible has them."""
    return _int32(len(data)) + data


def subscription(layout: Layout, owned: Collection[int] = (), generation: int = -1) -> bytes:
    """A consumer's subscription, version 3; user data of the cooperative assignor is the generation."""
    user_data = _int32(-1) if generation < 0 else sized(_int32(generation))
    topics = b"".join(_text(topic.encode()) for topic in layout.topics)
    return b"".join(
        (
            *(b"\0\3", _int32(len(layout.topics)), topics, user_data),
            *(_partitions(layout, owned), _int32(generation), b"\xff\xff"),
        )
    )


def assignment(layout: Layout, places: Collection[int]) -> bytes:
    """A consumer's assignment, version 3."""
    return b"\0\3" + _partitions(layout, places) + _int32(-1)


def _partitions(layout: Layout, places: Collection[int]) -> bytes:
    topics = layout.by_topic(places)
    parts = [_int32(len(topics))]
    for topic, mine in topics:
        parts += (_text(layout.topics[topic].encode()), _int32(len(mine)), layout.partitions(mine))
    return b"".join(parts)
