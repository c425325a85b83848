"""Differences between the copies of the old and the new coordinator: offsets, transactions, members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator_core.drill.model import HangingTransaction, OffsetChange
from coordinator_core.groups.model import PartitionState, Transaction, TransactionOutcome


@dataclass(slots=True)
class GroupChanges:
    """Changes of one group; see :class:`~coordinator_core.drill.model.GroupPrediction`."""

    regressed: list[OffsetChange] = field(default_factory=list)
    vanished: list[OffsetChange] = field(default_factory=list)
    undone: list[OffsetChange] = field(default_factory=list)
    hanging: list[HangingTransaction] = field(default_factory=list)

    @property
    def records_read_again(self) -> int:
        return sum((one.before or 0) - (one.after or 0) for one in self.regressed)


def changes(before: PartitionState, after: PartitionState) -> Mapping[str, GroupChanges]:
    """Changes by group id, of the groups that differ; offset keys and transactions in ascending order."""
    found: defaultdict[str, GroupChanges] = defaultdict(GroupChanges)
    for offset_key in sorted(before.offsets.keys() | after.offsets.keys()):
        old, new = before.offsets.get(offset_key), after.offsets.get(offset_key)
        was = old.committed_offset if old is not None and offset_key.group_id in before.groups else None
        now = new.committed_offset if new is not None and offset_key.group_id in after.groups else None
        if was == now:
            continue
        change = OffsetChange(offset_key.topic, offset_key.partition, was, now)
        group = found[offset_key.group_id]
        if now is None:
            group.vanished.append(change)
        elif was is not None and now < was:
            group.regressed.append(change)
        else:
            group.undone.append(change)
    for transaction in hanging(before, after):
        for group_id in transaction.groups:
            found[group_id].hanging.append(
                HangingTransaction(after.offsets_partition, transaction.producer_id, transaction.producer_epoch)
            )
    return found


def hanging(before: PartitionState, after: PartitionState) -> list[Transaction]:
    """Transactions whose end marker is lost: the transaction coordinator wrote it and will not again."""
    ended = {_identity(one) for one in before.transactions if one.outcome is not TransactionOutcome.OPEN}
    return [one for one in after.transactions if one.outcome is TransactionOutcome.OPEN and _identity(one) in ended]


def _identity(transaction: Transaction) -> tuple[int, int, int]:
    return transaction.producer_id, transaction.producer_epoch, transaction.first_record_offset


def lost_ms(before: PartitionState, after: PartitionState) -> int:
    """Milliseconds by which the newest commit of ``before`` is younger than the newest of ``after``."""
    newest = [
        max((one.commit_timestamp_ms for one in state.offsets.values()), default=None) for state in (before, after)
    ]
    if newest[0] is None:
        return 0
    if newest[1] is None:
        oldest = min(one.commit_timestamp_ms for one in before.offsets.values())
        return newest[0] - oldest
    return max(0, newest[0] - newest[1])
