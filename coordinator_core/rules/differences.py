"""Differences between two runs: groups and committed offsets, added, removed, changed or identical.

Hashes come first: tables whose hash in the manifests is the same are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.durations import is_or_are, noun
from coordinator_core.rules.columns import OFFSET_KEY, Bools, Columns, Int64s, partners
from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import STATE_TABLES, TABLES

ADDED, REMOVED, CHANGED, IDENTICAL = "added", "removed", "changed", "identical"

_OF_GROUPS = ("groups", "members", "target_assignments", "regexes", "share_state", "streams_topology")
_GROUP = ("group_id",)
_NOT_COMPARED = frozenset({"offsets_partition", *OFFSET_KEY, "ordering_offset"})


@dataclass(frozen=True)
class TableDifference:
    """Rows of one kind.

    ``now`` and ``before`` are the rows that have a partner, parallel; ``differing`` says by column in which
    of them it differs; ``added`` and ``removed`` are the rows without a partner.
    """

    before_rows: Columns
    now_rows: Columns
    key: tuple[str, ...]
    before: Int64s
    now: Int64s
    added: Int64s
    removed: Int64s
    differing: Mapping[str, Bools]

    @property
    def changed(self) -> Int64s:
        """Positions in ``now`` of rows that differ in some column (int64, ascending)."""
        any_ = np.zeros(len(self.now), np.bool_)
        for differs in self.differing.values():
            any_ |= differs
        return np.flatnonzero(any_)

    @property
    def counts(self) -> dict[str, int]:
        changed = len(self.changed)
        return {
            ADDED: len(self.added),
            REMOVED: len(self.removed),
            CHANGED: changed,
            IDENTICAL: len(self.now) - changed,
        }

    def changes(self, kind: str) -> Iterator[dict[str, Any]]:
        """An object for each row that is not identical: removed, then added, then changed ones."""
        names = [name for name in self.now_rows.schema.names if name in self.key or name not in _NOT_COMPARED]
        yield from self._single(kind, REMOVED, self.before_rows, self.removed, names)
        yield from self._single(kind, ADDED, self.now_rows, self.added, names)
        changed = self.changed
        before = self.before_rows.rows(self.before[changed], *names).to_pylist()
        now = self.now_rows.rows(self.now[changed], *names).to_pylist()
        for at, old, new in zip(changed.tolist(), before, now, strict=True):
            columns = [name for name, differs in self.differing.items() if differs[at]]
            yield self._subject(kind, CHANGED, new) | {
                "columns": columns,
                "before": {name: old[name] for name in columns if name in old},
                "after": {name: new[name] for name in columns if name in new},
            }

    def _single(
        self, kind: str, change: str, columns: Columns, rows: Int64s, names: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        for row in columns.rows(rows, *names).to_pylist():
            values = {name: row[name] for name in names if name not in self.key}
            nothing: dict[str, Any] = {}
            yield self._subject(kind, change, row) | {
                "columns": [],
                "before": values if change == REMOVED else nothing,
                "after": values if change == ADDED else nothing,
            }

    def _subject(self, kind: str, change: str, row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kind": kind,
            "change": change,
            "offsets_partition": row["offsets_partition"],
            **{name: row.get(name) if name in self.key else None for name in OFFSET_KEY},
        }


@dataclass(frozen=True)
class Difference:
    """Differences between the runs ``before`` and ``now``; ``None``: by their hashes there are none."""

    before: Run
    now: Run
    same_tables: tuple[str, ...]
    groups: TableDifference | None
    offsets: TableDifference | None

    @property
    def is_identical(self) -> bool:
        """Whether both runs hold the same state, by its hash."""
        return self.before.state_hash == self.now.state_hash

    @property
    def differing_tables(self) -> tuple[str, ...]:
        """Tables of the state whose rows are not all the same, also those that have no :attr:`counts`."""
        return tuple(table.name for table in STATE_TABLES if table.name not in self.same_tables)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        return {
            name: unchanged(self.now, name) if part is None else part.counts
            for name, part in (("groups", self.groups), ("offsets", self.offsets))
        }

    def changes(self) -> Iterator[dict[str, Any]]:
        """Every change, groups first."""
        if self.groups is not None:
            yield from self.groups.changes("group")
        if self.offsets is not None:
            yield from self.offsets.changes("offset")


def unchanged(run: Run, table: str) -> dict[str, int]:
    """The counts of a table that is the same as before."""
    rows = int(run.manifest["tables"][table]["rows"])
    return {ADDED: 0, REMOVED: 0, CHANGED: 0, IDENTICAL: rows}


def only_in(run: Run, other: Run) -> list[int]:
    """Offsets partitions of ``run`` with bytes of which ``other`` has read no log."""
    held = other.manifest["cut"]
    return sorted(number for number, size in run.log_bytes.items() if size and str(number) not in held)


def alone(numbers: Sequence[int], run: str, change: str) -> str:
    """Why what is in these offsets partitions counts as added or removed."""
    named = f"{noun(len(numbers), 'offsets partition')} {', '.join(map(str, numbers))}"
    return f"{named} {is_or_are(len(numbers))} in the log of {run} alone: what is there counts as {change}"


def difference(before: Run, now: Run) -> Difference:
    """Compare two runs."""
    same = tuple(table.name for table in STATE_TABLES if before.table_hash(table.name) == now.table_hash(table.name))
    groups = None if all(name in same for name in _OF_GROUPS) else _groups(before, now, same)
    offsets = None if "offsets" in same else _table("offsets", before, now, OFFSET_KEY)
    return Difference(before, now, same, groups, offsets)


def _groups(before: Run, now: Run, same: Sequence[str]) -> TableDifference:
    found = _table("groups", before, now, _GROUP)
    differing = dict(found.differing)
    for name in _OF_GROUPS[1:]:
        if name not in same:
            old, new = _of_groups(before, name), _of_groups(now, name)
            keys = [found.now_rows.array("group_id").take(pa.array(found.now)).to_pylist()]
            places = found.now_rows.numbers("offsets_partition")[found.now].tolist()
            differing[name] = np.array(
                [old.get(key) != new.get(key) for key in zip(places, *keys, strict=True)], np.bool_
            )
    return replace(found, differing={name: differs for name, differs in differing.items() if differs.any()})


def _of_groups(run: Run, name: str) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Rows of a table by group, state columns only."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    hidden = TABLES[name].not_state
    rows = run.table(name).drop_columns(sorted(hidden)) if hidden else run.table(name)
    for row in rows.to_pylist():
        found.setdefault((row["offsets_partition"], row["group_id"]), []).append(row)
    return found


def _table(name: str, before: Run, now: Run, key: tuple[str, ...]) -> TableDifference:
    old, new = Columns(before, name), Columns(now, name)
    found = partners(new, old, *key)
    differs = {
        column: _differs(new.array(column).take(pa.array(found.now)), old.array(column).take(pa.array(found.before)))
        for column in new.schema.names
        if column not in _NOT_COMPARED
    }
    differing = {column: rows for column, rows in differs.items() if rows.any()}
    return TableDifference(old, new, key, found.before, found.now, found.added, found.gone, differing)


def _differs(here: pa.Array, there: pa.Array) -> Bools:
    if pa.types.is_nested(here.type):
        pairs = zip(here.to_pylist(), there.to_pylist(), strict=True)
        return np.array([one != other for one, other in pairs], np.bool_)
    if pa.types.is_dictionary(here.type):
        here, there = here.cast(pa.string()), there.cast(pa.string())
    differ = pc.fill_null(pc.not_equal(here, there), False)
    found: Bools = pc.or_(differ, pc.xor(pc.is_null(here), pc.is_null(there))).to_numpy(zero_copy_only=False)
    return found
