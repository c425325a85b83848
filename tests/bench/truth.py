"""A fast wrong answer is no answer: a published run against what the generator wrote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.records.wire import uuid_text
from tests.bench.generator import Truth
from tests.bench.group_truth import Kind, Member, State
from tests.bench.workload import topic_id

Int64s = npt.NDArray[np.int64]
TopicPartition = tuple[str, int]

KNOWN_TYPES = ("classic", "consumer")
STATES = {
    State.STABLE: "stable",
    State.UNREVOKED: "unrevoked_partitions",
    State.UNRELEASED: "unreleased_partitions",
}


class WrongAnswerError(Exception):
    """A run does not hold what was generated."""


def check_truth(run: Path, truths: Sequence[Truth]) -> None:
    """Every committed offset, and kind, members and generation or epochs of every group, no more and no less;
    where the truth has them, also what every member owns, gives up and is to own.

    Raises :class:`WrongAnswerError`. Takes about a second per million offset keys.
    """
    columns = ["group_id", "topic", "partition", "committed_offset"]
    offsets = _read(run, "offsets", columns)
    columns = ["group_id", "type", "simple", "member_count", "generation", "group_epoch", "assignment_epoch"]
    groups = _read(run, "groups", columns)
    for truth in truths:
        _compare(run, "offsets", _found_offsets(_of(offsets, truth), truth), _expected_offsets(truth))
        _compare(run, "groups", _found_groups(_of(groups, truth), truth), _expected_groups(truth))
    if any(truth.details for truth in truths):
        columns = ["group_id", "member_id", "instance_id", "member_epoch", "previous_member_epoch"]
        columns += ["state", "assignment", "pending_revocation"]
        members = _read(run, "members", columns)
        targets = _read(run, "target_assignments", ["group_id", "member_id", "assignment"])
        for truth in truths:
            found = _found_members(_of(members, truth), _of(targets, truth), truth)
            _compare_members(run, found, expected_members(truth))
    known = {truth.offsets_partition for truth in truths}
    if set(offsets["offsets_partition"].unique().to_pylist()) - known:
        raise WrongAnswerError(f"{run}: offsets of offsets partitions that were not generated")


def _read(run: Path, table: str, columns: list[str]) -> pa.Table:
    return pq.read_table(run / table, columns=["offsets_partition", *columns])


def _of(table: pa.Table, truth: Truth) -> pa.Table:
    return table.filter(pc.field("offsets_partition") == truth.offsets_partition)


def _compare(run: Path, table: str, found: Int64s, expected: Int64s) -> None:
    """Rows of numbers, in any order."""
    if len(found) != len(expected):
        raise WrongAnswerError(f"{run}: {len(found)} rows of {table}, {len(expected)} were generated")
    found, expected = (rows[np.lexsort(rows.T[::-1])] for rows in (found, expected))
    wrong = np.flatnonzero((found != expected).any(axis=1))
    if len(wrong):
        first = wrong[0]
        raise WrongAnswerError(
            f"{run}: {len(wrong)} rows of {table} are not what was generated, the first "
            f"{found[first].tolist()} instead of {expected[first].tolist()}"
        )


def _numbers(column: pa.ChunkedArray) -> Int64s:
    """-1 for null."""
    return np.asarray(column.fill_null(-1).cast(pa.int64()).to_numpy())


def _places(column: pa.ChunkedArray, names: list[str]) -> Int64s:
    """Index of each value among ``names``, -1 for another one."""
    return _numbers(pc.index_in(column, pa.array(names)))


def _found_offsets(table: pa.Table, truth: Truth) -> Int64s:
    return np.column_stack(
        (
            _places(table["group_id"], truth.groups),
            _places(table["topic"], truth.topics),
            _numbers(table["partition"]),
            _numbers(table["committed_offset"]),
        )
    )


def _expected_offsets(truth: Truth) -> Int64s:
    live = truth.committed >= 0
    columns = (
        truth.group_of_offset_key,
        truth.topic_of_offset_key,
        truth.partition_of_offset_key,
        truth.committed,
    )
    return np.column_stack([column[live].astype(np.int64) for column in columns])


def _found_groups(table: pa.Table, truth: Truth) -> Int64s:
    kinds = pc.add(_is(table["type"], "consumer"), Kind.CLASSIC)
    kinds = pc.if_else(table["simple"].fill_null(False), int(Kind.SIMPLE), kinds)
    return np.column_stack(
        (
            _places(table["group_id"], truth.groups),
            _numbers(pc.if_else(pc.is_in(table["type"], pa.array(KNOWN_TYPES)), kinds, -1)),
            _numbers(table["member_count"]),
            _numbers(pc.coalesce(table["generation"], table["group_epoch"])),
            _numbers(table["assignment_epoch"]),
        )
    )


def _is(column: pa.ChunkedArray, text: str) -> pa.ChunkedArray:
    """1 where it is, otherwise 0."""
    return pc.equal(column, text).cast(pa.int64())


def _expected_groups(truth: Truth) -> Int64s:
    """A simple group has no members, and the generation that none has begun."""
    group = np.flatnonzero(truth.kinds != Kind.ABSENT)
    is_simple = truth.kinds[group] == Kind.SIMPLE
    members, epochs = (np.where(is_simple, 0, column[group]) for column in (truth.members, truth.epochs))
    return np.column_stack((group, truth.kinds[group], members, epochs, truth.assignment_epochs[group]))


# Members


class MemberRow(NamedTuple):
    """A member as a run or a state has it; epochs, state and target only of KIP-848."""

    instance_id: str | None
    epoch: int | None
    previous_epoch: int | None
    state: str | None
    assigned: frozenset[TopicPartition]
    revoking: frozenset[TopicPartition]
    target: frozenset[TopicPartition] | None


def expected_members(truth: Truth) -> dict[tuple[str, str], MemberRow]:
    """By group id and member id."""
    return {
        (truth.groups[group], member.member_id): _expected_member(truth, group, of_group.kind, member)
        for group, of_group in truth.details.items()
        for member in of_group.members or ()
    }


def _expected_member(truth: Truth, group: int, kind: Kind, member: Member) -> MemberRow:
    first = int(truth.first_offset_key[group])

    def named(places: Iterable[int]) -> frozenset[TopicPartition]:
        return frozenset(
            (
                truth.topics[truth.topic_of_offset_key[first + place]],
                int(truth.partition_of_offset_key[first + place]),
            )
            for place in places
        )

    if kind is Kind.CLASSIC:
        assigned = named(member.assigned)
        return MemberRow(member.instance_id, None, None, None, assigned, frozenset(), None)
    return MemberRow(
        member.instance_id,
        member.epoch,
        member.previous_epoch,
        STATES[member.state],
        named(member.assigned),
        named(member.revoking),
        None if member.target is None else named(member.target),
    )


def _found_members(members: pa.Table, targets: pa.Table, truth: Truth) -> dict[tuple[str, str], MemberRow]:
    names = {uuid_text(topic_id(topic).bytes): topic for topic in truth.topics}

    def named(assignment: list[dict[str, Any]] | None) -> frozenset[TopicPartition]:
        return frozenset(
            (entry["topic"] if entry["topic_id"] is None else names[entry["topic_id"]], partition)
            for entry in assignment or ()
            for partition in entry["partitions"]
        )

    target_of = {(row["group_id"], row["member_id"]): named(row["assignment"]) for row in targets.to_pylist()}
    return {
        (row["group_id"], row["member_id"]): MemberRow(
            row["instance_id"],
            row["member_epoch"],
            row["previous_member_epoch"],
            row["state"],
            named(row["assignment"]),
            named(row["pending_revocation"]),
            target_of.get((row["group_id"], row["member_id"])),
        )
        for row in members.to_pylist()
    }


def _compare_members(
    run: Path, found: dict[tuple[str, str], MemberRow], expected: dict[tuple[str, str], MemberRow]
) -> None:
    wrong = [place for place in {**expected, **found} if found.get(place) != expected.get(place)]
    if wrong:
        raise WrongAnswerError(
            f"{run}: {len(wrong)} members are not what was generated, the first is {wrong[0]}: "
            f"{found.get(wrong[0])} instead of {expected.get(wrong[0])}"
        )
