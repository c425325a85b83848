"""Plans of the bench: a log, and what is done with it in turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from coordinator_core.log.types import Codec
from tests.bench.workload import Workload

GB = 1_000_000_000
MB = 1_000_000


class Row(StrEnum):
    """Names of measurements, as in the tables."""

    BROKER = "broker loads the partitions"
    LOCAL = "`regroup replay --engine local`, whole process"
    SPARK = "`regroup replay --engine spark --master local[2]`, whole process"
    KERNEL = "decode, CRC and fold alone, one core"
    FIRST = "first run, fold cache empty, 95 % of the segments"
    SECOND = "second run, 5 % of the segments new"
    KAFKA_DUMP = "`kafka-dump-log --offsets-decoder --print-data-log`"
    DUMP = "`regroup dump`"
    CLEANER = "broker's log cleaner, one pass"
    COMPACT = "`regroup compact`, whole process, proof included"
    COMPACT_SPARK = "`regroup compact --engine spark --master local[2]`, the same"
    CONSUMER = "Kafka's consumer (`kafka-consumer-perf-test`), fetching alone"
    CAPTURE = "`regroup capture`, whole process"
    RULES = "`regroup reconcile`, whole process, the run alone"
    RULES_COMPARED = "`regroup reconcile`, with topics and the run before"
    RULES_SPARK = "`regroup reconcile --engine spark --master local[2]`, with topics and the run before"
    RULES_OVERDUE = "`regroup reconcile`, the same, and nearly all offsets past their retention"
    GROUP = "`regroup investigate --group`, whole process"
    HISTORY = "`regroup history` of all groups, whole process"
    CLUSTER = "`regroup investigate` of all groups, whole process"
    STRUCT = "plain Python, `struct`: newest value per key, nothing else"
    KAFKA_PYTHON = "kafka-python's record reader: newest value per key, nothing else"


@dataclass(frozen=True)
class Plan:
    """One table: ``rows`` are taken in turn on the same log, the first is the reference of the ratios."""

    name: str
    title: str
    workload: Workload
    rows: tuple[Row, ...]
    runs: int = 5

    def scaled(self, scale: float) -> Plan:
        """The same on a smaller log, to try the bench itself."""
        sizes = {
            name: max(1, round(getattr(self.workload, name) * scale))
            for name in ("target_bytes", "groups", "offset_keys", "segment_bytes")
        }
        return replace(self, workload=replace(self.workload, **sizes))


COMPACTIONS = (Row.CLEANER, Row.COMPACT, Row.COMPACT_SPARK)
RULES = (Row.LOCAL, Row.RULES, Row.RULES_COMPARED, Row.SPARK, Row.RULES_SPARK, Row.RULES_OVERDUE)
INVESTIGATIONS = (Row.LOCAL, Row.GROUP)
HISTORIES = (Row.LOCAL, Row.HISTORY)
REPLAYS = (Row.BROKER, Row.LOCAL, Row.SPARK, Row.KERNEL)


def _base(target_bytes: int) -> Workload:
    return Workload("base", target_bytes)


def _forward(target_bytes: int) -> Workload:
    """Log of consumers that go forward, as a table of values sees it."""
    return replace(_base(target_bytes), steps=500)


def _cache(target_bytes: int, segments: int) -> Workload:
    return replace(_base(target_bytes), segment_bytes=target_bytes // segments)


def _rules(offsets: int, groups: int, partitions: int = 4) -> Workload:
    """Log of as many committed offsets, all of them live; a commit takes some 110 bytes."""
    offset_keys = offsets // partitions
    return Workload(
        "rules",
        offset_keys * 125,
        groups=groups // partitions,
        offset_keys=offset_keys,
        partitions=partitions,
        in_turn=True,
    )


def _rebalances(target_bytes: int) -> Workload:
    """Log as people bring it after an incident: groups that never come to rest, of both kinds."""
    return Workload(
        "rebalances",
        target_bytes,
        groups=5 * target_bytes // MB,
        offset_keys=176 * target_bytes // MB,
        smallest_batch=1,
        group_batches=0.3,
        tombstone_batches=0.05,
        consumer_groups=0.5,
        members=8,
        value_versions=(4,),
        topics_per_group=2,
        commit_metadata=40,
        commits_with_metadata=0.2,
    )


QUICK = (
    Plan("replay", "Replay", _base(100 * MB), REPLAYS, 3),
    Plan("rebalances", "Replay: 30 % group records", _rebalances(100 * MB), REPLAYS[:2], 3),
    Plan("cache", "Fold cache", _cache(100 * MB, 20), (Row.FIRST, Row.SECOND), 3),
    Plan("dump", "Dump", _base(100 * MB), (Row.KAFKA_DUMP, Row.DUMP), 3),
    # The cleaner leaves the last segment alone.
    Plan("cleaner", "Log cleaner", replace(_base(100 * MB), segment_bytes=20 * MB), COMPACTIONS, 2),
    Plan("capture", "Capture", _base(100 * MB), (Row.CONSUMER, Row.CAPTURE), 3),
    Plan("rules", "Rules", _rules(500_000, 10_000), RULES, 2),
    Plan("investigate", "Investigate", _base(100 * MB), INVESTIGATIONS, 3),
    Plan("history", "History", _forward(100 * MB), HISTORIES, 3),
)

_LINEAR = tuple(
    Plan(
        f"linear-{megabytes}",
        f"Linear: {megabytes / 1000:g} GB",
        # Partitions of a gigabyte, and a small one of the same shape.
        Workload("linear", min(megabytes, 1000) * MB, partitions=max(1, megabytes // 1000))
        if megabytes >= 1000
        else Workload("linear", megabytes * MB, groups=5 * megabytes, offset_keys=176 * megabytes),
        (Row.LOCAL,),
        3,
    )
    for megabytes in (100, 1000, 3000, 10_000)
)

_MIXED = Workload(
    "mixed",
    300 * MB,
    groups=20_000,
    offset_keys=300_000,
    records_per_batch=100,
    smallest_batch=1,
    transactional=0.1,
    tombstones=0.01,
    metadata_every=20,
    codec=Codec.LZ4,
    partitions=4,
    partition_skew=1.0,
    shuffled=True,
    group_skew=1.0,
    consumer_groups=0.2,
    members=8,
    value_versions=(1, 3, 4),
    legacy_offset_keys=0.05,
    topics_per_group=5,
    commit_metadata=60,
    varied_names=True,
)

# A batch of all records of a group, then a batch of one commit.
_GROUPS_ALONE = Workload(
    "dump-groups",
    100 * MB,
    groups=2_000,
    offset_keys=20_000,
    records_per_batch=1,
    metadata_every=1,
    consumer_groups=1.0,
    members=8,
)

FULL = (
    Plan("replay", "Replay: 1 GB, one partition", _base(GB), REPLAYS),
    Plan("replay-4", "Replay: 4 partitions of 1 GB", replace(_base(GB), partitions=4), REPLAYS[:3]),
    Plan(
        "transactional",
        "Replay: 20 % of the commits in transactions",
        replace(_base(GB), transactional=0.2),
        REPLAYS[:2],
    ),
    Plan("zstd", "Replay: zstd", replace(_base(GB), codec=Codec.ZSTD), REPLAYS[:2]),
    Plan("lz4", "Replay: lz4", replace(_base(GB), codec=Codec.LZ4), REPLAYS[:2]),
    Plan("keys", "Replay: 752 000 committed offsets", replace(_base(GB), offset_keys=752_000), REPLAYS[:2]),
    Plan("rebalances", "Replay: 1 GB, 30 % group records", _rebalances(GB), REPLAYS[:2]),
    Plan(
        "mixed",
        "Replay: 4 uneven partitions of everything that logs hold, lz4",
        _MIXED,
        REPLAYS[:3],
        3,
    ),
    Plan("cache", "Fold cache: 4 GB in 40 segments", _cache(4 * GB, 40), (Row.FIRST, Row.SECOND)),
    Plan("cache-10", "Fold cache: 10 GB in 100 segments", _cache(10 * GB, 100), (Row.FIRST, Row.SECOND)),
    Plan("cache-1", "Fold cache: 1 GB in 20 segments", _cache(GB, 20), (Row.FIRST, Row.SECOND), 3),
    Plan("dump", "Dump: 100 MB", _base(100 * MB), (Row.KAFKA_DUMP, Row.DUMP)),
    Plan("dump-groups", "Dump: 100 MB of KIP-848 groups", _GROUPS_ALONE, (Row.KAFKA_DUMP, Row.DUMP)),
    *_LINEAR,
    Plan(
        "ten-million-offsets",
        "Scale: ten million live committed offsets",
        Workload("ten-million-offsets", 1_200 * MB, offset_keys=10_000_000, in_turn=True),
        (Row.LOCAL,),
        2,
    ),
    Plan(
        "groups",
        "Scale: 200 000 groups, one of them with 5 000 members",
        Workload(
            "groups",
            500 * MB,
            groups=200_000,
            offset_keys=1_000_000,
            consumer_groups=0.1,
            members=3,
            members_of_first_group=5_000,
        ),
        (Row.LOCAL,),
        2,
    ),
    Plan(
        "nothing-dead",
        "Scale: every record a committed offset of its own, metadata with each",
        Workload("nothing-dead", 500 * MB, offset_keys=6_000_000, in_turn=True, commit_metadata=60, group_skew=0.5),
        (Row.LOCAL,),
        2,
    ),
    Plan(
        "uneven",
        "Scale: 50 partitions, the first 50 times as large as the last",
        replace(_base(500 * MB), partitions=50, partition_skew=1.0),
        (Row.LOCAL,),
        2,
    ),
    Plan("capture", "Capture: 1 GB over loopback", _base(GB), (Row.CONSUMER, Row.CAPTURE)),
    Plan("references", "Plain Python: 100 MB", _base(100 * MB), (Row.STRUCT, Row.KAFKA_PYTHON, Row.LOCAL), 3),
    Plan("rules", "Rules: five million committed offsets", _rules(5_000_000, 100_000), RULES, 3),
    Plan("investigate", "Investigate one group: 1 GB", _base(GB), INVESTIGATIONS),
    Plan("investigate-rebalances", "Investigate one group: 30 % group records", _rebalances(GB), INVESTIGATIONS, 3),
    Plan("history", "History of all groups: 1 GB", _forward(GB), HISTORIES),
    Plan("history-jumps", "History of all groups: 1 GB, each commit ahead or back at random", _base(GB), HISTORIES),
    # Of a gigabyte it takes minutes.
    Plan("investigate-all", "Investigate all groups: 100 MB", _base(100 * MB), (Row.LOCAL, Row.CLUSTER), 1),
    Plan("cleaner", "Log cleaner: 1 GB", _base(GB), (*COMPACTIONS, Row.LOCAL), 2),
    Plan("cleaner-4", "Log cleaner: 4 partitions of 1 GB", replace(_base(GB), partitions=4), COMPACTIONS, 2),
)
