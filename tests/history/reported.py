"""Incidents as people report them in questions and bug trackers, built by hand; each with a clean twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator_core.records.codec import encode_key, encode_value
from tests.history.further import TOPIC_ID
from tests.history.incidents import GROUP, ORDERS, Incident, member, reads, topics
from tests.history.logs import DAY, HOUR, MINUTE, Log


def partition_offline(directory: Path, broken: bool) -> Path:
    """The only replica of one offsets partition went away: its groups cannot commit, those of others go on."""
    log, other = Log(), Log()
    for name in ("billing", "shipping"):
        log.generation(name, 1, member(member=f"{name}-1"))
    other.generation("stock", 1, member(member="s-1"))
    for value in range(600):
        other.wait(MINUTE).commit("stock", dict.fromkeys(ORDERS, value))
        log.wait(MINUTE)
        for name in ("billing", "shipping"):
            if value < 240 or not broken:
                log.commit(name, dict.fromkeys(ORDERS, 10 * value))
    log.write(directory, 7)
    return other.write(directory, 12)


def down_at_night(directory: Path, broken: bool) -> Path:
    """The same for four hours, until the broker is back."""
    log = Log()
    for name in ("billing", "shipping"):
        log.generation(name, 1, member(member=f"{name}-1"))
    for value in range(120):
        for name in ("billing", "shipping"):
            log.commit(name, dict.fromkeys(ORDERS, 10 * value))
        log.wait(MINUTE)
        if value == 60:
            log.epoch += 1
            log.wait(4 * HOUR if broken else 0)
    return log.write(directory)


def lost_alone(directory: Path, broken: bool) -> Path:
    """The offsets of an active group are removed by no rule; another group reads the same topic on."""
    log = Log().generation("stock", 1, member(member="s-1")).generation(GROUP, 1, member())
    reads(log, "stock", range(100, 130))
    reads(log, GROUP, range(100, 130))
    if broken:
        log.wait(MINUTE).tombstones(GROUP, *ORDERS)
    reads(log, "stock", range(130, 160))
    return log.write(directory)


def streams_reset(directory: Path, broken: bool) -> Path:
    """kafka-streams-application-reset: a consumer without members seeks to the beginning and commits."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(1000, 1400, 10)).wait(MINUTE).generation(GROUP, 2)
    if broken:
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 0), leader_epoch=2)
    log.wait(MINUTE).generation(GROUP, 3, member(member="c-2"))
    return reads(log, GROUP, range(10 if broken else 1400, 200 if broken else 1600, 10)).write(directory)


def reset_of_assign(directory: Path, broken: bool) -> Path:
    """A reset of a group whose consumer runs with assign(): it is accepted, and overwritten a second later."""
    log = reads(Log(), GROUP, range(5000, 5400, 10))
    if broken:
        log.wait(MINUTE // 2).commit(GROUP, dict.fromkeys(ORDERS, 0), leader_epoch=-1).wait(-MINUTE // 2)
    return reads(log, GROUP, range(5400, 5800, 10)).write(directory)


def async_commits(directory: Path, broken: bool) -> Path:
    """commitAsync with a retry of its own: an older value comes after a newer one, and the next one is right again."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(1000, 1400, 10))
    if broken:
        log.wait(200).commit(GROUP, dict.fromkeys(ORDERS, 1380))
    return reads(log, GROUP, range(1400, 1800, 10)).write(directory)


def seeks_at_start(directory: Path, broken: bool) -> Path:
    """The application seeks to the beginning whenever it is given partitions: each deployment reads all again."""
    log, value = Log(), 0
    for turn in range(5):
        log.wait(MINUTE).generation(GROUP, 2 * turn + 1, member(member=f"c-{turn}"))
        value = 0 if broken else value
        reads(log, GROUP, range(value + 10, value + 2000, 20))
        value += 2000
        log.wait(MINUTE).generation(GROUP, 2 * turn + 2)
    return log.write(directory)


def other_case(directory: Path, broken: bool) -> Path:
    """A new deployment writes the group id with a capital letter."""
    log = reads(Log().generation("billing", 1, member()), "billing", range(1000, 3000, 20))
    log.wait(MINUTE).generation("billing", 2)
    name = "Billing" if broken else "billing"
    log.wait(MINUTE).generation(name, 1 if broken else 3, member(member="c-2"))
    start = 10 if broken else 3000
    return reads(log, name, range(start, start + 400, 20)).write(directory)


JOINED: dict[str, Any] = {
    "instanceId": None,
    "rackId": None,
    "subscribedTopicNames": ["orders"],
    "subscribedTopicRegex": None,
    "rebalanceTimeoutMs": 300_000,
    "serverAssignor": None,
}


def joins(name: str, host: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    value = JOINED | {"clientId": name, "clientHost": host}
    return 5, {"groupId": GROUP, "memberId": name}, value


def bumped(epoch: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
    return 3, {"groupId": GROUP}, {"epoch": epoch}


def owns(name: str, epoch: int, *partitions: int) -> tuple[int, dict[str, Any], dict[str, Any]]:
    value = {
        "memberEpoch": epoch,
        "previousMemberEpoch": epoch - 1,
        "state": 0,
        "assignedPartitions": [{"topicId": TOPIC_ID, "partitions": list(partitions)}] if partitions else [],
        "partitionsPendingRevocation": [],
    }
    return 8, {"groupId": GROUP, "memberId": name}, value


def leaves(name: str) -> list[tuple[int, dict[str, Any], None]]:
    return [(key_type, {"groupId": GROUP, "memberId": name}, None) for key_type in (8, 7, 5)]


def types_in_turn(directory: Path, broken: bool) -> Path:
    """Half of the fleet has group.protocol=consumer: whenever all of one kind are gone, the group changes its type."""
    log, generation = Log().generation(GROUP, 1, member()), encode_key(2, {"group": GROUP})
    for turn in range(3 if broken else 1):
        epoch = 10 * turn + 2
        reads(log, GROUP, range(100 + 100 * turn, 200 + 100 * turn, 10))
        key_type, key, value = joins("modern", "/10.0.0.2")
        log.wait(MINUTE).records(
            (generation, None),
            (encode_key(key_type, key), encode_value(key_type, 0, value)),
            (encode_key(3, {"groupId": GROUP}), encode_value(3, 0, {"epoch": epoch})),
            sequence=0,
        )
        log.wait(HOUR)
        if turn < 2 and broken:
            log.modern(*leaves("modern"), bumped(epoch + 1)).wait(MINUTE)
            classic = {
                "protocolType": "consumer",
                "generation": epoch + 2,
                "protocol": "range",
                "leader": "c-1-a",
                "currentStateTimestamp": log.at,
                "members": [member().value(3)],
            }
            gone = [(encode_key(key_type, {"groupId": GROUP}), None) for key_type in (6, 3)]
            log.records(*gone, (generation, encode_value(2, 3, classic)), sequence=0)
    return log.write(directory)


def modern_hung(directory: Path, broken: bool) -> Path:
    """One of two members of a KIP-848 group hangs in a batch; its heartbeats go on."""
    return topics(modern_silent(directory, broken), *[(0, 2800)] * 4, topic_id=TOPIC_ID)


def modern_silent(directory: Path, broken: bool) -> Path:
    """The same, and nothing is known of the topics but what commits name."""
    log = Log().modern(joins("a", "/10.0.0.1"), bumped(1), owns("a", 1, 0, 1, 2, 3)).wait(1000)
    log.modern(joins("b", "/10.0.0.2"), bumped(2), owns("a", 2, 0, 1)).wait(1000).modern(owns("b", 2, 2, 3))
    log.topic_id = TOPIC_ID
    for number in range(180):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS[:2], 1000 + 10 * number))
        if number < 30 or not broken:
            log.commit(GROUP, dict.fromkeys(ORDERS[2:], 1000 + 10 * number))
    return log.write(directory)


def modern_unowned(directory: Path, broken: bool) -> Path:
    """A KIP-848 member leaves, and a server-side assignor of somebody's own gives what it had to nobody."""
    log = Log().modern(joins("a", "/10.0.0.1"), bumped(1), owns("a", 1, 0, 1)).wait(1000)
    log.modern(joins("b", "/10.0.0.2"), bumped(2), owns("b", 2, 2, 3)).wait(1000)
    log.modern(joins("c", "/10.0.0.3"), bumped(3), owns("c", 3))
    reads(log, GROUP, range(100, 200, 10))
    log.wait(1000).modern(*leaves("b"), bumped(4)).wait(1000).modern(owns("c", 4, *(() if broken else (2, 3))))
    left = ORDERS[:2] if broken else ORDERS
    log = reads(log, GROUP, range(200, 800, 10), keys=left)
    return topics(log.write(directory), *[(0, 790)] * 4, topic_id=TOPIC_ID)


def day_retention(directory: Path, broken: bool) -> Path:
    """offsets.retention.minutes=1440 was kept from before 2.0: after a weekend all groups of a batch job are gone."""
    log = Log()
    for number in range(5):
        name = f"{GROUP}-{'abcde'[number]}"
        log.wait(7 * MINUTE).generation(name, 1, member()).commit(name, dict.fromkeys(ORDERS, 10)).generation(name, 2)
    log.wait(DAY - 25 * MINUTE if broken else DAY - 2 * HOUR)
    for number in range(5):
        name = f"{GROUP}-{'abcde'[number]}"
        if broken:
            log.tombstones(name, *ORDERS, with_group=True).wait(7 * MINUTE)
    for number in range(5):
        name = f"{GROUP}-{'abcde'[number]}"
        log.wait(DAY).generation(name, 3, member(member="c-2")).commit(name, dict.fromkeys(ORDERS, 1 if broken else 11))
    return log.write(directory)


def old_expiry(directory: Path, broken: bool) -> Path:
    """Retention was raised to a month with the upgrade; values of before carry the day that they were given."""
    log = (
        Log(commit_version=1, group_version=1).generation(GROUP, 1, member()).commit(GROUP, dict.fromkeys(ORDERS, 700))
    )
    log.wait(MINUTE).generation(GROUP, 2)
    log.group_version = log.commit_version = 3
    log.wait(DAY if broken else HOUR)
    if broken:
        log.tombstones(GROUP, *ORDERS, with_group=True)
    log.wait(HOUR).generation(GROUP, 3, member(member="c-2"))
    return reads(log, GROUP, range(5 if broken else 705, 100 if broken else 800, 5)).write(directory)


def worker_pool(directory: Path, broken: bool) -> Path:
    """Threads of a pool commit what each has done, in any order."""
    log = Log().generation(GROUP, 1, member())
    for value in range(1000, 3000, 10):
        log.wait(2000).commit(GROUP, {ORDERS[0]: value + (35 if broken and value % 40 == 0 else 0)})
    return log.write(directory)


def kicked_out(directory: Path, broken: bool) -> Path:
    """A member with long pauses misses its session timeout every 20 minutes, and joins anew; the other one stays."""
    first, second, log = ORDERS[:2], ORDERS[2:], Log()
    a = member(*first, member="a-1")
    for turn in range(20 if broken else 1):
        b = member(*second, member=f"b-{turn}", client_id="consumer-2", host="/10.0.0.2")
        log.generation(GROUP, 2 * turn + 1, a, b)
        reads(log, GROUP, range(1000 + 190 * turn, 1190 + 190 * turn, 10))
        if broken:
            log.wait(45_000).generation(GROUP, 2 * turn + 2, member(member="a-1")).wait(30_000)
    return log.write(directory)


def old_savepoint(directory: Path, broken: bool) -> Path:
    """A Flink job is started from a savepoint of an hour before."""
    log = reads(Log(), "flink-orders", range(1000, 2000, 10)).wait(3 * MINUTE)
    return reads(log, "flink-orders", range(1400 if broken else 2000, 2500, 10)).write(directory)


def assigned_and_quiet(directory: Path, broken: bool) -> Path:
    """A consumer with assign() commits after its work; the topic is quiet for a week, and the process restarts."""
    log = reads(Log(), GROUP, range(100, 400, 10)).wait(7 * DAY + 2 * MINUTE if broken else 2 * DAY)
    if broken:
        log.tombstones(GROUP, *ORDERS)
    return reads(log.wait(HOUR), GROUP, range(3 if broken else 400, 500, 10)).write(directory)


def sink_offsets_deleted(directory: Path, broken: bool) -> Path:
    """Somebody deletes the offsets of a stopped sink connector by Connect's REST interface."""
    group, client = "connect-sink", "connector-consumer-sink-0"
    log = reads(Log().generation(group, 1, member(client_id=client)), group, range(100, 500, 10))
    log.wait(MINUTE).generation(group, 2).wait(MINUTE)
    if broken:
        log.tombstones(group, *ORDERS, with_group=True)
    log.wait(MINUTE).generation(group, 1 if broken else 3, member(client_id=client, member="c-2"))
    return reads(log, group, range(10 if broken else 500, 200 if broken else 700, 10)).write(directory)


REPORTED = (
    Incident(
        "offsets-partition-offline",
        "3.9.2",
        partition_offline,
        "offsets-partition-silent",
        ("offsets partition 7", "(record 1921)", "6 h before", "billing, shipping", "it is not the groups"),
        "--unavailable-partitions",
        1921,
        group=None,
    ),
    Incident(
        "one-group-cannot-commit",
        "3.9.2",
        partition_offline,
        "offsets-partition-silent",
        ("offsets partition 7", "6 h before", "billing committed about every 1 min"),
        "compare with the ends of its topics",
        1921,
    ),
    Incident(
        "coordinator-down-at-night",
        "3.9.2",
        down_at_night,
        "offsets-partition-paused",
        ("for 4 h", "leader epoch 0 to 1", "2 groups", "billing, shipping"),
        "Replication factor 3",
        490,
        group=None,
    ),
    Incident(
        "lost-while-others-read-on",
        "3.9.2",
        lost_alone,
        "tombstones-without-a-rule",
        ("4 committed offsets", "no rule of this release", "another group has offsets of the topic and lost none"),
        "ACLs",
        242,
    ),
    Incident(
        "streams-application-reset",
        "3.9.2",
        streams_reset,
        "moved-back",
        ("5,560 records", "while the group had no members", "kafka-streams-application-reset"),
        "Ask who ran a reset",
        162,
    ),
    Incident(
        "reset-of-a-running-job",
        "3.9.2",
        reset_of_assign,
        "reset-without-effect",
        ("had no effect", "from 5390 to 0", "30 s later", "committed 5400", "no member of the group"),
        "Stop that client",
        160,
    ),
    Incident(
        "async-commit-overtaken",
        "3.9.2",
        async_commits,
        "commits-out-of-order",
        ("1 time", "orders-0 1390, then 1380 (record 161)", "consumer-1 on /10.0.0.1"),
        "commitAsync()",
        161,
    ),
    Incident(
        "commits-of-a-worker-pool",
        "3.9.2",
        worker_pool,
        "commits-out-of-order",
        ("50 times", "1035, then 1010", "25 records at most"),
        "Let one thread commit",
        2,
    ),
    Incident(
        "seeks-at-each-start",
        "3.9.2",
        seeks_at_start,
        "moved-back",
        ("4 partitions of billing", "at 4 starts", "seekToBeginning"),
        "onPartitionsAssigned",
        404,
    ),
    Incident(
        "group-id-in-capitals",
        "3.9.2",
        other_case,
        "group-took-over",
        ("Billing is a new group", "with 10", "billing had come to 2980"),
        "--from-file",
        397,
        group=None,
    ),
    Incident(
        "half-a-fleet-on-the-new-protocol",
        "4.3.1",
        types_in_turn,
        "group-type-goes-to-and-fro",
        ("5 times", "from a classic group to a consumer group", "modern on /10.0.0.2 and consumer-1 on /10.0.0.1"),
        "group.protocol alike",
        41,
    ),
    Incident(
        "hung-member-of-the-new-protocol",
        "4.1.0",
        modern_hung,
        "member-stopped",
        ("b on /10.0.0.2", "none of its 2 partitions", "stays at 1290", "3,020 records"),
        "thread dump of b",
    ),
    Incident(
        "silent-member-of-the-new-protocol",
        "4.1.0",
        modern_silent,
        "member-silent",
        ("b on /10.0.0.2", "every 1 min", "other members went on for 2.5 h"),
        "thread dump of b",
    ),
    Incident(
        "new-protocol-without-owner",
        "4.1.0",
        modern_unowned,
        "partitions-without-owner",
        ("nobody owns orders-2, orders-3", "c on /10.0.0.3", "generation 4"),
        "restart that member",
    ),
    Incident(
        "retention-of-a-day-was-kept",
        "3.9.2",
        day_retention,
        "offsets-expired",
        ("4 committed offsets of billing-b", "1440 minutes, the default retention before 2.0", "read again"),
        "Raise offsets.retention.minutes",
        group=f"{GROUP}-b",
    ),
    Incident(
        "expire-timestamps-of-old-brokers",
        "2.8.2",
        old_expiry,
        "offsets-expired",
        ("its own expire timestamp passed", "read again"),
        "carry an expire timestamp",
        6,
    ),
    Incident(
        "kicked-out-every-twenty-minutes",
        "3.9.2",
        kicked_out,
        "flapping-member",
        ("consumer-2 on /10.0.0.2", "8 times"),
        "session.timeout.ms",
    ),
    Incident(
        "flink-from-an-old-savepoint",
        "3.9.2",
        old_savepoint,
        "moved-back",
        ("2,360 records", "by Flink", "older checkpoint or savepoint"),
        "does not move a job that has one",
        400,
        group="flink-orders",
    ),
    Incident(
        "assign-and-a-quiet-topic",
        "3.9.2",
        assigned_and_quiet,
        "offsets-expired",
        ("4 committed offsets", "committed 7 d before", "read again"),
        "No member protects",
        120,
    ),
    Incident(
        "sink-offsets-deleted",
        "3.9.2",
        sink_offsets_deleted,
        "offsets-deleted",
        ("4 committed offsets of connect-sink", "DeleteGroups", "read again"),
        "PATCH or DELETE /connectors/sink/offsets",
        162,
        group="connect-sink",
    ),
)
