"""Small logs that hold what the corpus does not, and that Kafka's own dump tools were run on.

``data/<log>/<release>.txt`` is the output of that release's ``DumpLogSegments --offsets-decoder
--print-data-log --deep-iteration`` on ``data/<log>/__consumer_offsets-0``.  To record it anew after a change
here: ``python -m tests.reports.tool_logs`` writes the segments, then run the tools on them.
"""

from __future__ import annotations

import struct
from pathlib import Path

from coordinator_core.log.types import Codec, ControlType
from coordinator_core.records.blobs import encode_consumer_assignment
from coordinator_core.records.codec import encode_key, encode_value
from tests.blobs import encode_consumer_subscription
from tests.log.builders import (
    NOW_MS,
    build_batch,
    build_control_batch,
    build_empty_batch,
    build_message,
    build_wrapper,
    segment_name,
)

DATA = Path(__file__).parent / "data"

Pair = tuple[bytes | None, bytes | None]

_UUID = bytes(range(1, 17))


def _offset_key(group: str = "g", topic: str = "t", partition: int = 0, key_type: int = 1) -> bytes:
    return encode_key(key_type, {"group": group, "topic": topic, "partition": partition})


def _commit(version: int, **fields: object) -> bytes:
    data = {"offset": 42, "metadata": "m", "commitTimestamp": NOW_MS, **fields}
    return encode_value(1, version, data)


def _member(member_id: str, subscription: bytes, assignment: bytes) -> dict[str, object]:
    return {
        "memberId": member_id,
        "clientId": "c",
        "clientHost": "/10.0.0.1",
        "rebalanceTimeout": 300000,
        "sessionTimeout": 45000,
        "subscription": subscription,
        "assignment": assignment,
    }


def _group(version: int, protocol_type: str, members: list[dict[str, object]], **fields: object) -> bytes:
    if version == 0:
        members = [{k: v for k, v in member.items() if k != "rebalanceTimeout"} for member in members]
    data = {
        "protocolType": protocol_type,
        "generation": 5,
        "protocol": "range" if members else None,
        "leader": members[0]["memberId"] if members else None,
        "members": members,
        **fields,
    }
    return encode_value(2, version, data)


def _group_key(group: str) -> bytes:
    return encode_key(2, {"group": group})


def _member_key(key_type: int) -> bytes:
    return encode_key(key_type, {"groupId": "g", "memberId": "m"})


def _v(version: int, body: str) -> bytes:
    return struct.pack(">h", version) + bytes.fromhex(body)


def _blob(version: int, blob: bytes) -> bytes:
    return struct.pack(">h", version) + blob[2:]


OWNED = {"topics": ["t"], "userData": b"\x00\x01", "ownedPartitions": [{"topic": "t", "partitions": [1]}]}
SUBSCRIPTION = encode_consumer_subscription(3, OWNED | {"generationId": 4, "rackId": "r"})
FREE_SUBSCRIPTION = encode_consumer_subscription(3, {"topics": ["t", "ü"]})
ASSIGNMENT = encode_consumer_assignment(
    0,
    {
        "assignedPartitions": [{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [2]}],
        "userData": b"\x00\xab\xcd",
    },
)
EMPTY_ASSIGNMENT = encode_consumer_assignment(1, {"assignedPartitions": [], "userData": b""})
TEXTS = 'quote " slash / back \\ controls \x00\x01\x08\t\n\x0b\x0c\r\x1b\x1f del \x7f \u2028 \u00e9 \U0001f600'


def odd_pairs() -> list[Pair]:
    """Keys and values that no broker writes, or that only some release understands."""
    group_bytes = b"\x00\x01" + struct.pack(">h", 14)
    malformed = b"\xed\xa0\x80 \xc3( \xe2\x82 \xf0\x9fx\xff"
    assert len(malformed) == 14
    offset_keys: list[Pair] = [
        (struct.pack(">hh", 18, 1) + b"g", b"\x00\x00"),
        (struct.pack(">hh", 24, 1) + b"g", None),
        (struct.pack(">hh", -1, 1) + b"g", b""),
        (encode_key(9, {"groupId": "g"}), _v(0, "0100")),
        (b"\x00", b"\x00\x00"),
        (b"", None),
        (b"\x00\x01\x00\x05ab", None),
        (b"\x00\x01\xff\xff", None),
        (_offset_key() + b"trailing", _commit(3, leaderEpoch=7) + b"more"),
        (_offset_key(), b""),
        (_offset_key(), b"\x00"),
        (_offset_key(), b"\x00\x01\x00"),
        (_offset_key(), _v(0, "000000000000002a7fff")),
        (_offset_key(), _v(0, "000000000000002affff0000000000000001")),
        (_offset_key(), _v(4, "000000000000002a00000007 8080808080 00")),
        (_offset_key(), _v(4, "000000000000002a00000007 8180020000")),
        (_offset_key(), _v(5, "000000000000002a00000007016d0000018bcfe5680000")),
        (_offset_key(), _v(-1, "000000000000002a00016d0000018bcfe56800")),
        (_offset_key(key_type=0), _commit(0)),
        (_offset_key(key_type=0), _commit(3, leaderEpoch=1)),
        (group_bytes + malformed + b"\x00\x01t\x00\x00\x00\x00", _commit(0, metadata=TEXTS)),
        (_offset_key(TEXTS, "ü", -1), _commit(1, expireTimestamp=-1, offset=-(1 << 63))),
        (_offset_key(), _commit(2, metadata="")),
        (_offset_key(), _commit(4, leaderEpoch=7, topicId="AQIDBAUGBwgJCgsMDQ4PEA")),
        (_offset_key(), _commit(4) + b"\x00"),
        (_offset_key(), _v(4, "000000000000002affffffff010000000000000001 01 00 10" + "00" * 16)),
        (
            _offset_key(),
            _v(4, "000000000000002affffffff010000000000000001 02 00 10" + _UUID.hex() + "07 02 abcd"),
        ),
        (_offset_key(), _v(4, "000000000000002affffffff010000000000000001 01 07 7f abcd")),
        (_offset_key(), _v(4, "000000000000002affffffff010000000000000001 01 00 03" + _UUID.hex())),
    ]
    members = [
        _member("m1", SUBSCRIPTION, ASSIGNMENT),
        _member("m2", FREE_SUBSCRIPTION, b""),
        _member("m3", b"", EMPTY_ASSIGNMENT),
        _member("m4", _blob(4, SUBSCRIPTION), _blob(9, ASSIGNMENT)),
        _member("m5", _blob(4, FREE_SUBSCRIPTION), _blob(4, EMPTY_ASSIGNMENT)),
        _member("m6", _blob(-1, SUBSCRIPTION), _blob(-2, ASSIGNMENT)),
        _member("m7", SUBSCRIPTION + b"left over", ASSIGNMENT + b"left over"),
        _member("m8", SUBSCRIPTION[:-3], ASSIGNMENT[:-1]),
        _member("m9", _blob(1, encode_consumer_subscription(1, OWNED)), b"\x00"),
    ]
    groups: list[Pair] = [
        (_group_key("g"), _group(3, "consumer", members, currentStateTimestamp=NOW_MS)),
        (_group_key("g"), _group(4, "consumer", members)),
        (_group_key("g"), _group(1, "connect", members[:1])),
        (_group_key("g"), _group(0, "", [], protocol=None)),
        (_group_key("g"), _group(2, "consumer", [], protocol="", leader="")),
        (_group_key("g"), _v(3, "0000 00000001 ffff ffff ffffffffffffffff 7fffffff")),
        (_group_key("g"), _v(3, "0000 00000001 ffff ffff ffffffffffffffff ffffffff")),
        (_group_key("g"), _v(7, "0000 00000001 ffff ffff ffffffffffffffff 00000000")),
    ]
    modern: list[Pair] = [
        (_member_key(5), _v(0, "000000000263032f6802027400000493e00000")),
        (_member_key(5), _v(0, "0000000263032f6802027400000493e00001000100")),
        (_member_key(5), _v(0, "0000000263032f6802027400000493e000010006010000000101 00".replace(" ", ""))),
        (_member_key(5), _v(0, "0000000263032f6802027400000493e00002 0001ff 0901ee")),
        (_member_key(8), _v(0, "0000000700000006 00 02" + _UUID.hex() + "020000000001 00 01 01 0100")),
        (_member_key(8), _v(0, "0000000700000006 02 02" + _UUID.hex() + "020000000001 00 01 00 0100")),
        (
            _member_key(8),
            _v(0, "0000000700000006 7f 02" + _UUID.hex() + "020000000001 00 05 0200000004 0100"),
        ),
        (_member_key(8), _v(0, "000000070000000600000008010101 00 000001 00")),
        (_member_key(7), _v(0, "00010000 0001 00")),
        (
            encode_key(4, {"groupId": "g"}),
            _v(0, "02" + _UUID.hex() + "0274000000010200000000020272000000 00"),
        ),
        (encode_key(3, {"groupId": "g"}), _v(0, "00000007 01 00 08 1122334455667788")),
        (encode_key(6, {"groupId": "g"}), _v(0, "00000007 01 00 08 0000018bcfe56800")),
        (encode_key(11, {"groupId": "g"}), _v(0, "00000007 00")),
        (encode_key(11, {"groupId": "g"}), _v(0, "00000007 1122334455667788 00")),
        (encode_key(15, {"groupId": "g"}), _v(0, "01 01 00")),
        (encode_key(15, {"groupId": "g"}), _v(0, "02" + _UUID.hex() + "02740200000005 00 01 01 00")),
        (
            encode_key(16, {"groupId": "g", "regularExpression": ".*"}),
            _v(0, "0202740000000000000009" + "ff" * 8 + "00"),
        ),
        (encode_key(17, {"groupId": "g"}), _v(0, "00000007 0000000000000009 02 0004 00000003 0101 00")),
        (encode_key(17, {"groupId": "g"}), _v(0, "00000007 0000000000000009 01 01 01 01")),
        (
            encode_key(17, {"groupId": "g"}),
            _v(0, "00000007 0000000000000009 02 02 04 00000003 03 04 fffffffe"),
        ),
        (_member_key(19), _v(0, "0000 0263 026800000001 00000002 0270 01 0268 ffff00 02 026b 0276 00 00")),
    ]
    return [*offset_keys, *groups, *modern]


def odd_segment() -> bytes:
    """One batch for each odd pair, so that a tool that skips a record shows it."""
    out = b""
    for offset, pair in enumerate(odd_pairs()):
        out += build_batch(offset, [pair])
    return out


def _legal_pairs(group_version: int) -> list[Pair]:
    many = [_member(f"member-{index:02d}", SUBSCRIPTION, ASSIGNMENT) for index in range(30)]
    few = [_member(name, FREE_SUBSCRIPTION, EMPTY_ASSIGNMENT) for name in ("Aa", "BB", "consumer-1", "x")]
    worker = [_member("worker", b"\x00\x01", b"\x00\x00\x0a\x0b")]
    return [
        (_offset_key("g-simple ünïcode", "orders"), _commit(1, metadata="", expireTimestamp=NOW_MS + 1)),
        (_offset_key(), _commit(0, metadata='héllo 世界 😀 "quoted"\ttab')),
        (_group_key("few"), _group(group_version, "consumer", few)),
        (_group_key("many"), _group(group_version, "consumer", many)),
        (_group_key('"connect"'), _group(group_version, "connect", worker)),
        (_group_key("empty"), _group(group_version, "consumer", [])),
        (_group_key("new"), _group(group_version, "", [], generation=0)),
        (_offset_key(), None),
        (_group_key("few"), None),
    ]


def legacy_segment() -> bytes:
    """Messages of formats 0 and 1, plain and in wrappers, as brokers up to 0.10.2 write them."""
    pairs = _legal_pairs(0)
    out = b"".join(build_message(offset, *pair, magic=0) for offset, pair in enumerate(pairs))
    out += build_wrapper(9, pairs[:2], codec=Codec.GZIP, magic=0)
    out += b"".join(build_message(11 + offset, *pair, magic=1) for offset, pair in enumerate(pairs))
    out += build_wrapper(20, pairs[:3], codec=Codec.SNAPPY)
    out += build_wrapper(23, pairs[:2], codec=Codec.LZ4, log_append_time=NOW_MS + 5)
    return out + build_wrapper(25, [(*pairs[0], NOW_MS, 0), (*pairs[1], NOW_MS + 1, 4)], codec=Codec.GZIP)


def batches_segment() -> bytes:
    """Batches of format 2: codecs, transactions, markers, headers, holes, a delete horizon."""
    pairs = _legal_pairs(1)
    headers = (("a", b"1"), ("b", None))
    out = build_batch(0, pairs, base_sequence=0, leader_epoch=3)
    out += build_batch(9, pairs[:2], codec=Codec.GZIP)
    out += build_batch(11, pairs[:2], producer_id=9, producer_epoch=1, transactional=True)
    out += build_control_batch(13, ControlType.COMMIT, producer_id=9, producer_epoch=2, coordinator_epoch=5)
    out += build_batch(14, pairs[:1], producer_id=10, transactional=True, base_sequence=0x7FFFFFFF)
    out += build_control_batch(15, ControlType.ABORT, producer_id=10)
    out += build_batch(16, [(*pairs[1], NOW_MS, 2, headers)], last_offset_delta=4)
    out += build_batch(21, pairs[:2], log_append_time=NOW_MS + 7)
    out += build_batch(23, pairs[7:], delete_horizon=NOW_MS + 86_400_000)
    out += build_empty_batch(25, 4, producer_id=9, producer_epoch=1, transactional=True)
    out += build_control_batch(30, 77, producer_id=9)
    return out + build_batch(31, pairs[:1], leader_epoch=4)


SEGMENTS = {"odd": odd_segment, "legacy": legacy_segment, "batches": batches_segment}


def write_segments() -> None:
    for name, build in SEGMENTS.items():
        directory = DATA / name / "__consumer_offsets-0"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / segment_name(0)).write_bytes(build())


if __name__ == "__main__":
    write_segments()
