"""The replayed state against the coordinators' answers, difference by difference, each with its reason.

The log is pinned before the coordinators are asked, and read on to a second end after they answered. An answer
is explained by the state at the first end, or by a commit between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from coordinator_core.cluster.groups import NO_OFFSET
from coordinator_core.groups.model import REBALANCE_STATES, OffsetKey, PartitionState
from coordinator_core.restore.target import WITHOUT_MEMBERS

Json = dict[str, Any]


class Reason(StrEnum):
    """Why an answer differs from the pinned log."""

    NEWER = "newer"
    """A record behind the pinned end says what the coordinator says, or has changed it meanwhile."""
    OLDER = "older"
    """The coordinator says what an earlier record said that the log has replaced."""
    PENDING = "pending"
    """A commit in a transaction that is open in the log or at the coordinator."""
    WRONG = "wrong"
    """No record explains it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """``replayed`` and ``cluster`` are committed offsets of an offset key, or states of a group; ``None``: none."""

    reason: Reason
    group_id: str
    topic: str | None
    partition: int | None
    replayed: int | str | None
    cluster: int | str | None


@dataclass(frozen=True)
class CrossCheck:
    """``offset_keys`` and ``groups`` were compared; the rest are equal."""

    offset_keys: int
    groups: int
    differences: tuple[Difference, ...]

    def counts(self) -> dict[str, int]:
        found = Counter(difference.reason for difference in self.differences)
        return {reason.value: found[reason] for reason in Reason}


class Commit(NamedTuple):
    """A record of an offset key; ``committed_offset`` is ``None`` for a tombstone."""

    offsets_partition: int
    record_offset: int
    committed_offset: int | None


def cross_check(
    pinned: Sequence[PartitionState],
    later: Sequence[PartitionState],
    history: Mapping[OffsetKey, Sequence[Commit]],
    answered: Json,
    ends: Mapping[int, int],
) -> CrossCheck:
    """Compare the state at the pinned ``ends`` (by offsets partition) with the answers.

    ``later`` is the state at the second end; ``history`` has, for offset keys that differ, every commit up to the
    second end, in log order.
    """
    held = {offset_key: offset.committed_offset for offset_key, offset in _offsets(pinned)}
    after = {offset_key: offset.committed_offset for offset_key, offset in _offsets(later)}
    open_offset_keys = {
        offset_key for state in (*pinned, *later) for commits in state.pending.values() for offset_key in commits
    }
    said, unstable = answered_offset_keys(answered)
    differences = []
    offset_keys = held.keys() | said.keys()
    for offset_key in sorted(offset_keys):
        ours, theirs = held.get(offset_key), said.get(offset_key)
        if _answer_to(ours) == theirs:
            continue
        if offset_key in open_offset_keys or offset_key in unstable:
            reason = Reason.PENDING
        else:
            reason = _reason(theirs, after.get(offset_key), history.get(offset_key, ()), ends)
        differences.append(Difference(reason, *offset_key, ours, theirs))
    groups = _groups(pinned, later, answered)
    return CrossCheck(len(offset_keys), len(groups[0]), (*differences, *groups[1]))


def differing_offset_keys(pinned: Sequence[PartitionState], answered: Json) -> set[OffsetKey]:
    """Offset keys whose answer differs from the pinned log."""
    held = {offset_key: offset.committed_offset for offset_key, offset in _offsets(pinned)}
    said, _ = answered_offset_keys(answered)
    offset_keys = held.keys() | said.keys()
    return {offset_key for offset_key in offset_keys if _answer_to(held.get(offset_key)) != said.get(offset_key)}


def answered_offset_keys(answered: Json) -> tuple[dict[OffsetKey, int], set[OffsetKey]]:
    """Committed offsets by offset key, and the offset keys that are unstable."""
    said: dict[OffsetKey, int] = {}
    unstable = set()
    for group in answered["groups"]:
        for row in group["offsets"]:
            offset_key = OffsetKey(group["group_id"], row["topic"], row["partition"])
            if row["committed_offset"] is not None:
                said[offset_key] = row["committed_offset"]
            if row["pending"]:
                unstable.add(offset_key)
    return said, unstable


def _offsets(states: Iterable[PartitionState]) -> Iterable[tuple[OffsetKey, Any]]:
    for state in states:
        for offset_key, offset in state.offsets.items():
            if offset_key.group_id in state.groups:
                yield offset_key, offset


def _answer_to(committed_offset: int | None) -> int | None:
    """The answer of a coordinator for a committed offset: ``None`` (-1 in Kafka) also where -1 was committed."""
    return None if committed_offset == NO_OFFSET else committed_offset


def _reason(theirs: int | None, after: int | None, history: Sequence[Commit], ends: Mapping[int, int]) -> Reason:
    said = [one for one in history if _answer_to(one.committed_offset) == theirs]
    if theirs == _answer_to(after) or any(one.record_offset >= ends[one.offsets_partition] for one in said):
        return Reason.NEWER
    return Reason.OLDER if said and theirs is not None else Reason.WRONG


def _groups(
    pinned: Sequence[PartitionState], later: Sequence[PartitionState], answered: Json
) -> tuple[set[str], list[Difference]]:
    """Groups that exist, and whether they have members: states beyond that change without a record."""

    def populated(states: Sequence[PartitionState]) -> dict[str, str]:
        return {
            group_id: _empty(str(group.state) if group.state else None)
            for state in states
            for group_id, group in state.groups.items()
        }

    ours, after = populated(pinned), populated(later)
    theirs = {
        group["group_id"]: _empty(group["state"])
        for group in answered["groups"]
        if group["listed"] and group["state"] is not None
    }
    differences = []
    for group_id in sorted(ours.keys() | theirs.keys()):
        mine, said = ours.get(group_id), theirs.get(group_id)
        if mine != said:
            # A rebalance that is going on has no record yet.
            reason = Reason.NEWER if said == after.get(group_id) or said == "Rebalancing" else Reason.WRONG
            differences.append(Difference(reason, group_id, None, None, mine, said))
    return ours.keys() | theirs.keys(), differences


def _empty(state: str | None) -> str:
    if state in WITHOUT_MEMBERS:
        return "Empty"
    return "Rebalancing" if state in REBALANCE_STATES else "Populated"
