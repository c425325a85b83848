"""Group records that need not be decoded: only where it is certain that the next one makes them void."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator_core.fold.schema import FoldRules
from coordinator_core.fold.segments import fold_batches
from coordinator_core.log.batch import parse_batch
from coordinator_core.merge.group_replay import whole_group_versions
from coordinator_core.merge.partition import merge_folds
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.replay.interpret import GroupRecord, interpret
from coordinator_core.replay.sequential import group_loader
from tests.columnar.parity import PROFILES, differences
from tests.replay.histories import History, group_value

PROFILE = PROFILES["4.3.1"]
KEY = encode_key(2, {"group": "g"})

texts = st.sampled_from(("", "a", "b", "ü", "long" * 50))
members = st.fixed_dictionaries(
    {
        "memberId": texts,
        "groupInstanceId": st.one_of(st.none(), texts),
        "clientId": texts,
        "clientHost": texts,
        "rebalanceTimeout": st.integers(-1, 5),
        "sessionTimeout": st.integers(-1, 5),
        "subscription": st.binary(max_size=9),
        "assignment": st.binary(max_size=9),
    }
)
groups = st.fixed_dictionaries(
    {
        "protocolType": texts,
        "generation": st.integers(-1, 5),
        "protocol": st.one_of(st.none(), texts),
        "leader": st.one_of(st.none(), texts),
        "currentStateTimestamp": st.integers(-1, 5),
        "members": st.lists(members, max_size=4),
    }
)


def encoded(version: int, value: dict[str, Any]) -> bytes:
    """The value without the fields that its version does not have."""
    known = {1: "rebalanceTimeout", 2: "currentStateTimestamp", 3: "groupInstanceId"}
    later = {name for since, name in known.items() if since > version}
    members = [
        {name: item for name, item in member.items() if name not in later} for member in value["members"]
    ]
    fields = {name: item for name, item in value.items() if name not in later}
    return encode_value(2, version, {**fields, "members": members})


def versions_of(*records: tuple[bytes | None, bytes | None]) -> list[int]:
    (data,) = History().records(*records).batches
    fold = fold_batches([parse_batch(memoryview(data), 0)], rules=FoldRules.of(PROFILE), offsets_partition=0)
    found: list[int] = whole_group_versions(fold, PROFILE.max_group_value_version).tolist()
    return found


def loads_whole(key: bytes, value: bytes | None) -> bool:
    record = interpret(0, key, value, PROFILE)
    if not isinstance(record, GroupRecord) or record.key_type != 2 or record.value is None:
        return False
    loader = group_loader(PROFILE)
    loader.apply(0, 2, record.key, record.version or 0, record.value)
    return loader.finish([]).keys() == {record.key["group"]}


@settings(max_examples=300, deadline=None)
@given(version=st.integers(0, 3), value=groups, position=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_changed_value_is_whole_only_if_it_loads(
    version: int, value: dict[str, Any], position: int, byte: int
) -> None:
    data = bytearray(encoded(version, value))
    data[position % len(data)] = byte
    (found,) = versions_of((KEY, bytes(data)))
    if found >= 0:
        assert found == int.from_bytes(data[:2], "big")
        assert loads_whole(KEY, bytes(data))


@settings(max_examples=300, deadline=None)
@given(version=st.integers(0, 3), value=groups, cut=st.integers(0, 400))
def test_every_value_that_loads_is_whole(version: int, value: dict[str, Any], cut: int) -> None:
    data = encoded(version, value)
    instances = [member["groupInstanceId"] for member in value["members"] if version >= 3]
    named = [instance for instance in instances if instance is not None]
    # The empty group instance id is left to the decoder.
    certain = len(named) == len(set(named)) and "" not in named
    assert versions_of((KEY, data), (KEY, data[: cut % len(data)]), (KEY, data + b"x")) == [
        version if certain else -1,
        -1,
        -1,
    ]


def test_what_is_not_a_whole_group() -> None:
    value = group_value("m")
    others = [
        (KEY, None),
        (KEY + b"x", value),
        (KEY[:-1], value),
        (b"\0\2", value),
        (None, value),
        (encode_key(3, {"groupId": "g"}), value),
        (KEY, encode_value(2, 4, {**group_dict(), "members": []})),
        (KEY, b"\xff\xff" + value[2:]),
        (KEY, b"\0\3"),
        (KEY, b""),
    ]
    assert versions_of(*others) == [-1] * len(others)
    assert versions_of((KEY, value)) == [3]


def group_dict() -> dict[str, Any]:
    return {
        "protocolType": "consumer",
        "generation": 1,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": 5,
    }


STEPS: dict[str, Any] = {
    "group of one": lambda log: log.group("a"),
    "group of two": lambda log: log.group("a", "b"),
    "other group": lambda log: log.group("a", group_id="h"),
    "two with one instance id": lambda log: log.records((KEY, twins())),
    "cut short": lambda log: log.records((KEY, group_value("a")[:-1])),
    "trailing": lambda log: log.records((KEY, group_value("c") + b"x")),
    "tombstone": lambda log: log.group_tombstone(),
    "epoch of a consumer group": lambda log: log.modern(3, {"groupId": "g"}, {"epoch": 3, "metadataHash": 0}),
    "commit": lambda log: log.commit(1),
}


def twins() -> bytes:
    member = {
        "memberId": "a",
        "groupInstanceId": "i",
        "clientId": "c",
        "clientHost": "/h",
        "rebalanceTimeout": 1,
        "sessionTimeout": 1,
        "subscription": b"",
        "assignment": b"",
    }
    return encode_value(2, 3, {**group_dict(), "members": [member, {**member, "memberId": "b"}]})


@pytest.mark.parametrize("profile_name", PROFILES)
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=9), cut=st.integers(0, 9))
@example(steps=["group of one", "two with one instance id", "commit"], cut=0)
@example(steps=["group of one", "epoch of a consumer group", "group of two"], cut=1)
@example(steps=["group of one", "group of two", "trailing", "group of one"], cut=2)
def test_groups_are_those_of_the_sequential_replay(profile_name: str, steps: list[str], cut: int) -> None:
    profile = PROFILES[profile_name]
    history = History()
    for step in steps:
        STEPS[step](history)
    whole = [parse_batch(memoryview(data), 0) for data in history.batches]
    rules = FoldRules.of(profile)
    folds = [
        fold_batches(part, rules=rules, offsets_partition=0) for part in (whole[:cut], whole[cut:]) if part
    ]
    assert not differences(history.replay(profile), merge_folds(folds, profile, 0))
