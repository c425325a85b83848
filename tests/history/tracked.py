"""Incidents from bug trackers and questions, of kinds that had no log yet; each with a clean twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.history.incidents import GROUP, ORDERS, Incident, member, reads, topics
from tests.history.logs import HOUR, MINUTE, Log

MORE = tuple(("orders", number) for number in range(4, 6))
FIRST, SECOND = ORDERS[:2], ORDERS[2:]
NAMES = ("billing", "shipping", "stock", "mail")
JOBS = tuple(f"job-{letter}" for letter in "abcdef")


def expanded(directory: Path, broken: bool) -> Path:
    """Partitions are added to a busy topic; members find them minutes later, and begin at the end (latest)."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100_000, 101_800, 60))
    log.wait(5 * MINUTE).generation(GROUP, 2, member(*ORDERS, *MORE))
    for value in range(101_860, 103_660, 60):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, value))
        log.commit(GROUP, dict.fromkeys(MORE, value - 101_860 + (5_240 if broken else 60)))
    return log.write(directory)


def one_round(directory: Path, broken: bool) -> Path:
    """A cooperative assignor takes partitions from a member and gives them to another one in the same generation."""
    a, b = {"member": "a-1", "host": "/10.0.0.1"}, {"member": "b-1", "host": "/10.0.0.2"}
    log = Log(protocol="cooperative-sticky").generation(GROUP, 1, member(**a))
    reads(log, GROUP, range(100, 400, 10))
    if not broken:
        # B waits for what A gives up.
        log.wait(MINUTE).generation(GROUP, 2, member(*FIRST, **a), replace(member(**b), partitions=()))
    log.wait(3000).generation(GROUP, 2 if broken else 3, member(*FIRST, **a), member(*SECOND, **b))
    for value in range(400, 700, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, value)).commit(GROUP, dict.fromkeys(SECOND, value))
    return log.write(directory)


def all_back(directory: Path, broken: bool) -> Path:
    """A broker that leads again serves an older state of its groups, and all of them go back."""
    log = Log(group_version=1, commit_version=1)
    for name in NAMES:
        log.generation(name, 1, member(member=f"{name}-1"))
    for value in range(60):
        log.wait(MINUTE)
        for name in NAMES:
            log.commit(name, dict.fromkeys(ORDERS, 10_000 + 10 * value))
    log.epoch += 2
    log.wait(2 * MINUTE)
    for name in NAMES:
        log.generation(name, 2, member(member=f"{name}-2"))
    for value in range(60):
        log.wait(MINUTE)
        for name in NAMES:
            log.commit(name, dict.fromkeys(ORDERS, (10_100 if broken else 10_600) + 10 * value))
    return log.write(directory)


def hung(directory: Path, broken: bool, rebalance_timeout_ms: int = 300_000) -> Path:
    """Commits of a group end while those of another one go on: a rebalance hangs, of which nothing is written."""
    slow = replace(member(*FIRST, member="c-1"), rebalance_timeout_ms=rebalance_timeout_ms)
    log = Log().generation(GROUP, 1, slow, member(*SECOND, member="c-2"))
    log.generation("other", 1, member(member="o-1"))
    for value in range(9 * 60):
        log.wait(MINUTE).commit("other", dict.fromkeys(ORDERS, value))
        if value < 60 or not broken:
            log.commit(GROUP, dict.fromkeys(FIRST, 100 + value)).commit(GROUP, dict.fromkeys(SECOND, 100 + value))
    return log.write(directory)


def never_completed(directory: Path, broken: bool) -> Path:
    """A group stays in CompletingRebalance: its leader left before it had sent the assignment."""
    return topics(hung(directory, broken), *[(0, 5000 if broken else 640)] * 4)


def no_limit(directory: Path, broken: bool) -> Path:
    """A member with max.poll.interval.ms of Integer.MAX_VALUE hangs, and the others wait for it to rejoin."""
    return hung(directory, broken, 2_147_483_647)


def sync_stops(directory: Path, broken: bool) -> Path:
    """MirrorMaker's task was restarted, and translates the offsets of one group no more."""
    log = Log()
    for value in range(300):
        log.wait(MINUTE).commit("shipping", dict.fromkeys(ORDERS, 9000 + 10 * value), leader_epoch=-1)
        if value < 60 or not broken:
            log.commit(GROUP, dict.fromkeys(ORDERS, 1000 + 10 * value), leader_epoch=-1)
    return log.write(directory)


def lag_of_one(directory: Path, broken: bool) -> Path:
    """The last offset of each partition is an end marker, or a client commits the offset of what it has read last."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100, 400, 10))
    for _ in range(90):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 390))
    return topics(log.write(directory), *[(0, 391 if broken else 390)] * 4)


def begun_anew(directory: Path, broken: bool) -> Path:
    """Brokers had volumes that did not last; after a restart of all of them __consumer_offsets begins anew."""
    log = Log()
    for name in NAMES:
        log.wait(1000).generation(name, 1 if broken else 7, member(member=f"{name}-1"))
    for value in range(60):
        log.wait(MINUTE)
        for name in NAMES:
            log.commit(name, dict.fromkeys(ORDERS, 600_000 + 10 * value))
    return log.write(directory)


def retention_lowered(directory: Path, broken: bool) -> Path:
    """A rolling restart brings an offsets.retention.minutes of an hour; jobs that run at night lose their offsets."""
    log = Log().generation("other", 1, member(member="o-1"))
    for hour in range(9):
        if hour < len(JOBS):
            name = JOBS[hour]
            log.generation(name, 1, member()).commit(name, dict.fromkeys(ORDERS, 500)).wait(1000).generation(name, 2)
        reads(log, "other", range(60 * hour, 60 * hour + 60), keys=(("events", 0),))
    log.epoch += 1
    reads(log, "other", range(600, 610), keys=(("events", 0),))
    for name in JOBS if broken else ():
        log.tombstones(name, *ORDERS, with_group=True)
    log.wait(HOUR)
    for name in JOBS:
        log.generation(name, 1 if broken else 3, member()).commit(name, dict.fromkeys(ORDERS, 5 if broken else 505))
    return log.write(directory)


TRACKED = (
    Incident(
        "KAFKA-12478",
        "3.9.2",
        expanded,
        "partition-begun-late",
        ("2 new ones", "generation 2", "orders-4 is 5240 (record 126)", "up to 10,480 records"),
        "set these partitions to 0",
        126,
    ),
    Incident(
        "KAFKA-14639",
        "3.3.2",
        one_round,
        "partitions-moved-in-one-rebalance",
        ("2 partitions", "cooperative-sticky", "orders-2 from consumer-1 on /10.0.0.1", "generation 2"),
        "3.5.0 or later",
        121,
    ),
    Incident(
        "KAFKA-5600",
        "0.11.0.0",
        all_back,
        "groups-went-back-together",
        ("4 of 4 groups", "leader epoch 0 to 2, record 964", "KAFKA-5600"),
        "--format csv",
        968,
        "KAFKA-5600",
        group=None,
    ),
    Incident(
        "older-state-served",
        "0.11.0.1",
        all_back,
        "groups-went-back-together",
        ("4 of 4 groups", "leader epoch 0 to 2, record 964", "it had not the offsets"),
        "KAFKA-7447",
        968,
        group=None,
    ),
    Incident(
        "KAFKA-12890",
        "2.8.0",
        never_completed,
        "group-stopped",
        ("has members and 19,364 records to read", "8 h before"),
        "2.8.0 waits for it for ever (KAFKA-12890)",
    ),
    Incident(
        "rebalance-without-limit",
        "3.9.2",
        no_limit,
        "group-silent",
        ("every 1 min", "8 h before"),
        "24.9 d, the max.poll.interval.ms of consumer-1 on /10.0.0.1",
    ),
    Incident(
        "KAFKA-15905",
        "3.9.2",
        sync_stops,
        "commits-from-outside-stopped",
        ("by MirrorMaker", "every 1 min", "(record 479)", "translated no more"),
        "KAFKA-15905",
        479,
    ),
    Incident(
        "lag-of-one",
        "3.9.2",
        lag_of_one,
        "lag-of-one",
        ("4 partitions of orders", "orders-0 at 390 of 391", "end marker"),
        "kafka-console-consumer.sh",
    ),
    Incident(
        "volumes-did-not-last",
        "3.9.2",
        begun_anew,
        "offsets-topic-anew",
        ("4 of 4 groups", "generation 1", "billing in orders-0 at 600000"),
        "--to-datetime",
        0,
        group=None,
    ),
    Incident(
        "retention-lowered",
        "3.9.2",
        retention_lowered,
        "groups-lost-offsets-together",
        ("6 of 7 groups", "they expired", "of 250 or less", "another coordinator 9 min before", "when it starts"),
        "offsets.retention.minutes of all brokers",
        group=None,
    ),
    Incident(
        "retention-lowered-for-one",
        "3.9.2",
        retention_lowered,
        "offsets-expired",
        ("of 430 or less", "DeleteGroups request", "the log does not decide", "read again"),
        "put the offsets back",
        group=JOBS[2],
    ),
)
