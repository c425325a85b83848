"""Incidents of writers outside of a group, of the offsets topic, and of several groups at once; each with a clean
twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator_core.log.types import ControlType
from tests.history.incidents import GROUP, ORDERS, Incident, member, reads, topics
from tests.history.logs import DAY, HOUR, MINUTE, T0, Client, Log
from tests.log.builders import build_empty_batch


def synced(log: Log, values: range) -> Log:
    """MirrorMaker's sync of group offsets: each minute a request of an Admin client, for a group without members."""
    for value in values:
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, value), leader_epoch=-1)
    return log


def synced_over(directory: Path, broken: bool) -> Path:
    """The application moved here after a failover; the sync from the old cluster was left on, and sets it back."""
    log, value = Log(), 1000
    for turn in range(4 if broken else 1):
        log.generation(GROUP, 2 * turn + 1, member(member=f"c-{turn}"))
        reads(log, GROUP, range(value, value + 300, 10)).wait(MINUTE).generation(GROUP, 2 * turn + 2)
        value = 940 + turn if broken else value + 300
        synced(log, range(value, value + 5))
        value += 5
    return log.write(directory)


def two_syncs(directory: Path, broken: bool) -> Path:
    """Two clusters sync the offsets of an idle group to this one, each its own."""
    log = Log()
    for value in range(12):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 5000 + value), leader_epoch=-1)
        if broken:
            log.wait(20_000).commit(GROUP, dict.fromkeys(ORDERS, 3100 + value), leader_epoch=-1)
    return log.write(directory)


def nightly_reset(directory: Path, broken: bool) -> Path:
    """A forgotten job resets a group each night, while its consumers are restarted."""
    log, value = Log(), 0
    for day in range(4):
        log.generation(GROUP, 2 * day + 1, member(member=f"c-{day}"))
        reads(log, GROUP, range(value, value + 230, 10), every=HOUR).wait(HOUR // 2).generation(GROUP, 2 * day + 2)
        log.wait(HOUR // 4)
        if broken:
            log.commit(GROUP, dict.fromkeys(ORDERS, 0), leader_epoch=-1)
        value = 0 if broken else value + 230
        log.wait(HOUR // 4)
    log.generation(GROUP, 9, member(member="c-9"))
    return reads(log, GROUP, range(value, value + 50, 10)).write(directory)


def reset_undone(directory: Path, broken: bool) -> Path:
    """Somebody resets an idle group of a standby cluster; the sync sets it back within a minute."""
    log = synced(Log(), range(8000, 8100, 10))
    if broken:
        log.wait(MINUTE // 2).commit(GROUP, dict.fromkeys(ORDERS, 400), leader_epoch=-1).wait(-MINUTE // 2)
    return synced(log, range(8100, 8200, 10)).write(directory)


def emptied(log: Log, producer_id: int) -> None:
    """What the cleaner leaves of a batch whose records are all gone."""
    is_transactional = producer_id >= 0
    log.data += build_empty_batch(
        log.next_offset,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        transactional=is_transactional,
        timestamp=log.at,
    )
    log.next_offset += 1


def transaction(log: Log, value: int) -> Log:
    return log.commit(GROUP, dict.fromkeys(ORDERS, value), producer_id=7).marker(ControlType.COMMIT, 7)


def kept_markers(directory: Path, broken: bool) -> Path:
    """Streams with exactly once: the cleaner takes the commits, and leaves an empty batch and a marker of each."""
    log = Log()
    for _ in range(150):
        if broken:
            emptied(log, 7)
            log.marker(ControlType.COMMIT, 7)
        else:
            log.skip(5)
        log.wait(5 * MINUTE)
    return transaction(log, 150).write(directory)


def old_markers(directory: Path, broken: bool) -> Path:
    """Cleanings come so often that the time after which a marker may go never passes."""
    log = Log()
    for _ in range(1500):
        log.skip(4)
        if broken:
            log.marker(ControlType.COMMIT, 7)
        log.wait(10 * MINUTE)
    return transaction(log, 1500).write(directory)


def cleaner_stopped(directory: Path, broken: bool, *, commits: int = 80) -> Path:
    """The cleaner died a while ago: what it had cleaned before is small, and the rest is as it was written."""
    groups = [f"group-{number}" for number in range(8)]
    keys = [("orders", number) for number in range(40)]
    log = Log(commit_version=1).commit("group-0", dict.fromkeys(keys, 7)).skip(100_000)
    log.commit("group-1", dict.fromkeys(keys, 7)).roll()
    for segment in range(4):
        if not broken:
            log.skip(5000)
        for value in range(commits):
            for group in groups:
                log.commit(group, dict.fromkeys(keys, 1000 * segment + value + 8))
            log.wait(80 * MINUTE // commits)
        log.roll()
    return log.commit("group-2", dict.fromkeys(keys, 9999)).write(directory)


def rounds(directory: Path, broken: bool) -> Path:
    """A cleaner that leaves an empty batch at the end of each of its rounds."""
    log = Log().generation(GROUP, 1, member())
    for _ in range(120 if broken else 1):
        log.skip(50)
        emptied(log, -1)
        log.wait(HOUR)
    return reads(log, GROUP, range(100, 110)).write(directory)


FIRST, SECOND = ORDERS[:2], ORDERS[2:]


def hung_member(directory: Path, broken: bool, *, with_topics: bool = True) -> Path:
    """One of two instances hangs in a batch; its heartbeats go on."""
    log = Log().generation(
        GROUP,
        1,
        member(*FIRST, member="c-1"),
        member(*SECOND, member="c-2", instance_id="i-2", host="/10.0.0.2"),
    )
    for number in range(180):
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(FIRST, 1000 + 10 * number))
        if number < 30 or not broken:
            log.commit(GROUP, dict.fromkeys(SECOND, 1000 + 10 * number))
    log.write(directory)
    return topics(directory, *[(0, 2800)] * 4) if with_topics else directory


def silent_member(directory: Path, broken: bool) -> Path:
    """The same, and nothing is known of the topics."""
    return hung_member(directory, broken, with_topics=False)


def crash_loop(directory: Path, broken: bool) -> Path:
    """The only instance is killed at the same record each time, and started again."""
    log = Log().generation(GROUP, 1, member(member="c-0"))
    reads(log, GROUP, range(1000, 1100, 10))
    for turn in range(8):
        log.wait(2 * MINUTE).generation(GROUP, 2 * turn + 2)
        log.wait(8 * MINUTE).generation(GROUP, 2 * turn + 3, member(member=f"c-{turn + 1}"))
        if not broken:
            log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 1100 + 10 * turn))
    return topics(log.write(directory), *[(0, 1170)] * 4)


def gone_topic(directory: Path, broken: bool) -> Path:
    """A topic was deleted while its group was on a release that leaves the offsets."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100, 200, 10))
    if broken:
        log.commit(GROUP, {("returns", 0): 77})
    return topics(log.write(directory), *[(0, 190)] * 4)


def two_protocols(directory: Path, broken: bool) -> Path:
    """A Connect cluster was given the id of a group of consumers."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(100, 200, 10))
    log.wait(MINUTE).generation(GROUP, 2).wait(MINUTE)
    kind = "connect" if broken else "consumer"
    worker = Client("w-1", partitions=() if broken else ORDERS, client_id="connect-w-1", host="/10.0.0.7")
    return log.generation(GROUP, 3, worker, protocol_type=kind).write(directory)


def cluster_down(directory: Path, broken: bool) -> Path:
    """A cluster was off for nine days; the first sweep after its start takes the offsets of all groups."""
    log = Log()
    groups = [f"{GROUP}-{name}" for name in "abcde"]
    for name in groups:
        log.generation(name, 1, member()).commit(name, dict.fromkeys(ORDERS, 500)).wait(1000).generation(name, 2)
    log.epoch += 1
    log.wait(9 * DAY if broken else DAY)
    for name in groups if broken else ():
        log.tombstones(name, *ORDERS, with_group=True)
    return log.commit("other", {("events", 0): 1}).write(directory)


def groups_deleted(directory: Path, broken: bool) -> Path:
    """A clean-up job takes the groups of services that were scaled to nothing, one after the other."""
    log = Log()
    groups = [f"{GROUP}-{name}" for name in "abcde"]
    for name in groups:
        log.generation(name, 1, member()).commit(name, dict.fromkeys(ORDERS, 500)).wait(HOUR).generation(name, 2)
    log.wait(HOUR // 2)
    for name in groups[: 5 if broken else 1]:
        log.wait(200).tombstones(name, *ORDERS, with_group=True)
    return log.commit("other", {("events", 0): 1}).write(directory)


def older_state(directory: Path, broken: bool) -> Path:
    """A new coordinator that loaded an older state removes offsets that were committed an hour before."""
    log = Log().generation("other", 1, member(member="o-1")).commit("other", dict.fromkeys(ORDERS, 90))
    reads(log.generation(GROUP, 1, member()), GROUP, range(100, 160, 10))
    log.epoch += 1
    log.wait(HOUR)
    if broken:
        log.tombstones(GROUP, *ORDERS)
    return log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 170)).write(directory)


def pattern_storm(directory: Path, broken: bool) -> Path:
    """Members subscribe to a pattern, and a job makes a topic every minute that matches."""
    log = Log()
    for number in range(40 if broken else 4):
        names = ("orders", *(f"orders-{one}" for one in range(number)))
        log.wait(MINUTE).generation(GROUP, number + 1, member(topics=names))
        log.commit(GROUP, dict.fromkeys(ORDERS, 100 + number))
    return log.write(directory)


def long_metadata(directory: Path, broken: bool) -> Path:
    """A client keeps what it has acknowledged out of order in the metadata, and it grows."""
    log = Log().generation(GROUP, 1, member())
    for number in range(40):
        metadata = "x" * (100 * number if broken else 50)
        log.wait(MINUTE).commit(GROUP, {ORDERS[0]: 100}, metadata=metadata)
    return log.write(directory)


def paused_commits(directory: Path, broken: bool) -> Path:
    """The offsets topic had too few replicas in sync for three hours: each commit failed, and the members read on."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(1000, 1600, 10))
    log.commit("other", {("events", 0): 1})
    if not broken:
        reads(log, GROUP, range(1600, 3400, 10))
    return reads(log.wait(180 * MINUTE if broken else 0), GROUP, range(3400, 3600, 10)).write(directory)


def fenced_producers(directory: Path, broken: bool) -> Path:
    """Two instances with one transactional.id put each other out; each transaction of the loser is aborted."""
    log = Log().generation(GROUP, 1, member())
    for number in range(20):
        epoch = number if broken else 0
        fails = broken and number % 2 == 1
        log.wait(MINUTE).commit(GROUP, dict.fromkeys(ORDERS, 100 + number), producer_id=7, producer_epoch=epoch)
        log.wait(1000).marker(ControlType.ABORT if fails else ControlType.COMMIT, 7, producer_epoch=epoch)
    return log.write(directory)


def begins_at_the_end(directory: Path, broken: bool) -> Path:
    """A group was off for longer than the retention, and its consumers begin at the end (auto.offset.reset=latest)."""
    log = reads(Log().generation(GROUP, 1, member()), GROUP, range(1000, 1300, 10)).generation(GROUP, 2)
    log.wait((8 if broken else 6) * DAY)
    if broken:
        log.tombstones(GROUP, *ORDERS, with_group=True)
    log.wait(HOUR).generation(GROUP, 3, member(member="c-2"))
    return reads(log, GROUP, range(90_000 if broken else 1300, 90_100 if broken else 1400, 10)).write(directory)


def epoch_storm(directory: Path, broken: bool) -> Path:
    """The same under KIP-848: the coordinator sees the new topics, and bumps the epoch for each."""
    joined: dict[str, Any] = {
        "instanceId": None,
        "rackId": None,
        "clientId": "consumer-1",
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": [],
        "subscribedTopicRegex": "orders.*",
        "rebalanceTimeoutMs": 300_000,
        "serverAssignor": None,
    }
    log = Log().modern((5, {"groupId": GROUP, "memberId": "A"}, joined), (3, {"groupId": GROUP}, {"epoch": 1}))
    for epoch in range(2, 32 if broken else 5):
        log.wait(MINUTE).modern((3, {"groupId": GROUP}, {"epoch": epoch}))
    return log.write(directory)


WIDER = (
    Incident(
        "KAFKA-8335",
        "2.1.1",
        kept_markers,
        "transaction-leftovers-pile-up",
        ("150 empty batches and 150 end markers", "of producer 7", "KAFKA-8335"),
        "Upgrade the brokers",
        0,
        "KAFKA-8335",
        group=None,
        now_ms=T0 + DAY,
    ),
    Incident(
        "KAFKA-8522",
        "2.8.2",
        old_markers,
        "transaction-leftovers-pile-up",
        ("keeps 1,499 end markers", "more than 3 d older"),
        "3.1 or later",
        9,
        "KAFKA-8522",
        group=None,
        now_ms=T0 + 12 * DAY,
    ),
    Incident(
        "cleaner-stopped",
        "2.8.2",
        cleaner_stopped,
        "cleaner-stopped",
        ("up to record 100040", "4 closed segments with 102,400 records"),
        "log-cleaner.log",
        100_080,
        group=None,
        now_ms=T0 + DAY,
    ),
    Incident(
        "KAFKA-20452",
        "4.3.1",
        rounds,
        "empty-batches",
        ("120 empty batches", "end of a round"),
        "Nothing is needed",
        51,
        "KAFKA-20452",
        group=None,
        now_ms=T0 + 6 * DAY,
    ),
    Incident(
        "sync-over-own-commits",
        "3.9.2",
        synced_over,
        "synced-over-own-commits",
        ("4 times", "orders-0 from 1290", "by consumer-1 on /10.0.0.1) to 940", "sync.group.offsets.enabled"),
        "groups.exclude",
        122,
    ),
    Incident(
        "two-syncs",
        "3.9.2",
        two_syncs,
        "two-writers",
        ("in turn", "set from outside", "syncs of group offsets from two clusters"),
        "one direction",
        0,
    ),
    Incident(
        "nightly-reset",
        "3.9.2",
        nightly_reset,
        "offsets-set-again-and-again",
        ("4 times", "from 220", "to 0", "About every 1 d", "a job that resets"),
        "cron",
    ),
    Incident(
        "reset-undone-by-sync",
        "3.9.2",
        reset_undone,
        "reset-undone-by-sync",
        ("did not last", "from 8090 to 400", "at 8190 again"),
        "out of the sync",
        40,
    ),
    Incident(
        "hung-member",
        "3.9.2",
        hung_member,
        "member-stopped",
        ("instance i-2", "none of its 2 partitions", "stays at 1290", "3,020 records"),
        "removeMembersFromConsumerGroup",
        119,
    ),
    Incident(
        "silent-member",
        "3.9.2",
        silent_member,
        "member-silent",
        ("instance i-2", "every 1 min until", "other members went on for 2.5 h"),
        "Capture the topics",
    ),
    Incident(
        "crash-loop",
        "3.9.2",
        crash_loop,
        "restarts-without-progress",
        ("started 8 times", "stays at 1090"),
        "--shift-by",
    ),
    Incident(
        "topic-is-gone",
        "3.9.2",
        gone_topic,
        "committed-for-missing-topic",
        ("1 committed offset", "returns-0 at 77", "no such topic"),
        "--delete-offsets",
        41,
        now_ms=T0 + HOUR,
    ),
    Incident(
        "connect-under-a-consumers-id",
        "3.9.2",
        two_protocols,
        "protocol-type-changed",
        ("consumer-1 on /10.0.0.1", "of connect (connect-w-1 on /10.0.0.7) in generation 3"),
        "group.id of the Connect workers",
        42,
    ),
    Incident(
        "cluster-was-off",
        "3.9.2",
        cluster_down,
        "groups-lost-offsets-together",
        ("5 of 6 groups", "they expired", "for 9 d", "leader epoch 0 to 1"),
        "before brokers are started",
        30,
        group=None,
        now_ms=T0 + 10 * DAY,
    ),
    Incident(
        "groups-deleted-by-a-job",
        "3.9.2",
        groups_deleted,
        "groups-lost-offsets-together",
        ("5 of 6 groups", "somebody deleted the groups", "30 min to 4.5 h old"),
        "clean-up job",
        group=None,
        now_ms=T0 + DAY,
    ),
    Incident(
        "commits-refused-for-hours",
        "3.9.2",
        paused_commits,
        "commits-paused",
        ("for 3 h", "one came every 1 min", "from 1590 to 3400", "4 partitions"),
        "min.insync.replicas",
        242,
    ),
    Incident(
        "one-transactional-id-twice",
        "3.9.2",
        fenced_producers,
        "producer-begins-again",
        ("Producer 7", "19 times", "epoch 0 to 19", "40 commits of aborted"),
        "transactional.id of its own",
        1,
    ),
    Incident(
        "begins-at-the-end",
        "3.9.2",
        begins_at_the_end,
        "offsets-expired",
        ("expired", "354,840 records further", "auto.offset.reset=latest"),
        "--from-file",
        122,
        now_ms=T0 + 9 * DAY,
    ),
    Incident(
        "older-state-loaded",
        "3.9.2",
        older_state,
        "tombstones-without-a-rule",
        ("no rule of this release", "leader epoch 0 to 1", "older state"),
        "ACLs",
        30,
        group=None,
    ),
    Incident(
        "pattern-storm",
        "3.9.2",
        pattern_storm,
        "rebalance-storm",
        ("40 times", "in 39 of them nobody joined or left", "a pattern"),
        "narrow it",
    ),
    Incident(
        "epoch-storm",
        "4.1.0",
        epoch_storm,
        "rebalance-storm",
        ("31 times", "in 30 of them nobody joined or left: topics or their partitions changed"),
        "narrow it",
    ),
    Incident(
        "metadata-near-limit",
        "3.9.2",
        long_metadata,
        "metadata-near-limit",
        ("3,900 characters", "4,096 by default", "OFFSET_METADATA_TOO_LARGE"),
        "offset.metadata.max.bytes=16384 for all brokers, and restart them",
        40,
    ),
)
