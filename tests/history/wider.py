"""Incidents of writers outside of a group, of the offsets topic, and of several groups at once; each with a clean
twin."""

from __future__ import annotations

from pathlib import Path

from coordinator_core.log.types import ControlType
from tests.history.incidents import GROUP, ORDERS, Incident, member, reads
from tests.history.logs import DAY, HOUR, MINUTE, T0, Log
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


def rounds(directory: Path, broken: bool) -> Path:
    """A cleaner that leaves an empty batch at the end of each of its rounds."""
    log = Log().generation(GROUP, 1, member())
    for _ in range(120 if broken else 1):
        log.skip(50)
        emptied(log, -1)
        log.wait(HOUR)
    return reads(log, GROUP, range(100, 110)).write(directory)


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
)
