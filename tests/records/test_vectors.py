"""Known bytes: keys, values and blobs computed by hand and checked with an independent decoder."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_core.records.blobs import (
    blob_version,
    decode_consumer_assignment,
    decode_consumer_subscription,
    encode_consumer_assignment,
)
from coordinator_core.records.codec import (
    PREVIEW_3_7,
    SHARE_4_0,
    Key,
    Layouts,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from tests.blobs import encode_consumer_subscription
from tests.records.layouts import SHARE_3_9
from tests.records.reencoding import reencodes_exactly

NOW_MS = 1_700_000_000_000
TOPIC_ID = "AQIDBAUGBwgJCgsMDQ4PEA"
TOPIC_ID_HEX = "0102030405060708090a0b0c0d0e0f10"
SUBSCRIPTION = bytes.fromhex("000300000001000174ffffffff00000000ffffffffffff")
ASSIGNMENT = bytes.fromhex("000300000001000174000000020000000000000001ffffffff")

_COMMIT = {"offset": 42, "metadata": "m", "commitTimestamp": NOW_MS}
_COMMIT_7 = {"offset": 42, "leaderEpoch": 7, "metadata": "m", "commitTimestamp": NOW_MS}
_MEMBER_5 = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c",
    "clientHost": "/h",
    "subscribedTopicNames": ["t"],
    "subscribedTopicRegex": None,
    "rebalanceTimeoutMs": 300000,
    "serverAssignor": None,
}

KEYS = {
    "000100026731 000174 00000000": ("OffsetCommit", {"group": "g1", "topic": "t", "partition": 0}),
    "000000026731 000174 00000000": ("LegacyOffsetCommit", {"group": "g1", "topic": "t", "partition": 0}),
    "000200026731": ("GroupMetadata", {"group": "g1"}),
    "00050002673100026d31": ("ConsumerGroupMemberMetadata", {"groupId": "g1", "memberId": "m1"}),
    "001000026731 00022e2a": ("ConsumerGroupRegularExpression", {"groupId": "g1", "regularExpression": ".*"}),
}

VALUES: dict[str, tuple[int, int, str, dict[str, Any]]] = {
    "commit v0": (1, 0, "0000 000000000000002a 00016d 0000018bcfe56800", _COMMIT),
    "commit v1": (
        1,
        1,
        "0001 000000000000002a 00016d 0000018bcfe56800 0000018bf3f1ec00",
        _COMMIT | {"expireTimestamp": NOW_MS + 7 * 86_400_000},
    ),
    "commit v2": (1, 2, "0002 000000000000002a 00016d 0000018bcfe56800", _COMMIT),
    "commit v3": (1, 3, "0003 000000000000002a 00000007 00016d 0000018bcfe56800", _COMMIT_7),
    "commit v4 without topic id": (
        1,
        4,
        "0004 000000000000002a 00000007 026d 0000018bcfe56800 00",
        _COMMIT_7 | {"topicId": "A" * 22},
    ),
    "commit v4 with topic id": (
        1,
        4,
        "0004 000000000000002a 00000007 026d 0000018bcfe56800 01 00 10" + TOPIC_ID_HEX,
        _COMMIT_7 | {"topicId": TOPIC_ID},
    ),
    "legacy commit": (0, 0, "0000 000000000000002a 00016d 0000018bcfe56800", _COMMIT),
    "group v3": (
        2,
        3,
        "0003 0008636f6e73756d6572 00000005 000572616e6765 00026d31 0000018bcfe56800 00000001"
        "00026d31 ffff 000163 00082f312e322e332e34 000493e0 0000afc8"
        f"00000017 {SUBSCRIPTION.hex()} 00000019 {ASSIGNMENT.hex()}",
        {
            "protocolType": "consumer",
            "generation": 5,
            "protocol": "range",
            "leader": "m1",
            "currentStateTimestamp": NOW_MS,
            "members": [
                {
                    "memberId": "m1",
                    "groupInstanceId": None,
                    "clientId": "c",
                    "clientHost": "/1.2.3.4",
                    "rebalanceTimeout": 300000,
                    "sessionTimeout": 45000,
                    "subscription": SUBSCRIPTION,
                    "assignment": ASSIGNMENT,
                }
            ],
        },
    ),
    "new group": (
        2,
        3,
        "0003 0000 00000000 ffff ffff 0000018bcfe56800 00000000",
        {
            "protocolType": "",
            "generation": 0,
            "protocol": None,
            "leader": None,
            "currentStateTimestamp": NOW_MS,
            "members": [],
        },
    ),
    "epoch without hash": (3, 0, "0000 00000007 00", {"epoch": 7, "metadataHash": 0}),
    "epoch with hash": (
        3,
        0,
        "0000 00000007 01 00 08 1122334455667788",
        {"epoch": 7, "metadataHash": 0x1122334455667788},
    ),
    # To Kafka the absent tag means a struct of defaults; its brokers write null explicitly.
    "member without classic tag": (
        5,
        0,
        "0000 00 00 0263 032f68 020274 00 000493e0 00 00",
        _MEMBER_5 | {"classicMemberMetadata": {"sessionTimeoutMs": 0, "supportedProtocols": []}},
    ),
    "member of a broker, no classic member": (
        5,
        0,
        "0000 00 00 0263 032f68 020274 00 000493e0 00 01 00 01 00",
        _MEMBER_5 | {"classicMemberMetadata": None},
    ),
    "classic member": (
        5,
        0,
        "0000 00 00 0263 032f68 020274 00 000493e0 00 01 00 26 01 0000afc8 02 0672616e6765 18"
        f"{SUBSCRIPTION.hex()} 00 00",
        _MEMBER_5
        | {
            "classicMemberMetadata": {
                "sessionTimeoutMs": 45000,
                "supportedProtocols": [{"name": "range", "metadata": SUBSCRIPTION}],
            }
        },
    ),
    "current assignment": (
        8,
        0,
        f"0000 00000007 00000006 00 02 {TOPIC_ID_HEX} 03 00000000 00000001 00 01 00",
        {
            "memberEpoch": 7,
            "previousMemberEpoch": 6,
            "state": 0,
            "assignedPartitions": [{"topicId": TOPIC_ID, "partitions": [0, 1], "assignmentEpochs": []}],
            "partitionsPendingRevocation": [],
        },
    ),
}

LAYOUTS: dict[str, tuple[int, str, str, Layouts, dict[str, Any]]] = {
    "4 of 3.7": (
        4,
        "0000 00000003 01 00",
        "preview-3.7",
        PREVIEW_3_7,
        {"epoch": 3, "topics": []},
    ),
    "5 of 3.7": (
        5,
        "0000 00 00 0263 032f68 01 00 000493e0 00 02 0272 0001 0002 03 0004 03aabb 00 00",
        "preview-3.7",
        PREVIEW_3_7,
        _MEMBER_5
        | {
            "subscribedTopicNames": [],
            "assignors": [
                {
                    "name": "r",
                    "minimumVersion": 1,
                    "maximumVersion": 2,
                    "reason": 3,
                    "version": 4,
                    "metadata": b"\xaa\xbb",
                }
            ],
        },
    ),
    "7 of 3.7": (
        7,
        f"0000 00 02 {TOPIC_ID_HEX} 02 00000005 00 ffff 01 00",
        "preview-3.7",
        PREVIEW_3_7,
        {
            "error": 0,
            "topicPartitions": [{"topicId": TOPIC_ID, "partitions": [5]}],
            "metadataVersion": -1,
            "metadataBytes": b"",
        },
    ),
    "8 of 3.7": (
        8,
        "0000 00000007 00000006 00000008 01 01 01 00 0000 01 00",
        "preview-3.7",
        PREVIEW_3_7,
        {
            "memberEpoch": 7,
            "previousMemberEpoch": 6,
            "targetMemberEpoch": 8,
            "assignedPartitions": [],
            "partitionsPendingRevocation": [],
            "partitionsPendingAssignment": [],
            "error": 0,
            "metadataVersion": 0,
            "metadataBytes": b"",
        },
    ),
    "9 of 3.9": (
        9,
        f"0000 01 02 {TOPIC_ID_HEX} 0274 00 00",
        "share-3.9",
        SHARE_3_9,
        {"initializedTopics": [], "deletingTopics": [{"topicId": TOPIC_ID, "topicName": "t"}]},
    ),
    "11 of 4.0": (11, "0000 00000007 00", "share-4.0", SHARE_4_0, {"epoch": 7}),
    "11 of 3.9": (11, "0000 00000007 00", "share-4.0", SHARE_3_9, {"epoch": 7}),
    "15 of 4.0": (
        15,
        f"0000 02 {TOPIC_ID_HEX} 0274 02 00000005 00 01 00",
        "share-4.0",
        SHARE_4_0,
        {
            "initializedTopics": [{"topicId": TOPIC_ID, "topicName": "t", "partitions": [5]}],
            "deletingTopics": [],
        },
    ),
}


@pytest.mark.parametrize("text", KEYS)
def test_key(text: str) -> None:
    raw = bytes.fromhex(text)
    name, data = KEYS[text]
    number = int.from_bytes(raw[:2], "big")
    assert decode_key(raw) == Key(number, name, data)
    assert encode_key(number, data) == raw


@pytest.mark.parametrize("name", VALUES)
def test_value(name: str) -> None:
    key_type, version, text, data = VALUES[name]
    raw = bytes.fromhex(text)
    value = decode_value(key_type, raw)
    assert value == Value(version, data)
    assert list(value.data or ()) == list(data), "fields stand in schema order"
    assert encode_value(key_type, version, data) == raw
    assert reencodes_exactly(key_type, value, raw)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_of_an_early_release(name: str) -> None:
    key_type, text, layout, chosen, data = LAYOUTS[name]
    raw = bytes.fromhex(text)
    expected = Value(0, data, layout)
    assert decode_value(key_type, raw, chosen) == expected
    assert decode_value(key_type, raw) == expected, "found by trial"
    assert encode_value(key_type, 0, data, layout) == raw
    assert reencodes_exactly(key_type, expected, raw)


def test_subscription() -> None:
    data = {"topics": ["t"], "userData": None, "ownedPartitions": [], "generationId": -1, "rackId": None}
    assert decode_consumer_subscription(SUBSCRIPTION) == data
    assert blob_version(SUBSCRIPTION) == 3
    assert encode_consumer_subscription(3, data) == SUBSCRIPTION


def test_assignment() -> None:
    data = {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}], "userData": None}
    assert decode_consumer_assignment(ASSIGNMENT) == data
    assert encode_consumer_assignment(3, data) == ASSIGNMENT
