"""Incidents of writers outside of a group, of the offsets topic, and of several groups at once; each with a clean
twin."""

from __future__ import annotations

from pathlib import Path

from tests.history.incidents import GROUP, ORDERS, Incident, member, reads
from tests.history.logs import DAY, HOUR, MINUTE, T0, Log


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


WIDER = (
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
