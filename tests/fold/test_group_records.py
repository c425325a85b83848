"""Group records that newer ones replace are not decoded, and groups are those of the sequential replay."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.groups.model import ClassicGroup, ConsumerGroup, Group, PartitionState
from coordinator_core.kernels.layout import Note
from coordinator_core.log.batch import parse_batch
from coordinator_core.merge import group_replay
from coordinator_core.merge.group_records import KEY_TYPE_ROLES, RestoredGroup
from coordinator_core.merge.partition import PartitionMerge
from coordinator_core.merge.plain import read_plain, write_plain
from coordinator_core.merge.shards import combine_shards
from coordinator_core.records.codec import decode_record, decode_value, encode_key, encode_value
from coordinator_core.records.schemas import CURRENT_LAYOUT, RECORD_TYPES, SHARE_4_0_LAYOUT
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.replay.interpret import Interpreted, interpret
from tests.examples import examples
from tests.fold.group_histories import (
    TOPIC_IDS,
    Item,
    classic_value,
    hostile_items,
    items,
    owning_items,
    usual_items,
)
from tests.fold.parity import PROFILES, differences, fold_batches
from tests.fold.random_logs import encoded_key, offset_value
from tests.records.strategies import data_for, ordinary_data_for
from tests.replay.histories import History

MODERN = {
    **PROFILES,
    "3.8.1 new": profile_for_release("3.8.1", "new"),
    "4.0.1": profile_for_release("4.0.1"),
    "4.1.1": profile_for_release("4.1.1"),
    "4.2.0": profile_for_release("4.2.0"),
    "4.4.0": profile_for_release("4.4.0"),
}
NEWEST = PROFILES["4.3.1"]

every_profile = pytest.mark.parametrize("name", MODERN)
many = examples(50)


def history(records: Sequence[Item], size: int = 3) -> History:
    """Batches of so many records."""
    made = History()
    for first in range(0, len(records), size):
        made.records(*records[first : first + size])
    return made


def folds(log: History, profile: Profile, cuts: Sequence[int] = ()) -> list[SegmentFold]:
    """A fold of each part of the log, cut before the batches with these numbers."""
    batches = [parse_batch(memoryview(data), 0) for data in log.batches]
    bounds = sorted({0, len(batches), *(cut for cut in cuts if cut < len(batches))})
    rules = FoldRules.of(profile)
    return [fold_batches(batches[first:last], rules=rules, offsets_partition=0) for first, last in pairwise(bounds)]


def merged(parts: Sequence[SegmentFold], profile: Profile, between: str = "") -> PartitionMerge:
    """The folds merged; between them the state is ``"kept"``, as in a fold cache, or group records are compacted."""
    merge = PartitionMerge(profile, 0)
    for part in parts:
        merge.add(part)
        if between == "kept":
            sink = pa.BufferOutputStream()
            write_plain(merge.state(), sink)
            merge = PartitionMerge(profile, 0)
            merge.load(read_plain(sink.getvalue()))
        elif between:
            merge._replay.newest.compact()
    return merge


def finished(merge: PartitionMerge) -> PartitionState:
    shard = merge.finish()
    sent = replace(shard, replay=pickle.loads(pickle.dumps(shard.replay)))
    return combine_shards([sent]).to_state()


def orders(groups: dict[str, Group]) -> dict[str, Any]:
    """The order of dictionaries, which comparing them does not look at."""
    return {
        group_id: [list(getattr(group, name, ())) for name in ("members", "target_assignment", "regexes")]
        for group_id, group in groups.items()
        if not isinstance(group, ClassicGroup)
    }


def assert_same(expected: PartitionState, found: PartitionState) -> None:
    assert not differences(expected, found), "\n".join(differences(expected, found))
    assert orders(expected.groups) == orders(found.groups)


def notes(records: Sequence[Item], profile: Profile = NEWEST) -> list[Note]:
    merge = merged(folds(history(records), profile), profile)
    return [Note(note) for note in merge.finish().replay.newest.notes()]


@every_profile
@many
@given(
    records=usual_items | hostile_items,
    cuts=st.lists(st.integers(1, 40), max_size=3),
    between=st.sampled_from(("", "kept", "compacted")),
)
def test_groups_are_those_of_the_sequential_replay(
    name: str, records: list[Item], cuts: list[int], between: str
) -> None:
    profile = MODERN[name]
    log = history(records)
    assert_same(log.replay(profile), finished(merged(folds(log, profile, cuts), profile, between)))


@many
@given(records=owning_items, cuts=st.lists(st.integers(1, 40), max_size=3))
def test_partitions_that_change_hands(records: list[Item], cuts: list[int]) -> None:
    log = history(records)
    assert_same(log.replay(NEWEST), finished(merged(folds(log, NEWEST, cuts), NEWEST)))


@many
@given(records=usual_items)
def test_what_coordinators_write_gets_no_note(records: list[Item]) -> None:
    assert notes(records) == []
    assert history(records).replay(NEWEST).load_failures == []


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Item]:
    """The records that a merge decodes from now on."""
    decoded: list[Item] = []

    def decoding(key: bytes, value: bytes) -> Any:
        decoded.append((key, value))
        return decode_record(key, value)

    def interpreting(record_offset: int, key: bytes | None, value: bytes | None, profile: Profile) -> Interpreted:
        decoded.append((key, value))
        return interpret(record_offset, key, value, profile)

    monkeypatch.setattr(group_replay, "decode_record", decoding)
    monkeypatch.setattr(group_replay, "interpret", interpreting)
    return decoded


def test_only_what_stands_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [("join", group, 3 * turn) for turn in range(4) for group in range(2)]
    steps += [("rebalance", group, turn) for turn in range(50) for group in range(2)]
    steps += [
        ("leave", 0, 1),
        ("regex", 0, 1),
        ("extra", 1, 2),
        ("classic", 2, 1),
        ("classic", 2, 5),
        ("commit", 3, 1),
    ]
    records = items(steps, ("g", "h", "i", "j"))
    newest = {key: value for key, value in records if key and key[1] > 1}
    standing = sum(value is not None for value in newest.values())
    decoded = counted(monkeypatch)
    log = history(records)
    assert_same(log.replay(NEWEST), finished(merged(folds(log, NEWEST, [20, 40]), NEWEST)))
    assert len(decoded) == len(set(decoded)) == standing
    assert len(records) > 20 * standing


def test_groups_that_commits_alone_made_are_not_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    restored: list[str] = []
    restore = group_replay.GroupReplay._restore_group

    def noting(self: group_replay.GroupReplay, group: RestoredGroup, name: str) -> None:
        restored.append(name)
        restore(self, group, name)

    monkeypatch.setattr(group_replay.GroupReplay, "_restore_group", noting)
    steps = [("commit", 0, 1), ("classic", 1, 1), ("commit", 1, 1), ("commit", 2, 1), ("join", 3, 0)]
    log = history(items(steps, ("g", "h", "i", "j")))
    for profile in PROFILES.values():
        restored.clear()
        assert_same(log.replay(profile), finished(merged(folds(log, profile, [2]), profile)))
        assert set(restored) <= {"h", "j"}


def test_a_group_is_replayed_record_by_record_only_from_its_note_on(monkeypatch: pytest.MonkeyPatch) -> None:
    before = items([("join", 0, 0), ("join", 0, 3), *[("rebalance", 0, turn) for turn in range(30)]], ("g",))
    odd = (encode_key(3, {"groupId": "g"}), encode_value(3, 0, {"epoch": 9, "metadataHash": 0}) + b"x")
    after = items([("join", 0, 0), *[("rebalance", 0, turn) for turn in range(4)]], ("g",))
    others = items([("join", 0, 0), *[("rebalance", 0, turn) for turn in range(30)]], ("h",))
    decoded = counted(monkeypatch)
    log = history([*before, *others, odd, *after])
    assert_same(log.replay(NEWEST), finished(merged(folds(log, NEWEST, [9]), NEWEST)))
    standing = len({key for key, _ in before}) + len({key for key, _ in others})
    assert len(decoded) == standing + 1 + len(after)


G = {"groupId": "g"}
M = G | {"memberId": "m"}
EPOCH = (encode_key(3, G), encode_value(3, 0, {"epoch": 2, "metadataHash": 0}))
SIMPLE = items([("commit", 0, 1)], ("g",))
CLASSIC = items([("classic", 0, 1)], ("g",))
SHARE = items([("join", 0, 1)], ("g",))
JOINED = items([("join", 0, 0)], ("g",))
MEMBER = (encode_key(5, {"groupId": "g", "memberId": "m0"}), None)


def owned(member: str, epoch: int, *partitions: int, topics: int = 1) -> Item:
    topic = {"topicId": TOPIC_IDS[0], "partitions": list(partitions), "assignmentEpochs": None}
    value = {
        "memberEpoch": epoch,
        "previousMemberEpoch": 0,
        "state": 0,
        "assignedPartitions": [topic] * topics,
        "partitionsPendingRevocation": [],
    }
    return encode_key(8, {"groupId": "g", "memberId": member}), encode_value(8, 0, value)


def subscribed(subscription: bytes) -> bytes:
    """GroupMetadataValue of a member with this subscription."""
    value = decode_value(2, classic_value([("a", None)])).data
    assert value is not None
    value["members"][0]["subscription"] = subscription
    return encode_value(2, 3, value)


NOTES: dict[str, tuple[str, list[Item], list[Note]]] = {
    "nothing": ("4.3.1", [EPOCH], []),
    "key with more bytes": ("4.3.1", [(encode_key(3, G) + b"x", EPOCH[1])], [Note.KEY]),
    "key that is not UTF-8": ("4.3.1", [(b"\0\3\0\1\xff", EPOCH[1])], [Note.KEY]),
    "key with U+FFFD": ("4.3.1", [(encode_key(3, {"groupId": "\ufffd"}), EPOCH[1])], [Note.KEY]),
    "value cut": ("4.3.1", [EPOCH, (EPOCH[0], (EPOCH[1] or b"")[:-1])], [Note.VALUE]),
    "value with more bytes": ("4.3.1", [(EPOCH[0], (EPOCH[1] or b"") + b"x")], [Note.VALUE]),
    "value of a newer version": ("4.3.1", [(EPOCH[0], b"\0\1" + (EPOCH[1] or b"")[2:])], []),
    "subscription of no topics": (
        "4.3.1",
        [(encode_key(2, {"group": "g"}), subscribed(b"\0\0\xff\xff\xff\xff"))],
        [Note.SUBSCRIPTION],
    ),
    "subscription cut": (
        "4.3.1",
        [(encode_key(2, {"group": "g"}), subscribed(b"\0\0\0\0\0\1\0\5ab"))],
        [Note.SUBSCRIPTION],
    ),
    "subscription cut, since 4.4": ("4.4.0", [(encode_key(2, {"group": "g"}), subscribed(b"\0\0\0\0\0\1\0\5ab"))], []),
    "subscription with more bytes": (
        "4.3.1",
        [(encode_key(2, {"group": "g"}), subscribed(b"\0\1\0\0\0\1\0\1t\0\0\0\1uxx"))],
        [],
    ),
    "unknown key type": ("4.3.1", [(b"\0\x63\0\1g", b"\0\0")], []),
    "simple group replaced": ("4.3.1", [*SIMPLE, EPOCH], []),
    "simple group replaced, before 4.0": ("3.7.2 new", [*SIMPLE, EPOCH], [Note.TYPE]),
    "simple group by a share group": ("4.3.1", [*SIMPLE, *SHARE], [Note.TYPE]),
    "classic group replaced": ("4.3.1", [*CLASSIC, EPOCH], [Note.TYPE]),
    "consumer group replaced": ("4.3.1", [EPOCH, *CLASSIC], []),
    "other kind": ("4.3.1", [*SHARE, EPOCH], [Note.TYPE]),
    "tombstone of no group": ("4.3.1", [(EPOCH[0], None)], []),
    "tombstone of no group, before 4.0": ("3.7.2 new", [(EPOCH[0], None)], [Note.TOMBSTONE]),
    "tombstone of a simple group": ("4.3.1", [*SIMPLE, (EPOCH[0], None)], [Note.TOMBSTONE]),
    "tombstone with members": ("4.3.1", [*JOINED, (EPOCH[0], None)], [Note.TOMBSTONE]),
    "member before its assignment": ("4.3.1", [*JOINED, MEMBER], [Note.TOMBSTONE]),
    "tombstone of no member": ("4.3.1", [EPOCH, MEMBER], []),
    "tombstone of an assignment alone": (
        "4.3.1",
        [owned("m", 1), (encode_key(8, M), None)],
        [Note.TOMBSTONE],
    ),
    "partition taken": ("4.3.1", [owned("a", 1, 0, 1), owned("b", 1, 2)], []),
    "partition taken over": ("4.3.1", [owned("a", 1, 0, 1), owned("b", 2, 1)], []),
    "partition taken over, before 4.0.2": ("4.0.1", [owned("a", 1, 0, 1), owned("b", 2, 1)], [Note.OWNER]),
    "tombstone of no share group": ("4.3.1", [(encode_key(11, G), None)], []),
    "tombstone of no share group, before 4.1": ("4.0.1", [(encode_key(11, G), None)], [Note.TOMBSTONE]),
    "partition taken over too early": ("4.3.1", [owned("a", 2, 0, 1), owned("b", 2, 1)], [Note.OWNER]),
    "partition twice": ("4.3.1", [owned("a", 1, 4, 4)], [Note.OWNER]),
    "topic twice": ("4.3.1", [owned("a", 1, 4, topics=2)], [Note.OWNER]),
    "twins": ("4.3.1", [(CLASSIC[0][0], classic_value([("a", "i"), ("b", "i")]))], [Note.INSTANCE_ID]),
    "twins, classic coordinator": (
        "3.9.2 classic",
        [(CLASSIC[0][0], classic_value([("a", "i"), ("b", "i")]))],
        [Note.INSTANCE_ID],
    ),
    "twins, before 3.0": ("2.4.1", [(CLASSIC[0][0], classic_value([("a", "i"), ("b", "i")]))], []),
}


@pytest.mark.parametrize("name", NOTES)
def test_notes(name: str) -> None:
    profile_name, records, expected = NOTES[name]
    profile = MODERN[profile_name]
    assert notes(records, profile) == expected
    log = history(records)
    for cut in range(len(records)):
        assert_same(log.replay(profile), finished(merged(folds(log, profile, [cut]), profile)))


def test_epochs_of_shared_partitions_are_those_of_who_took_them_last() -> None:
    log = history([owned("a", 5, 0, 1), owned("b", 6, 1, 2), owned("b", 7, 2), owned("c", 3, 1)])
    found = finished(merged(folds(log, NEWEST), NEWEST))
    assert_same(log.replay(NEWEST), found)
    group = found.groups["g"]
    assert isinstance(group, ConsumerGroup)
    epochs = {partition: epoch for (_, partition), epoch in group.partition_epochs.items()}
    assert epochs == {0: 5, 1: 3, 2: 7}


SHAPES = [
    (key_type, version)
    for key_type, record_type in RECORD_TYPES.items()
    if key_type in KEY_TYPE_ROLES.keys() & NEWEST.known_key_types
    for version in record_type.value.versions
]


SHAPES_4_0 = [
    (key_type, version) for key_type, version in SHAPES if SHARE_4_0_LAYOUT in RECORD_TYPES[key_type].other_layouts
]


def one_key(key_type: int) -> bytes:
    names = [field.name for field in RECORD_TYPES[key_type].key.struct.fields]
    return encode_key(key_type, dict.fromkeys(names, "g"))


@pytest.mark.parametrize("key_type, version", SHAPES)
@examples(8)
@given(draw=st.data())
def test_values_as_their_schema_says_have_its_shape(key_type: int, version: int, draw: st.DataObject) -> None:
    data = draw.draw(ordinary_data_for(RECORD_TYPES[key_type].value, version))
    value = encode_value(key_type, version, data)
    assert Note.VALUE not in notes([(one_key(key_type), value)])
    assert notes([(one_key(key_type), value + b"\0")]) == [Note.VALUE]


@pytest.mark.parametrize("key_type, version", SHAPES_4_0)
@examples(25)
@given(draw=st.data())
def test_the_first_share_groups_have_shapes_of_their_own(key_type: int, version: int, draw: st.DataObject) -> None:
    schema = RECORD_TYPES[key_type].other_layouts[SHARE_4_0_LAYOUT]
    value = encode_value(key_type, version, draw.draw(ordinary_data_for(schema, version)), SHARE_4_0_LAYOUT)
    assert notes([(one_key(key_type), value)], MODERN["4.0.1"]) == []


@pytest.mark.parametrize("key_type, version", SHAPES)
@examples(25)
@given(draw=st.data())
def test_what_has_a_shape_is_read_by_its_schema(key_type: int, version: int, draw: st.DataObject) -> None:
    value = bytearray(encode_value(key_type, version, draw.draw(data_for(RECORD_TYPES[key_type].value, version))))
    for _ in range(draw.draw(st.integers(0, 2))):
        place = draw.draw(st.integers(2, max(len(value) - 1, 2)))
        value[place : place + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    if Note.VALUE not in notes([(one_key(key_type), bytes(value))]):
        read = decode_value(key_type, bytes(value))
        assert (read.version, read.layout, read.trailing) == (version, CURRENT_LAYOUT, b"")


def newer(key_type: int, key: dict[str, Any], value: dict[str, Any], version: int, written: int = 0) -> Item:
    """A record whose value of version ``written`` says that it is of another one."""
    encoded = encode_value(key_type, written, value)
    return encode_key(key_type, key), version.to_bytes(2, "big", signed=True) + encoded[2:]


@pytest.mark.parametrize("release", ["3.7.2", "3.9.2", "4.0.0"])
def test_the_first_new_coordinators_read_unknown_versions(release: str) -> None:
    """As a broker of 3.9.2 does (KAFKA-18672)."""
    profile = profile_for_release(release, "new")
    key = encoded_key(b"h", b"t", 0)
    group_key = {"groupId": "k"}
    records = [
        (key, b"\0\5" + offset_value(4, 7, b"")[2:]),
        (encoded_key(b"h", b"t", 1), b"\xff\xff" + offset_value(0, 8, b"")[2:]),
        (encode_key(2, {"group": "g"}), b"\0\x09" + classic_value([("a", None)], version=4)[2:]),
        newer(3, group_key, {"epoch": 4}, 3),
        (encoded_key(b"h", b"t", 2), b"\0\5" + offset_value(4, 9, b"")[2:-3]),
        newer(7, group_key | {"memberId": "m"}, {"topicPartitions": [{"topicId": TOPIC_IDS[0], "partitions": [1]}]}, 1),
    ]
    log = history(records)
    state = log.replay(profile)
    assert_same(state, finished(merged(folds(log, profile, [2]), profile)))
    refused = [0, 1, 2, 3, 4, 5] if release == "4.0.0" else [4, 5]
    assert [failure.record_offset for failure in state.load_failures] == refused
    assert all("value version" in failure.detail for failure in state.load_failures)
    if release != "4.0.0":
        assert [offset.committed_offset for offset in state.offsets.values()] == [7, 8]
        assert isinstance(state.groups["g"], ClassicGroup)
        assert len(state.groups["g"].members) == 1
        assert state.groups["k"].group_epoch == 4
