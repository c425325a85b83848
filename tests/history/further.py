"""Incidents of kinds that people ask about and no report of the collection has, each with a clean twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator_core.log.types import ControlType
from coordinator_core.records.codec import encode_key, encode_value
from tests.history.incidents import GROUP, ORDERS, Incident, member, reads, topics
from tests.history.logs import DAY, HOUR, MINUTE, T0, Client, Log

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def aborted(directory: Path, broken: bool) -> Path:
    """A read-process-write loop that fails at the same record: each transaction is aborted, and tried again."""
    log = Log().generation(GROUP, 1, member())
    log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 100), producer_id=7).marker(ControlType.COMMIT, 7)
    for number in range(12):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 120 + (0 if broken else number)), producer_id=7)
        log.wait(1000).marker(ControlType.ABORT if broken or number % 4 == 1 else ControlType.COMMIT, 7)
    return log.write(directory)


def never_committed(directory: Path, broken: bool) -> Path:
    """enable.auto.commit=false, and nobody calls commitSync: each restart reads everything again."""
    log = Log()
    for generation in range(1, 5):
        log.generation(GROUP, 2 * generation - 1, member(member=f"c-{generation}"))
        if not broken:
            log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 10 * generation))
        if generation < 4:
            log.wait(DAY).generation(GROUP, 2 * generation)
    return log.wait(8 * HOUR).commit("other", {("events", 0): 1}).write(directory)


def idle_members(directory: Path, broken: bool) -> Path:
    """Scaled out to six instances; the topic has four partitions."""
    clients = [
        Client(f"c-{number}", partitions=ORDERS[number : number + 1], host=f"/10.0.0.{number}")
        for number in range(6 if broken else 4)
    ]
    log = Log().generation(GROUP, 1, *clients)
    return reads(log, GROUP, range(100, 200, 10)).write(directory)


def outside_commits(directory: Path, broken: bool) -> Path:
    """A Flink job: it commits at its checkpoints and joins no group, so that tools show no active members."""
    log = Log()
    if not broken:
        log.generation("flink-orders", 1, member())
    return reads(log, "flink-orders", range(100, 400, 10)).write(directory)


def share_group(directory: Path, broken: bool) -> Path:
    """Somebody looks for committed offsets of a share group."""
    if not broken:
        log = Log().generation(GROUP, 1, member())
        return reads(log, GROUP, range(100, 200, 10)).write(directory)
    joined: dict[str, Any] = {
        "rackId": None,
        "clientId": "sharing",
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": ["orders"],
    }
    log = Log().modern((10, {"groupId": GROUP, "memberId": "A"}, joined))
    log.modern((11, {"groupId": GROUP}, {"epoch": 1, "metadataHash": 1}))
    return log.write(directory)


def wrong_clock(directory: Path, broken: bool) -> Path:
    """A coordinator whose clock is 30 days ahead: its sweep finds everything of Empty groups too old."""
    log = Log().generation("reports", 1, member()).commit("reports", dict.fromkeys(ORDERS, 70))
    log.wait(MINUTE).generation("reports", 2)
    log.epoch += 1
    ahead = 30 * DAY if broken else 0
    log.wait(HOUR + ahead).commit("other", {("events", 0): 1})
    if broken:
        log.tombstones("reports", *ORDERS, with_group=True)
    log.epoch += 1
    return log.wait(HOUR - ahead).generation("reports", 3, member(member="c-2")).write(directory)


def poison(directory: Path, broken: bool) -> Path:
    """A record that cannot be handled: the consumer seeks back and commits the same offset again and again."""
    log = Log().generation(GROUP, 1, member())
    reads(log, GROUP, range(1000, 1200, 10))
    for number in range(120):
        values = dict.fromkeys(ORDERS, 1200 + 10 * number)
        log.wait(MINUTE).commit(GROUP, values | ({("orders", 2): 1193} if broken else {}))
    return topics(log.write(directory), *[(0, 2600)] * 4)


def overtaken_by_retention(directory: Path, broken: bool) -> Path:
    """The consumer was too slow: retention removed what it was to read next, and it was sent to the log start."""
    log = Log().generation(GROUP, 1, member())
    reads(log, GROUP, range(1000, 1400, 20))
    reads(log, GROUP, range(500_000 if broken else 1400, 500_200 if broken else 1600, 20))
    bounds = (499_900, 600_000) if broken else (0, 2000)
    return topics(log.write(directory), *[bounds] * 4)


def subscription_dropped(directory: Path, broken: bool) -> Path:
    """A release did not subscribe to a topic for eight days; its offsets expired although the group lived."""
    both, one = ("orders", "refunds"), ("orders",)
    refunds = (("refunds", 0), ("refunds", 1))
    log = Log().generation(GROUP, 1, member(*ORDERS, *refunds, topics=both))
    log.wait(MINUTE).commit(GROUP, dict.fromkeys((*ORDERS, *refunds), 800))
    log.wait(MINUTE).generation(GROUP, 2, member(topics=one if broken else both))
    for number in range(8):
        log.wait(DAY).commit(GROUP, dict.fromkeys(ORDERS if broken else (*ORDERS, *refunds), 810 + number))
    if broken:
        log.wait(MINUTE).tombstones(GROUP, *refunds)
    log.wait(MINUTE).generation(GROUP, 3, member(*ORDERS, *refunds, topics=both, member="c-2"))
    return log.wait(MINUTE).commit(GROUP, dict.fromkeys(refunds, 3 if broken else 820)).write(directory)


def fenced(directory: Path, broken: bool) -> Path:
    """A KIP-848 member misses its session timeout again and again, is fenced, and joins anew."""
    log = Log()
    epoch = 0

    def joins(name: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
        value = {
            "instanceId": None,
            "rackId": None,
            "clientId": name[0],
            "clientHost": "/10.0.0.1",
            "subscribedTopicNames": ["orders"],
            "subscribedTopicRegex": None,
            "rebalanceTimeoutMs": 300_000,
            "serverAssignor": None,
        }
        return 5, {"groupId": GROUP, "memberId": name}, value

    def bumped() -> tuple[int, dict[str, Any], dict[str, Any]]:
        nonlocal epoch
        epoch += 1
        return 3, {"groupId": GROUP}, {"epoch": epoch}

    log.modern(joins("A-0"), bumped())
    for turn in range(6 if broken else 2):
        name = f"B-{turn}"
        log.wait(4 * MINUTE).modern(joins(name), bumped())
        log.wait(4 * MINUTE)
        key = {"groupId": GROUP, "memberId": name}
        log.modern((8, key, None), (7, key, None), (5, key, None), bumped())
    return log.write(directory)


def connect_workers(directory: Path, broken: bool) -> Path:
    """A Connect worker that restarts again and again: each time all tasks stop."""
    log = Log()
    for number in range(30 if broken else 3):
        workers = ["w-1", "w-2"] if number % 2 else ["w-1"]
        value = {
            "protocolType": "connect",
            "generation": number + 1,
            "protocol": "sessioned",
            "leader": "w-1",
            "currentStateTimestamp": log.at,
            "members": [
                {
                    "memberId": f"{name}-{number}" if name == "w-2" else name,
                    "groupInstanceId": None,
                    "clientId": f"connect-{name}",
                    "clientHost": f"/10.0.0.{name[-1]}",
                    "rebalanceTimeout": 60_000,
                    "sessionTimeout": 10_000,
                    "subscription": b"\x00\x02",
                    "assignment": b"\x00\x02",
                }
                for name in workers
            ],
        }
        log.wait(MINUTE).records((encode_key(2, {"group": "connect-cluster"}), encode_value(2, 3, value)))
    return log.write(directory)


def moved_to_new_protocol(directory: Path, broken: bool) -> Path:
    """The first member with group.protocol=consumer came: the group is of another type now, its offsets stay."""
    log = Log().generation(GROUP, 7, member())
    reads(log, GROUP, range(100, 200, 10))
    if broken:
        joined: dict[str, Any] = {
            "instanceId": None,
            "rackId": None,
            "clientId": "consumer-1",
            "clientHost": "/10.0.0.1",
            "subscribedTopicNames": ["orders"],
            "subscribedTopicRegex": None,
            "rebalanceTimeoutMs": 300_000,
            "serverAssignor": None,
        }
        key = {"groupId": GROUP, "memberId": "c-2"}
        log.wait(MINUTE).records(
            (encode_key(2, {"group": GROUP}), None),
            (encode_key(5, key), encode_value(5, 0, joined)),
            (encode_key(3, {"groupId": GROUP}), encode_value(3, 0, {"epoch": 8})),
            sequence=0,
        )
    return log.write(directory)


def renamed(directory: Path, broken: bool) -> Path:
    """A release changed application.id: the new group begins at the oldest record."""
    log = Log().generation("billing-app", 1, member())
    reads(log, "billing-app", range(1000, 3000, 20))
    log.wait(MINUTE).generation("billing-app", 2)
    log.wait(MINUTE).generation("billing-app-v2", 1, member(member="c-2"))
    start = 10 if broken else 2990
    return reads(log, "billing-app-v2", range(start, start + 400, 20)).write(directory)


def large_generation(directory: Path, broken: bool) -> Path:
    """A group of very many members: its next generation does not fit into a message of the offsets topic."""
    names = tuple(f"topic-{number:03d}-{'x' * 60}" for number in range(10))
    members = [
        Client(f"member-{number:06d}-" + "x" * 60, topics=names, partitions=(("orders", number),))
        for number in range(1000 if broken else 100)
    ]
    return Log().generation(GROUP, 1, *members).write(directory)


def dead_cleaner(directory: Path, broken: bool) -> Path:
    """Many groups at a usual rate, four segments, and nothing was ever removed; of the twin a little was."""
    groups = [f"group-{number}" for number in range(8)]
    keys = [("orders", number) for number in range(40)]
    log = Log()
    for segment in range(4):
        if not broken:
            log.skip(10)
        for value in range(80):
            for group in groups:
                log.commit(group, dict.fromkeys(keys, 1000 * segment + value))
            log.wait(MINUTE)
        log = log.roll() if segment < 3 else log
    return log.write(directory)


def first_record_fails(directory: Path, broken: bool) -> Path:
    """One partition was never committed: its first record fails again and again."""
    log = Log().generation(GROUP, 1, member())
    reads(log, GROUP, range(1000, 2000, 10), keys=ORDERS[:3] if broken else ORDERS)
    return topics(log.write(directory), *[(0, 2000)] * 4)


FURTHER = (
    Incident(
        "transactions-aborted",
        "3.9.2",
        aborted,
        "transactions-aborted",
        ("12 transactions", "orders-0 stays at 100", "120", "producer 7"),
        "abortTransaction",
        6,
    ),
    Incident(
        "never-committed",
        "3.9.2",
        never_committed,
        "never-committed",
        ("nobody has ever committed", "generation 1", "auto.offset.reset"),
        "enable.auto.commit",
        0,
    ),
    Incident(
        "idle-members",
        "3.9.2",
        idle_members,
        "members-without-partitions",
        ("2 of 6 members", "4 partitions"),
        "more partitions",
        0,
    ),
    Incident(
        "flink-without-members",
        "3.9.2",
        outside_commits,
        "commits-without-members",
        ("no members", "Flink", "30 commits"),
        "no active members",
        group="flink-orders",
        now_ms=T0 + HOUR,
    ),
    Incident(
        "share-group",
        "4.1.0",
        share_group,
        "share-group",
        ("share group", "__share_group_state"),
        "kafka-share-groups.sh",
        1,
    ),
    Incident(
        "wrong-clock",
        "3.9.2",
        wrong_clock,
        "clock-went-back",
        ("30 d", "leader epoch 1", "4 committed offsets"),
        "NTP",
        12,
        group="reports",
        now_ms=T0 + 2 * HOUR,
    ),
    Incident(
        "poison-record",
        "3.9.2",
        poison,
        "partition-stopped",
        ("orders-2 stays at 1193", "committed again 119 times"),
        "fails again and again",
        559,
    ),
    Incident(
        "overtaken-by-retention",
        "3.9.2",
        overtaken_by_retention,
        "jumped-forward",
        ("from 1380 to 500000", "begins at 499900", "retention"),
        "retention.ms",
        81,
    ),
    Incident(
        "subscription-dropped",
        "3.9.2",
        subscription_dropped,
        "offsets-expired",
        ("2 committed offsets", "no member subscribed to refunds", "read again"),
        "--from-file",
        40,
        now_ms=T0 + 9 * DAY,
    ),
    Incident(
        "fenced-member",
        "4.1.0",
        fenced,
        "flapping-member",
        ("B on /10.0.0.1", "5 times"),
        "session.timeout.ms",
    ),
    Incident(
        "connect-worker-restarts",
        "3.9.2",
        connect_workers,
        "rebalance-storm",
        ("connect-cluster", "30 times", "connect-w-2 on /10.0.0.2"),
        "scheduled.rebalance.max.delay.ms",
        group="connect-cluster",
    ),
    Incident(
        "group-changes-type",
        "4.1.0",
        moved_to_new_protocol,
        "group-changed-type",
        ("classic group to a consumer group", "offsets stayed"),
        "group.protocol",
        41,
        now_ms=T0 + HOUR,
    ),
    Incident(
        "application-id-changed",
        "3.9.2",
        renamed,
        "group-took-over",
        ("billing-app-v2 is a new group", "with 10", "billing-app had come to 2980", "11,880 records"),
        "--from-file",
        397,
        group=None,
        now_ms=T0 + DAY,
    ),
    Incident(
        "new-group-id",
        "3.9.2",
        renamed,
        "group-is-new",
        ("first generation is of", "orders-0 at 10", "auto.offset.reset"),
        "without --group",
        402,
        group="billing-app-v2",
        now_ms=T0 + DAY,
    ),
    Incident(
        "generation-too-large",
        "3.9.2",
        large_generation,
        "record-near-max-message-bytes",
        ("billing", "max.message.bytes", "rebalances for ever"),
        "--add-config max.message.bytes",
        0,
    ),
    Incident(
        "cleaner-died",
        "2.8.2",
        dead_cleaner,
        "not-cleaned",
        ("No cleaner has ever run", "4 segments", "102,400 records"),
        "log-cleaner.log",
        0,
        group=None,
    ),
    Incident(
        "first-record-fails",
        "3.9.2",
        first_record_fails,
        "partition-never-committed",
        ("owns orders-3", "never this one", "2,000 records"),
        "first record that fails",
        0,
    ),
)
