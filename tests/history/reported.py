"""Incidents as people report them in questions and bug trackers, built by hand; each with a clean twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator_core.records.codec import encode_key, encode_value
from tests.history.further import TOPIC_ID
from tests.history.incidents import GROUP, ORDERS, member, reads, topics
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


def mirror_catches_up(directory: Path, broken: bool) -> Path:
    """MirrorMaker was stopped for a day and syncs again: offsets of an idle group step far ahead, which is right."""
    log = Log()
    for value in range(1000, 1300, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, value), leader_epoch=-1)
    log.wait(5 * MINUTE)
    for value in range(900_000, 900_100, 10):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, value), leader_epoch=-1)
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
            log.records(
                (encode_key(3, {"groupId": GROUP}), None), (generation, encode_value(2, 3, classic)), sequence=0
            )
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
