"""For every rule a log with a fault that the rule finds, and no other.

A fault is made of records like those that brokers write, or would have written; the rest of the log is
healthy. ``FAULTS`` has one entry for each rule of the catalogue, which a test checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import ControlType
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.records.schemas import SHARE_4_0_LAYOUT
from tests.log.builders import NOW_MS, build_batch, build_message
from tests.rules.logs import (
    HEALTHY,
    OFFSETS,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    TOPICS,
    Log,
    Record,
    assignment,
    classic,
    commit,
    consumer_group,
    consumer_member,
    empty_group,
    log_of,
    marker,
    member,
    offset_tombstone,
    one,
    pending,
    share_group,
    subscription,
    topic,
)

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def with_topics(*topics: Any) -> dict[str, Any]:
    return TOPICS | {"topics": list(topics)}


def with_offsets_topic(racks: str = "aba", **changed: Any) -> dict[str, Any]:
    """``TOPICS`` with other settings of the offsets topic, or of each of its partitions; a rack for each broker."""
    config = OFFSETS["config"] | changed.pop("config", {})
    partitions = [info | changed for info in OFFSETS["partitions"]]
    brokers = [{"broker_id": number, "rack": rack} for number, rack in enumerate(racks)]
    found = with_topics(*TOPICS["topics"][:-1], OFFSETS | {"config": config, "partitions": partitions})
    return found | {"brokers": brokers}


def with_partition(**changed: Any) -> dict[str, Any]:
    """``TOPICS`` in which the partition of ``t`` is otherwise."""
    (partition,) = TOPICS["topics"][0]["partitions"]
    return with_topics(TOPICS["topics"][0] | {"partitions": [partition | changed]}, OFFSETS)


def damaged() -> bytes:
    data = bytearray(log_of(*HEALTHY, commit(offset=51)))
    data[-1] ^= 1
    return bytes(data)


def of_partition(number: int, partitions: int) -> str:
    """A group id that belongs into this offsets partition."""
    return next(name for name in (f"g{n}" for n in range(99)) if partition_for(name, partitions) == number)


def key_of_type(number: int) -> bytes:
    return number.to_bytes(2, "big") + b"\0\1g"


def large_member() -> dict[str, Any]:
    return member(subscribes=subscription("t") + bytes(600))


def moved(before: Record, after: Record, **more: Any) -> Log:
    """A group whose commit was one thing in the previous run, and is another now."""
    return one(classic(), before, after, previous=one(classic(), before), **more)


SIMPLE = commit("s", "u", offset=9)
"""The commit of a simple group, by an Admin client that knows the epoch."""

BOTH = classic("g", member(owns=assignment(t=[0, 1])))

UNCLEANED = {
    0: {
        0: log_of(classic(), *(commit(offset=number) for number in range(30))),
        31: log_of(commit(), base_offset=31),
    }
}
"""A closed segment whose commits are superseded, and the active one."""

MINUTE_MS = 60_000
SCALA = {"release": "3.9.2", "scanned": True, "now_ms": NOW_MS + 120 * MINUTE_MS}


def at(minute: float, *records: Record, sequence: int = -1) -> bytes:
    """One batch, so many minutes after ``NOW_MS``; a sequence number is what clients write."""
    return build_batch(0, list(records), timestamp=NOW_MS + int(minute * MINUTE_MS), base_sequence=sequence)


def committed(minute: float, offset: int, *partitions: int, version: int = 3, **more: Any) -> bytes:
    """One request, for ``partitions`` of ``t``."""
    time_ms = NOW_MS + int(minute * MINUTE_MS)
    records = [commit(partition=one, offset=offset, version=version, time_ms=time_ms, **more) for one in partitions]
    return at(minute, *records)


def _once(number: int) -> list[Any]:
    """A group that somebody made a random id for, and left."""
    name = f"web-{number:08x}-1111-2222-3333-444455556666"
    return [classic(name), commit(name), empty_group(name)]


STUCK = [committed(4 * number - 80, 50, 0, version=4) for number in range(21)]
THREE = [member(f"m{number}", owns=assignment(t=[number])) for number in range(3)]
DAY = 24 * 60

FAULTS: Mapping[str, Log] = {
    "R01": one(*HEALTHY, (key_of_type(99), b"\0\0abc")),
    "R02": one(*HEALTHY, (commit("s")[0], b"\0\x09" + bytes(30)), release="4.3.1"),
    "R03": Log({0: damaged()}, on_damage=OnDamage.RECOVER),
    "R04": Log({0: log_of(commit(of_partition(1, 2)))}, num_partitions=2),
    "R05": one(*HEALTHY, (commit("s")[0], b"\0\4short")),
    # A tombstone of a group that is not there: 3.8 does not load it (KAFKA-17306).
    "R06": one(*HEALTHY, (encode_key(3, {"groupId": "x"}), None), release="3.8.1", coordinator="new"),
    "R07": one(classic(), commit(), commit("s", key_type=0, version=3), release="4.0.1"),
    "R08": Log({0: log_of(*HEALTHY) + build_message(2, *commit("s", version=3), magic=1)}, release="3.9.2"),
    "R09": one(
        *HEALTHY,
        (
            encode_key(11, {"groupId": "s"}),
            encode_value(11, 0, {"epoch": 2}, SHARE_4_0_LAYOUT),
        ),
        scanned=True,
        # Later releases do not load it: that is R05, too.
        release="4.0.2",
    ),
    "R10": one(classic("g", member("m"), member("n")), commit()),
    "R11": one(classic("g", member("m", owns=assignment(t=[0], u=[0, 1]))), commit()),
    "R12": one(classic("g", member(owns=assignment(t=[0, 1]))), commit(), commit(offset=60), topics=TOPICS),
    "R13": one(*HEALTHY, topics=with_topics(topic("t", partitions=2))),
    "R14": one(classic(leader="gone"), commit()),
    "R15": one(classic(protocol=None), commit()),
    "R16": one(classic(generation=2), commit(), previous=one(*HEALTHY)),
    "R17": one(consumer_group(epoch=5), consumer_member(epoch=6), commit()),
    "R18": one(
        consumer_group(),
        consumer_member(),
        consumer_member(member_id="gone", owns={TOPIC_ID: [1]}, parts="target"),
        commit(),
    ),
    "R19": one(
        consumer_group(),
        consumer_member(member_id="m", instanceId="i"),
        consumer_member(member_id="n", instanceId="i", owns={TOPIC_ID: [1]}),
        commit(),
    ),
    "R20": one(consumer_group(), consumer_member(), commit(), previous=one(*HEALTHY)),
    "R21": one(classic("g", member(owns=b"\0")), commit()),
    "R22": Log(
        {
            0: log_of(commit(of_partition(1, 2))),
            1: log_of(commit(of_partition(1, 2))),
        },
        num_partitions=2,
    ),
    "R23": one(classic("g", large_member()), commit(), settings={"thresholds": {"max_message_bytes": 700}}),
    "R24": one(classic("g", member("m"), member("n", owns=b"")), commit()),
    "R25": one(build_batch(0, [classic()], leader_epoch=4), build_batch(0, [commit()], leader_epoch=3), scanned=True),
    "R30": moved(commit(offset=50), commit(offset=40)),
    "R31": one(classic(), commit(offset=101), topics=TOPICS),
    "R32": one(classic(), commit(offset=9), topics=TOPICS),
    "R33": one(classic(), commit(leader_epoch=-1)),
    "R34": moved(commit(offset=50, leader_epoch=3), commit(offset=60, leader_epoch=2)),
    "R35": one(classic(), commit(topicId=OTHER_TOPIC_ID), topics=TOPICS),
    "R36": one(*HEALTHY, SIMPLE, topics=TOPICS),
    "R37": one(classic(), commit(time_ms=NOW_MS + DAY_MS)),
    "R38": one(classic(), commit(metadata="ü" * 4097)),
    "R39": one(classic(), commit(), commit(partition=1)),
    "R40": one(*HEALTHY, now_ms=NOW_MS + 4 * DAY_MS),
    "R41": one(
        classic(),
        *(commit(offset=number) for number in range(30)),
        settings={"thresholds": {"storm_commits": 20, "storm_commits_per_second": 10}},
    ),
    "R42": moved(commit(time_ms=NOW_MS), commit(offset=60, time_ms=NOW_MS - 5_000)),
    "R43": one(*HEALTHY, commit(topic="u")),
    "R44": one(classic(), commit(offset=-1)),
    "R45": one(*HEALTHY, (commit("s", "u")[0] + b"x", commit("s", "u")[1]), commit("s", "u"), scanned=True),
    "R50": one(*HEALTHY, pending(commit("g", offset=70)), now_ms=NOW_MS + 1_000_000),
    "R51": one(*HEALTHY, marker(ControlType.COMMIT), scanned=True),
    "R52": one(*HEALTHY, pending(commit(offset=70)), going={"other": 8}),
    "R53": one(
        classic(),
        commit(),
        pending(commit("g", offset=70)),
        *(commit(offset=number) for number in range(51, 60)),
        settings={"thresholds": {"blocked_records": 8}},
    ),
    "R60": one(empty_group("s"), commit("s", "u"), now_ms=NOW_MS + 8 * DAY_MS),
    "R61": one(BOTH, commit(partition=1), offset_tombstone(), previous=one(BOTH, commit(partition=1), commit())),
    "R62": one(*HEALTHY, offset_tombstone("g", "u"), scanned=True),
    "R63": one(consumer_group(), consumer_member(parts="current"), commit(topic="t")),
    "R64": one(classic("g")),
    "R65": one(
        *HEALTHY,
        commit("gone"),
        (encode_key(2, {"group": "gone"}), None),
    ),
    "R66": one(*HEALTHY, SIMPLE, offset_tombstone("s", "u"), release="3.9.2"),
    "R67": one(
        *HEALTHY,
        commit("s", "u", key_type=0, version=0),
        commit("s", "u"),
        offset_tombstone("s", "u"),
        commit("s", "v"),
        release="3.9.2",
        scanned=True,
    ),
    "R68": one(*HEALTHY, share_group("s"), commit("s")),
    "R80": one(*HEALTHY, topics=with_offsets_topic(config={"cleanup.policy": "compact,delete"})),
    "R81": Log({0: {7: log_of(*HEALTHY, base_offset=7)}}),
    "R82": one(*HEALTHY, topics=with_offsets_topic(replicas=[0], isr=[0], config={"min.insync.replicas": "1"})),
    "R83": one(*HEALTHY, topics=with_offsets_topic(isr=[1])),
    "R84": one(*HEALTHY, topics=with_offsets_topic(isr=[0, 2])),
    "R85": one(*HEALTHY, topics=with_offsets_topic("aab", replicas=[0, 1], isr=[0, 1])),
    "R86": one(*HEALTHY, topics=with_offsets_topic(leader=2)),
    "R87": Log(UNCLEANED, now_ms=NOW_MS + DAY_MS),
    "R88": Log({0: {0: log_of(*HEALTHY), 2: b"", 3: b"", 4: b"", 5: log_of(commit(offset=51), base_offset=5)}}),
    "R89": one(classic(), commit(leader_epoch=3), topics=with_partition(leader_epoch=2, oldest_leader_epoch=1)),
    "R90": one(*HEALTHY, topics=with_partition(start_offset=0, first_record_ms=NOW_MS + DAY_MS)),
    "R91": one(classic(generation=200), commit()),
    "R92": one(*HEALTHY, previous=one(*HEALTHY, commit("gone"), offset_tombstone("gone"))),
    "R26": one(
        classic("g", member("m"), member("n", subscribes=subscription("u"), owns=assignment(u=[0]))),
        commit(),
        commit(topic="u"),
    ),
    "R27": one(*(record for number in range(60) for record in _once(number))),
    "R46": one(
        classic("g", member(owns=assignment(t=[0, 1]))),
        committed(-180, 50, 0, version=4),
        committed(0, 60, 1, version=4),
        topics=with_topics(topic("t", partitions=2, end=9000)),
    ),
    "R47": one(classic(), commit(metadata="x" * 4000)),
    "R48": one(classic(), *STUCK, topics=with_topics(topic("t", end=9000)), scanned=True),
    "R69": one(
        *HEALTHY,
        # At one moment they might have been deleted by somebody who looked for idle groups.
        at(0, empty_group("r"), commit("r", "ur", version=3)),
        at(60, empty_group("s", currentStateTimestamp=NOW_MS + 60 * 60_000), commit("s", "us", version=3)),
        at(2 * DAY, offset_tombstone("r", "ur"), (encode_key(2, {"group": "r"}), None)),
        at(2 * DAY + 60, offset_tombstone("s", "us"), (encode_key(2, {"group": "s"}), None)),
        committed(2 * DAY + 60, 51, 0),
        **SCALA | {"now_ms": NOW_MS + 2 * DAY_MS + 60 * 60_000},
    ),
    "R70": one(
        at(0, classic(generation=1)),
        committed(0, 50, 0),
        at(8 * DAY, empty_group(generation=2, currentStateTimestamp=NOW_MS + 8 * DAY_MS)),
        at(8 * DAY + 1, offset_tombstone()),
        at(8 * DAY + 2, classic(generation=3)),
        committed(8 * DAY + 3, 55, 0),
        **SCALA | {"release": "2.8.1", "now_ms": NOW_MS + 9 * DAY_MS},
    ),
    "R71": one(
        classic("g", member(owns=assignment(t=[0, 1]))),
        committed(0, 50, 0, 1),
        at(60, offset_tombstone(), sequence=17),
        committed(60, 60, 1),
        **SCALA,
    ),
    "R72": one(classic(), committed(0, 50, 0), committed(1, 40, 0), **SCALA),
    "R73": one(classic(), *(committed(n, 50 + n, 0) for n in range(5)), committed(6, 50_000, 0), **SCALA),
    "R74": one(classic(), *(committed(n, 5000 * (n % 2) + n, 0) for n in range(12)), **SCALA),
    "R75": one(
        classic("g", member("m", owns=assignment(t=[0, 1])), generation=2),
        committed(0, 50, 0, 1),
        classic("g", member("m"), member("n", owns=assignment(t=[1]))),
        committed(1, 60, 0, 1),
        **SCALA,
    ),
    "R76": one(*(at(n, classic("g", member(f"m{n}"), generation=n)) for n in range(30)), committed(30, 50, 0), **SCALA),
    "R77": one(
        *(at(3 * n, classic("g", *THREE[: 2 + n % 2], generation=n)) for n in range(14)),
        committed(60, 50, 0, 1, 2),
        **SCALA,
    ),
    "R78": one(*(at(n, classic("g", member(f"i-{n}", instance="i"))) for n in range(5)), committed(6, 50, 0), **SCALA),
    "R79": one(
        *HEALTHY,
        settings={"thresholds": {"offsets_load_buffer_bytes": 100}},
        **SCALA,
    ),
}
