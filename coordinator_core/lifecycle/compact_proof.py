"""Whether a compacted log is worth as much as the log it was made of, found out by replaying both.

The replay shares nothing with compaction but the readers: it works on offset keys and groups, compaction on raw
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.errors import ExitCode, RegroupError
from coordinator_core.fold.arrow import column
from coordinator_core.groups.model import ClassicGroup, OffsetKey, TransactionOutcome
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.lifecycle.compact_plan import Extra
from coordinator_core.lifecycle.compact_scan import NewestRecords
from coordinator_core.lifecycle.compact_states import CommitClass, ReleaseGroups
from coordinator_core.merge.schema import OFFSETS, RowBlocks, without_long_texts
from coordinator_core.records.wire import Reader, RecordDecodeError

OffsetMap = Callable[[Int64s], Int64s]
"""Maps record offsets of the input to record offsets of the output."""

_NOT_COMPARED = "ordering_offset"
"""The first record left in a batch (Scala) is another one after compaction; no answer depends on it any
more."""

BLOCK_ROWS = 1 << 17
_TOLD = 5
_COMPARED = [name for name in OFFSETS.names if name != _NOT_COMPARED]
_TRANSACTION = ["producer_id", "producer_epoch", "first_record_offset", "last_record_offset", "keys", "groups"]


class ProofFailedError(RegroupError):
    """The output does not replay to the state of the input; nothing was published."""

    exit_code = ExitCode.APPLY_FAILED


def the_first_of(found: Sequence[object]) -> str:
    """The first differences of a failed proof, for its message, and how many there are more."""
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return "; ".join(map(str, found[:_TOLD])) + more


@dataclass(frozen=True)
class Difference:
    """One answer that the output would change. ``record_offset`` is that of the input's record, or -1.

    ``stops_at`` is the record at which a loader of the output stops, -1 where that is not the difference;
    ``is_ghost``: the input has the group only because offsets of it were committed.
    """

    profile: str
    kind: str
    group_id: str | None
    offset_key: OffsetKey | None
    record_offset: int
    detail: str
    stops_at: int = -1
    is_ghost: bool = False

    def __str__(self) -> str:
        what = self.detail if self.offset_key is None else f"{self.offset_key.topic_partition}: {self.detail}"
        group = "" if self.group_id is None else f"group {self.group_id!r} "
        return f"profile {self.profile}, {self.kind}: {group}{what}"


def differences(
    before: Sequence[CommitClass], after: Sequence[CommitClass], moved: OffsetMap | None
) -> Iterator[Difference]:
    """Differences between the output and the input, as brokers of the profiles load both; ``moved`` when renumbered.

    The classes must be those of the same profiles in the same order.
    """
    for old, new in zip(before, after, strict=True):
        yield from table_differences(old.name, "committed offset", old.merged.offsets, new.merged.offsets, moved)
        pending = WholeTable(old.merged.pending), WholeTable(new.merged.pending)
        yield from table_differences(old.name, "pending offset", *pending, moved)
        yield from _transaction_differences(old, new, moved)
        releases = {release.profile.name: release for release in new.releases}
        for release in old.releases:
            if release.load_failures and release is not old.releases[0]:
                continue  # A broker of that release answers nothing at all.
            yield from _group_differences(release, releases[release.profile.name], moved)


@dataclass(frozen=True)
class WholeTable:
    """Rows (``merge.schema.RowBlocks``) of a table."""

    table: pa.Table

    @property
    def num_rows(self) -> int:
        return int(self.table.num_rows)

    def blocks(self, block_rows: int = 1 << 20) -> Iterator[pa.Table]:
        yield self.table


def table_differences(
    profile: str, kind: str, before: RowBlocks, after: RowBlocks, moved: OffsetMap | None
) -> Iterator[Difference]:
    """Differences between rows of committed offsets, or of pending ones."""
    # Blocks of the same rows are cut alike.
    pairs = zip_longest(before.blocks(BLOCK_ROWS), after.blocks(BLOCK_ROWS))
    if all(None not in (old, new) and _compared(old, moved).equals(_compared(new, None)) for old, new in pairs):
        return
    # Rows that are on one side only, by everything that is compared.
    left = {
        row: offset
        for block in before.blocks(BLOCK_ROWS)
        for row, offset in zip(_rows(_compared(block, moved)), block["record_offset"].to_pylist(), strict=True)
    }
    right = dict.fromkeys(row for block in after.blocks(BLOCK_ROWS) for row in _rows(_compared(block, None)))
    found = [(row, offset, f"record {offset} is not found") for row, offset in left.items() if row not in right]
    found += [(row, -1, f"record {row[3]} of the output is not in the input") for row in right if row not in left]
    for row, record_offset, detail in found:
        offset_key = OffsetKey(*row[:3])
        yield Difference(profile, kind, offset_key.group_id, offset_key, record_offset, detail)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    columns = {name: table[name] for name in _COMPARED} | {"metadata": without_long_texts(table["metadata"])}
    return zip(*(values.to_pylist() for values in columns.values()), strict=True)


def _compared(table: pa.Table, moved: OffsetMap | None) -> pa.Table:
    table = table.select(_COMPARED)
    if moved is None:
        return table
    place = table.schema.get_field_index("record_offset")
    return table.set_column(place, OFFSETS.field("record_offset"), column(moved(table["record_offset"].to_numpy())))


def _transaction_differences(old: CommitClass, new: CommitClass, moved: OffsetMap | None) -> Iterator[Difference]:
    before, after = _open_transactions(old, moved), _open_transactions(new, None)
    for row, record_offset in before.items():
        if row not in after:
            for group_id in row[-1] or (None,):
                yield Difference(old.name, "open transaction", group_id, None, record_offset, f"of producer {row[0]}")
    for row in after:
        if row not in before:
            yield Difference(old.name, "open transaction", None, None, -1, f"new, of producer {row[0]}")


def _open_transactions(of: CommitClass, moved: OffsetMap | None) -> dict[tuple[Any, ...], int]:
    """Open transactions with the record offsets of the output, each with the offset of its first record here."""
    transactions = of.merged.transactions
    rows = transactions.filter(pc.equal(transactions["outcome"], TransactionOutcome.OPEN.value))
    columns = {name: rows[name].to_pylist() for name in _TRANSACTION}
    first = columns["first_record_offset"]
    columns["groups"] = [*map(tuple, columns["groups"])]
    if moved is not None:
        for name in ("first_record_offset", "last_record_offset"):
            columns[name] = moved(np.array(columns[name], np.int64)).tolist()
    return dict(zip(zip(*columns.values(), strict=True), first, strict=True))


def _group_differences(old: ReleaseGroups, new: ReleaseGroups, moved: OffsetMap | None) -> Iterator[Difference]:
    profile = old.profile
    for group_id in old.groups.keys() | new.groups.keys():
        ours, theirs = old.groups.get(group_id), new.groups.get(group_id)
        if (ours if moved is None else with_record_offsets(ours, moved)) != theirs:
            detail = "is gone" if theirs is None else "is new" if ours is None else "is another"
            is_ghost = isinstance(ours, ClassicGroup) and ours.record_offset is None
            yield Difference(profile.name, "group", group_id, None, -1, detail, is_ghost=is_ghost)
    known = {failure.record_offset for failure in old.load_failures}
    if moved is not None and known:
        known = set(moved(np.array(sorted(known), np.int64)).tolist())
    if not profile.tolerates_missing_groups:
        # A tombstone whose group is gone stops this loader (KAFKA-17306): also after its own broker's
        # cleaner.
        return
    for failure in new.load_failures:
        if failure.record_offset not in known:
            detail = f"stops at record {failure.record_offset}: {failure.detail}"
            yield Difference(profile.name, "load", None, None, -1, detail, failure.record_offset)


def with_record_offsets(value: Any, moved: OffsetMap) -> Any:
    """A group, or part of one, with the record offsets of the output."""
    if isinstance(value, dict):
        return {key: with_record_offsets(item, moved) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **_with_record_offsets(named, moved))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(**_with_record_offsets(dict(zip(value._fields, value, strict=True)), moved))
    if isinstance(value, tuple):
        return tuple(with_record_offsets(item, moved) for item in value)
    return value


def _with_record_offsets(named: dict[str, Any], moved: OffsetMap) -> dict[str, Any]:
    def place(offset: int) -> int:
        return int(moved(np.array([offset], np.int64))[0])

    found: dict[str, Any] = {}
    for name, item in named.items():
        if name.endswith("record_offset"):
            found[name] = item if item is None or item < 0 else place(item)
        elif name.endswith("record_offsets"):
            found[name] = {key: place(offset) for key, offset in item.items()}
        else:
            found[name] = with_record_offsets(item, moved)
    return found


@dataclass(frozen=True)
class Subjects:
    """Record offsets, offset keys and groups that differences are about.

    ``ghosts`` are groups without a record of their own; at ``stops`` a loader of the output stops.
    """

    offsets: frozenset[int]
    offset_keys: frozenset[OffsetKey]
    groups: frozenset[str]
    ghosts: frozenset[str]
    stops: frozenset[int]

    @classmethod
    def of(cls, found: Iterable[Difference]) -> Subjects:
        found = list(found)
        named = [each for each in found if each.offset_key is None and each.group_id is not None]
        return cls(
            offsets=frozenset(each.record_offset for each in found),
            offset_keys=frozenset(each.offset_key for each in found if each.offset_key is not None),
            groups=frozenset(each.group_id for each in named if each.group_id is not None and not each.is_ghost),
            ghosts=frozenset(each.group_id for each in named if each.group_id is not None and each.is_ghost),
            stops=frozenset(each.stops_at for each in found if each.stops_at >= 0),
        )

    @property
    def all_groups(self) -> set[str]:
        return {*self.groups, *self.ghosts, *(offset_key.group_id for offset_key in self.offset_keys)}


@dataclass(frozen=True)
class Behind:
    """Records of some keys that :class:`Subjects` depend on: the newest value, tombstone and aborted record of each.

    ``last_commits`` has the newest commit of each ghost among these keys, and the record behind it; ``stopped`` are
    groups of records at which a loader stops.
    """

    offsets: frozenset[int]
    last_commits: Mapping[str, tuple[int, int]]
    stopped: frozenset[str]

    @classmethod
    def of(cls, subjects: Subjects, newest: NewestRecords) -> Behind:
        offsets: set[int] = set()
        stopped: set[str] = set()
        last_commits: dict[str, tuple[int, int]] = {}
        columns = ["offset", "value_offset", "aborted_offset"]
        for row, (offset, value, aborted) in enumerate(newest.rows[columns].tolist()):
            key_type, group_id, offset_key = subject(newest.key(row))
            if group_id is None:
                continue
            if offset in subjects.stops:
                stopped.add(group_id)
            is_named = offset_key in subjects.offset_keys or (group_id in subjects.groups and key_type > 1)
            if is_named or offset in subjects.stops:
                offsets.update((offset, value, aborted))
            elif group_id in subjects.ghosts and offset_key is not None:
                commit = max(value, aborted), offset
                last_commits[group_id] = max(last_commits.get(group_id, commit), commit)
        return cls(frozenset(offsets), last_commits, frozenset(stopped))


def records_behind(subjects: Subjects, behind: Sequence[Behind], end_offset: int) -> Extra:
    """Records before ``end_offset`` without which the answers change: those that the input's state names, and those
    of all keys, of which each of ``behind`` has some."""
    last_commits: dict[str, tuple[int, int]] = {}
    for part in behind:
        for group_id, commit in part.last_commits.items():
            last_commits[group_id] = max(last_commits.get(group_id, commit), commit)
    offsets = subjects.offsets.union(*(part.offsets for part in behind), *last_commits.values())
    return frozenset(offset for offset in offsets if 0 <= offset < end_offset)


def subject(key: bytes) -> tuple[int, str | None, OffsetKey | None]:
    """Record type, group id and, of a commit, the offset key that a key names."""
    reader = Reader(key)
    try:
        key_type = reader.int16()
        group_id = reader.text(reader.int16())
        if key_type > 1:
            return key_type, group_id, None
        return key_type, group_id, OffsetKey(group_id, reader.text(reader.int16()), reader.int32())
    except RecordDecodeError:
        return -1, None, None
