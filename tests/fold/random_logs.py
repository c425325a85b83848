"""Random offsets logs: everything that decides how a log folds, in every order."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hypothesis import strategies as st

from coordinator_core.log.types import Codec, ControlType
from coordinator_core.records.codec import encode_key, encode_value
from tests.fold.group_histories import Item, hostile_items, usual_items
from tests.log.builders import (
    NewRecord,
    build_batch,
    build_empty_batch,
    build_message,
    build_wrapper,
)

GROUPS = ("g", "h", "ü")
TOPICS = ("t", "u")
PRODUCERS = (-1, 1, 2, 3)
TOPIC_ID = b"\1\0\x10" + bytes(range(16))
ZERO_TOPIC_ID = b"\1\0\x10" + bytes(16)
UNKNOWN_TAG = b"\1\7\2xy"


@dataclass(frozen=True)
class Log:
    """Whole batches, in order; ``ends`` are the offsets behind them."""

    batches: tuple[bytes, ...]
    starts: tuple[int, ...]
    end: int


def encoded_key(group: bytes, topic: bytes, partition: int, key_type: int = 1) -> bytes:
    return (
        struct.pack(">hh", key_type, len(group))
        + group
        + struct.pack(">h", len(topic))
        + topic
        + struct.pack(">i", partition)
    )


def offset_value(version: int, offset: int, metadata: bytes, tags: bytes = b"\0", expire: int = -1) -> bytes:
    out = struct.pack(">hq", version, offset)
    if version >= 3:
        out += struct.pack(">i", offset % 5 - 1)
    if version == 4:
        return out + bytes((len(metadata) + 1,)) + metadata + struct.pack(">q", 1_000 + offset) + tags
    out += struct.pack(">h", len(metadata)) + metadata + struct.pack(">q", 1_000 + offset)
    return out + struct.pack(">q", expire) if version == 1 else out


names = st.sampled_from([group.encode() for group in GROUPS])
topics = st.sampled_from([topic.encode() for topic in TOPICS])
keys = st.builds(encoded_key, names, topics, st.integers(0, 1), st.sampled_from((1, 1, 1, 0)))
values = st.one_of(
    st.builds(offset_value, st.just(3), st.integers(0, 99), st.sampled_from((b"", b"meta"))),
    st.builds(
        offset_value,
        st.integers(0, 4),
        st.integers(0, 99),
        st.sampled_from((b"", b"m", "ü".encode())),
        st.sampled_from((b"\0", TOPIC_ID, ZERO_TOPIC_ID)),
        st.sampled_from((-1, 5_000)),
    ),
)
commits: st.SearchStrategy[Item] = st.tuples(keys, values)
tombstones: st.SearchStrategy[Item] = st.tuples(keys, st.none())

# Legal, but nothing that a broker writes every day.
odd_keys = st.one_of(
    # Two spellings of one name, and the character that both become.
    st.builds(encoded_key, st.sampled_from((b"\xff", b"\xc0", "\ufffd".encode())), topics, st.just(0)),
    st.builds(lambda key: key + b"trailing", keys),
)
odd_values = st.one_of(
    st.builds(offset_value, st.just(4), st.integers(0, 99), st.just(b"m"), st.just(UNKNOWN_TAG)),
    st.builds(offset_value, st.just(3), st.integers(0, 99), st.just(b"\xff\xfe")),
    st.builds(lambda value: value + b"trailing", values),
    st.sampled_from((b"", b"\0", b"\0\7abc", b"\0\3short", b"\0\4" + bytes(12) + b"\0", b"\xff\xff" + bytes(30))),
)
odd: st.SearchStrategy[Item] = st.one_of(
    st.tuples(odd_keys, st.one_of(values, st.none())),
    st.tuples(keys, odd_values),
    st.tuples(
        st.sampled_from((None, b"", b"\0", b"\0\1", b"\0\1\0\5ab", b"\0\2\0\1", b"\0\x63\0\1g", b"\0\3\0\1\xff")),
        st.one_of(st.none(), st.just(b"\0\0abc")),
    ),
)


def classic(group: str, members: int) -> Item:
    value = {
        "protocolType": "consumer" if members else "",
        "generation": members,
        "protocol": "range" if members else None,
        "leader": "m0" if members else None,
        "currentStateTimestamp": 1_000,
        "members": [
            {
                "memberId": f"m{number}",
                "groupInstanceId": None,
                "clientId": "c",
                "clientHost": "/h",
                "rebalanceTimeout": 1,
                "sessionTimeout": 1,
                "subscription": b"",
                "assignment": b"",
            }
            for number in range(members)
        ],
    }
    return encode_key(2, {"group": group}), encode_value(2, 3, value)


group_names = st.sampled_from(GROUPS)
group_records: st.SearchStrategy[Item] = st.one_of(
    st.builds(classic, group_names, st.integers(0, 2)),
    st.builds(lambda group: (encode_key(2, {"group": group}), None), group_names),
    st.builds(
        lambda group, epoch: (
            encode_key(3, {"groupId": group}),
            encode_value(3, 0, {"epoch": epoch, "metadataHash": 0}),
        ),
        group_names,
        st.integers(1, 3),
    ),
    st.builds(lambda group, kind: (encode_key(kind, {"groupId": group}), None), group_names, st.sampled_from((3, 6))),
)

items = st.one_of(commits, commits, commits, tombstones, group_records, odd)
codecs = st.sampled_from((Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD))


@dataclass(frozen=True)
class Data:
    """A v2 batch of records; ``hole`` offsets are missing behind each of its records."""

    items: list[Item]
    producer_id: int
    transactional: bool
    codec: Codec
    hole: int


@dataclass(frozen=True)
class Legacy:
    """Messages of format 0 or 1: a wrapper, or plain ones."""

    items: list[Item]
    magic: int
    codec: Codec


@dataclass(frozen=True)
class Control:
    """A control batch: types of its records (``None`` for a key that is no control key)."""

    producer_id: int
    types: list[int | None]


data_batches = st.one_of(
    st.builds(Data, st.lists(items, min_size=1, max_size=4), st.just(-1), st.just(False), codecs, st.integers(0, 1)),
    st.builds(
        Data,
        st.lists(st.one_of(commits, commits, tombstones), min_size=1, max_size=3),
        st.sampled_from(PRODUCERS[1:]),
        st.just(True),
        codecs,
        st.integers(0, 1),
    ),
    st.builds(
        Data,
        st.lists(items, min_size=1, max_size=3),
        st.sampled_from(PRODUCERS),
        st.booleans(),
        st.just(Codec.NONE),
        st.just(0),
    ),
)
legacy_batches = st.builds(
    Legacy,
    st.lists(items, min_size=1, max_size=3),
    st.sampled_from((0, 1)),
    st.sampled_from((Codec.NONE, Codec.GZIP, Codec.SNAPPY)),
)
markers = st.builds(
    Control,
    st.sampled_from(PRODUCERS),
    st.sampled_from(
        (
            [ControlType.COMMIT],
            [ControlType.COMMIT],
            [ControlType.COMMIT],
            [ControlType.ABORT],
            [ControlType.LEADER_CHANGE],
            [77],
            [],
            [None],
            [ControlType.ABORT, ControlType.COMMIT],
            [77, ControlType.COMMIT],
            [None, ControlType.COMMIT],
        )
    ),
)
steps = st.one_of(data_batches, data_batches, data_batches, markers, markers, legacy_batches)


def build(steps: list[Data | Legacy | Control], gap: int = 0) -> Log:
    """The log of the steps; ``gap`` offsets are missing between them."""
    batches, starts = [], []
    offset = 0
    for step in steps:
        starts.append(offset)
        made, next_offset = _build(step, offset)
        batches.append(made)
        offset = next_offset + gap
    return Log(tuple(batches), tuple(starts), offset)


def _build(step: Data | Legacy | Control, offset: int) -> tuple[bytes, int]:
    match step:
        case Data():
            records = [
                NewRecord(key, value, timestamp=1_000 + index, offset_delta=index * (1 + step.hole) + step.hole)
                for index, (key, value) in enumerate(step.items)
            ]
            last = len(records) * (1 + step.hole)
            batch = build_batch(
                offset,
                records,
                codec=step.codec,
                producer_id=step.producer_id,
                transactional=step.transactional,
                last_offset_delta=last,
            )
            return batch, offset + last + 1
        case Legacy():
            if step.codec is not Codec.NONE:
                wrapper = build_wrapper(offset, step.items, codec=step.codec, magic=step.magic)
                return wrapper, offset + len(step.items)
            messages = [
                build_message(offset + index, key, value, magic=step.magic)
                for index, (key, value) in enumerate(step.items)
            ]
            return b"".join(messages), offset + len(messages)
        case Control():
            if not step.types:
                empty = build_empty_batch(offset, producer_id=step.producer_id, transactional=True, control=True)
                return empty, offset + 1
            records = [
                NewRecord(b"\0" if kind is None else struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
                for kind in step.types
            ]
            batch = build_batch(offset, records, producer_id=step.producer_id, transactional=True, control=True)
            return batch, offset + len(records)


def with_groups(records: list[Item], size: int, others: list[Data | Legacy | Control]) -> Log:
    """Histories of groups in batches of so many records, the other steps spread among them."""
    batches: list[Data | Legacy | Control] = [
        Data(records[first : first + size], -1, False, Codec.NONE, 0) for first in range(0, len(records), size)
    ]
    for number, step in enumerate(others):
        batches.insert((number + 1) * len(batches) // (len(others) + 1), step)
    return build(batches)


group_logs = st.builds(
    with_groups, usual_items | hostile_items, st.integers(1, 9), st.lists(steps, min_size=1, max_size=4)
)
any_logs = st.builds(build, st.lists(steps, min_size=1, max_size=14), st.integers(0, 1))
logs = st.one_of(any_logs, any_logs, group_logs)

# Few offset keys and much going on with each: what transactions leave open at a cut decides here.
few_keys = st.sampled_from((encoded_key(b"g", b"t", 0), encoded_key(b"g", b"t", 0), encoded_key(b"h", b"t", 0, 0)))
few_values = st.builds(offset_value, st.just(3), st.integers(0, 99), st.just(b""))
contended_steps = st.one_of(
    st.builds(
        Data,
        st.lists(
            st.one_of(*[st.tuples(few_keys, few_values)] * 3, st.tuples(few_keys, st.none())),
            min_size=1,
            max_size=2,
        ),
        st.sampled_from((-1, -1, 1, 1, 2)),
        st.just(True),
        st.just(Codec.NONE),
        st.just(0),
    ).map(lambda step: step if step.producer_id >= 0 else Data(step.items, -1, False, Codec.NONE, 0)),
    st.builds(Control, st.sampled_from((1, 2)), st.sampled_from(([1], [1], [1], [0], [77]))),
)
contended_logs = st.builds(build, st.lists(contended_steps, min_size=3, max_size=9))
