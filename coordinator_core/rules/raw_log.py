"""Rules about the raw log, and about its transactions against the transaction coordinator's log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from coordinator_core.groups.model import TransactionOutcome
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.log_scan import LogScan, OffsetKeyEvent, scan_log
from coordinator_core.rules.model import Find, Limits, Rule, Severity
from coordinator_core.rules.needs import Need
from coordinator_core.rules.transaction_log import TransactionLog

_TEXT = frozenset({"group_id", "topic", "layout", "outcome"})


def _from_scan(columns: Sequence[str], rows: Callable[[LogScan], Sequence[tuple[Any, ...]]]) -> Find:
    """A rule's function over events of the scan: their place, and a value for each of ``columns``."""

    def find(facts: Facts, _: Limits) -> pa.Table:
        found = rows(scan_log(facts))
        made = {
            "offsets_partition": pa.array([row[0][0] for row in found], pa.int32()),
            "record_offset": pa.array([row[0][1] for row in found], pa.int64()),
        }
        for number, name in enumerate(columns, 1):
            kind = pa.string() if name in _TEXT else pa.int64()
            made[name] = pa.array([row[number] for row in found], kind)
        return pa.table(made)

    return find


def _offset_key_rows(events: Sequence[OffsetKeyEvent]) -> list[tuple[Any, ...]]:
    return [(event.place, event.group_id, event.topic, event.partition, event.other_offset) for event in events]


def _first_of(rows: Sequence[tuple[Any, ...]], *by: int) -> list[tuple[Any, ...]]:
    """The first of the rows of each partition and values ``by`` place, with their number at the end."""
    first: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        key = row[0][0], *(row[place] for place in by)
        first.setdefault(key, row)
        counts[key] += 1
    return [(*row, counts[key]) for key, row in first.items()]


def _orphans(facts: Facts, _: Limits) -> pa.Table:
    log: TransactionLog = facts.extra[Need.TRANSACTION_LOG]
    transactions = facts.table("transactions")
    rows = np.flatnonzero(transactions.equals("outcome", TransactionOutcome.OPEN))
    stats = facts.table("group_stats")
    ends: dict[int, int] = {}
    partitions = stats.numbers("offsets_partition").tolist()
    for partition, last in zip(partitions, stats.numbers("last_timestamp_ms").tolist(), strict=True):
        ends[partition] = max(ends.get(partition, -1), last)
    names = ("offsets_partition", "producer_id", "timestamp_ms")
    found = zip(*(transactions.numbers(name)[rows].tolist() for name in names), strict=True)
    newest_ms = max(log.updated_ms.values(), default=-1)
    # One that ended after this log was copied has its marker behind the end. One that goes on after the transaction log
    # was copied may have begun after that: the record that says Ongoing, before its first commit, is behind that end.
    unknown = np.array(
        [
            one not in log.going and log.updated_ms.get(one, -1) <= ends.get(partition, -1) and last_ms <= newest_ms
            for partition, one, last_ms in found
        ],
        np.bool_,
    )
    return transactions.rows(rows[unknown], "producer_id", "producer_epoch", "keys", "timestamp_ms")


OTHER_LAYOUT = Rule(
    "R09",
    "preview-record-layout",
    Severity.WARNING,
    summary="A group record is in a layout of a preview release that later releases read otherwise.",
    why="3.6 and 3.7 (consumer groups), 3.9 and 4.0 (share groups) wrote other fields under the same "
    "version. A newer coordinator misreads them, or does not load the partition.",
    evidence="The record, its type and layout.",
    remedy="Delete such groups before the upgrade: preview groups are not meant to survive it.",
    message="record of type {key_type} of {group_id} is in the layout {layout}",
    reads=(),
    needs=(Need.LOG,),
    find=_from_scan(("key_type", "group_id", "layout"), lambda scan: scan.layouts),
    also=("D6",),
)
EPOCHS_BACK = Rule(
    "R25",
    "batch-leader-epoch-moved-back",
    Severity.CRITICAL,
    summary="A batch of the offsets partition has a lower leader epoch than one before it.",
    why="No log has that: the copy was put together from several replicas, or torn.",
    evidence="The batch, both leader epochs.",
    remedy="Take the partition from one replica, as a whole.",
    message="leader epoch of the batch is {leader_epoch}, after {before}",
    reads=(),
    needs=(Need.LOG,),
    find=_from_scan(("leader_epoch", "before"), lambda scan: scan.epochs_back),
    also=("D14",),
)
TWO_KEYS = Rule(
    "R45",
    "two-keys-for-one-partition",
    Severity.WARNING,
    summary="Two different raw keys stand for the same group, topic and partition.",
    why="Bytes that are no UTF-8, or bytes behind the key, decode alike. The cleaner keeps both; which of "
    "them counts after a load depends on the order.",
    evidence="Both records.",
    remedy="Find the client that writes such names; compact the older record away.",
    message="{topic}-{partition} is committed under two raw keys, the other at record offset {other_offset}",
    reads=(),
    needs=(Need.LOG,),
    find=_from_scan(("group_id", "topic", "partition", "other_offset"), lambda scan: _offset_key_rows(scan.two_keys)),
    also=("D12",),
)
LONE_MARKER = Rule(
    "R51",
    "marker-without-commits",
    Severity.INFO,
    summary="Transaction markers of a producer have no commits before them.",
    why="Normal once the cleaner has removed them; in a young log a producer ended what it never began.",
    evidence="The first of them, how many, and the producer.",
    remedy="None.",
    message="{outcome} marker of producer {producer_id} without commits",
    reads=(),
    needs=(Need.LOG,),
    find=_from_scan(("producer_id", "outcome", "rows"), lambda scan: _first_of(scan.lone_markers, 1, 2)),
)
ORPHANED = Rule(
    "R52",
    "transaction-unknown-to-its-coordinator",
    Severity.CRITICAL,
    summary="A transaction is open here, and the transaction log knows no such one.",
    why="Its end marker was lost or will never be written (KAFKA-12979, KAFKA-20716): it hangs for ever. "
    "A transaction that is newer than all of the transaction log is left out: that copy may be older.",
    evidence="Producer id and epoch, how many offsets it holds.",
    remedy="kafka-transactions --bootstrap-server … abort --topic __consumer_offsets --partition "
    "<offsets partition> --start-offset <record offset>",
    message="producer {producer_id} has a transaction open with {keys:offset}, its coordinator has none",
    reads=("transactions", "group_stats"),
    needs=(Need.TRANSACTION_LOG,),
    find=_orphans,
)
LONE_TOMBSTONE = Rule(
    "R62",
    "tombstone-of-unknown-key",
    Severity.INFO,
    summary="Tombstones of a group are for keys that the log does not have.",
    why="Normal once the cleaner has removed what they deleted. Java coordinators write some for keys that never were: "
    "of type 2 when a group goes that only stored offsets, of type 4 when a KIP-848 group ends, though 4.1 and later "
    "have no such records, and of the assignment of a member that had none. Releases before 4.0 do not load a "
    "tombstone for an unknown KIP-848 group (KAFKA-17306).",
    evidence="The first of them, and how many.",
    remedy="None; rule R06 finds partitions that do not load.",
    message="tombstone of type {key_type} of {group_id} for a key that is not there",
    reads=(),
    needs=(Need.LOG,),
    find=_from_scan(("key_type", "group_id", "rows"), lambda scan: _first_of(scan.lone_tombstones, 2)),
)
SHADOWED = Rule(
    "R67",
    "deleted-offset-will-come-back",
    Severity.WARNING,
    summary="A tombstone of key type 1 deleted an offset whose record has key type 0.",
    why="To the cleaner they are two keys: it removes the tombstone in time, keeps the record, and the "
    "deleted offset is back after the next load.",
    evidence="The record, and its tombstone.",
    remedy="Let the group commit once more, or compact the record away.",
    message="{topic}-{partition} has a record of type 0, deleted only by a tombstone of type 1 at record "
    "offset {other_offset}",
    reads=(),
    needs=(Need.LOG,),
    find=_from_scan(("group_id", "topic", "partition", "other_offset"), lambda scan: _offset_key_rows(scan.shadowed)),
    also=("D2",),
)
