"""The records of folds that are not commits, and the commits that may create groups, to the group model.

Records that newer ones have replaced are not decoded, except in groups for which the newest records are not
enough (:mod:`coordinator_core.kernels.group_records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from coordinator_core.fold.arrow import column
from coordinator_core.fold.schema import SegmentCounts, SegmentFold
from coordinator_core.groups.loaders import GroupLoader, LoadedRecord, LoadError
from coordinator_core.groups.model import CarriedRecord, Group, LoadFailure
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.group_records import LeftRecord, NewestGroupRecords, RestoredGroup
from coordinator_core.merge.numbering import NameNumbers
from coordinator_core.records.codec import count_elements, decode_record
from coordinator_core.releases import Profile
from coordinator_core.replay.interpret import (
    GroupRecord,
    UninterpretedRecord,
    current_values,
    interpret,
    unreadable_marker,
)
from coordinator_core.replay.sequential import group_loader

_LARGE_ELEMENTS = 64
"""Values of fewer elements are not counted where groups are replayed record by record."""


class GroupReplay:
    """Group state of one offsets partition, fold after fold."""

    def __init__(self, profile: Profile) -> None:
        self.loader: GroupLoader = group_loader(profile)
        self.load_failures: list[LoadFailure] = []
        self.carried: list[CarriedRecord] = []
        self.newest = NewestGroupRecords(profile)
        self._profile = profile
        self._current = current_values(profile)
        self._counts: dict[tuple[int, int | None], int] = {}
        self._large: dict[bytes, int] = {}
        self._restorable: tuple[Int64s, list[str]] = np.empty(0, np.int64), []

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`load` continues; only before :meth:`end`."""
        return {
            "loader": self.loader.state(),
            "load_failures": self.load_failures,
            "carried": self.carried,
            "newest": self.newest.state(),
            "counts": self._counts,
            "large": self._large,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.loader.load(state["loader"])
        self.load_failures = state["load_failures"]
        self.carried = state["carried"]
        self.newest.load(state["newest"])
        self._counts = state["counts"]
        self._large = state["large"]

    @property
    def record_counts(self) -> dict[tuple[int, int | None], int]:
        """Records by key type and value version, see ``PartitionState``."""
        counts = dict(self._counts)
        for counted, records in self.newest.counts().items():
            counts[counted] = counts.get(counted, 0) + records
        return counts

    def has_more_elements(self, most: int) -> bool:
        """Whether the group records that stand have more than ``most`` elements of arrays."""
        return self.newest.has_more_elements(most - sum(self._large.values()))

    def count(self, counts: SegmentCounts) -> None:
        """Take in the counts of a fold."""
        for counted, records in counts.commits.items():
            self._count(*counted, records)

    def apply(self, fold: SegmentFold, group_of: Int64s, names: NameNumbers) -> None:
        """Take in the rows of a fold. Its groups have the numbers ``group_of`` (int64, one each) in ``names``."""
        left = self.newest.take(fold, len(names), group_of)
        if len(left.noted):
            self._restore(left.noted, names.of(left.noted))
            self.newest.forget(left.noted)
        if len(left.steps):
            self._apply_left(fold, left.steps, group_of, names)

    def end(self, names: NameNumbers) -> None:
        """End the folds: keep of ``names`` those that :meth:`finish` needs."""
        groups = self.newest.without_note()
        self._restorable = groups, names.of(groups) if len(groups) else []

    def ended_state(self) -> dict[str, Any]:
        """Plain values from which :meth:`load_ended` continues; only after :meth:`end`."""
        return self.state() | {"restorable": list(self._restorable)}

    def load_ended(self, state: Mapping[str, Any]) -> None:
        self.load(state)
        groups, names = state["restorable"]
        self._restorable = groups, names

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        """The groups after all folds, see :meth:`GroupLoader.finish`."""
        self._restore(*self._restorable)
        self._restorable = np.empty(0, np.int64), []
        return self.loader.finish(groups_with_offsets)

    def _restore(self, groups: Int64s, names: list[str]) -> None:
        """Make these groups. Where most have no record of their own, it is they that take the time."""
        are_bare = self.newest.are_bare(groups)
        others = self.newest.groups(groups[~are_bare])
        for name, is_bare in zip(names, are_bare.tolist(), strict=True):
            if is_bare:
                self.loader.touch(name)
            else:
                self._restore_group(next(others), name)

    def _restore_group(self, group: RestoredGroup, name: str) -> None:
        if group.type is not None:
            self.loader.restore(name, group.type, self._loaded(group.records), group.partition_epochs)

    def _loaded(self, records: Iterable[LeftRecord]) -> Iterator[LoadedRecord]:
        for record_offset, key, value in records:
            ordinary = None if value is None else decode_record(key, value)
            if ordinary is not None and ordinary[:2] in self._current:
                # Nearly all of them: as below, in fewer calls.
                key_type, version, names, fields = ordinary
                yield LoadedRecord(record_offset, key_type, names, version, fields)
                continue
            found = interpret(record_offset, key, value, self._profile)
            if not isinstance(found, GroupRecord):
                raise AssertionError(f"no group record at record offset {record_offset}: {found}")
            yield found.at(record_offset)

    def _apply_left(self, fold: SegmentFold, steps: Int64s, group_of: Int64s, names: NameNumbers) -> None:
        """Apply the records and implicit group creations in ``steps`` (``group_records.Left``)."""
        created = group_of[fold.implicit_group_creations["group"].to_numpy()[-1 - steps[steps < 0]]]
        group_ids = iter(names.of(created) if len(created) else [])
        rows = fold.group_records.take(column(steps[steps >= 0]))
        columns = (rows[name].to_pylist() for name in ("record_offset", "key", "value", "control"))
        records = zip(*columns, strict=True)
        for step in steps.tolist():
            if step < 0:
                self.loader.touch(next(group_ids))
            else:
                self._apply_record(*next(records))

    def _apply_record(self, record_offset: int, key: bytes | None, value: bytes | None, is_control: bool) -> None:
        if is_control:
            interpreted: object = unreadable_marker(record_offset, key)
        else:
            interpreted = interpret(record_offset, key, value, self._profile)
        match interpreted:
            case GroupRecord(key_type, version):
                self._count(key_type, version, 1)
                self._note_size(key or b"", interpreted.value)
                try:
                    self.loader.apply(interpreted.at(record_offset))
                except LoadError as error:
                    self.load_failures.append(LoadFailure(record_offset, str(error)))
            case UninterpretedRecord(carried, failure):
                self.carried.append(carried)
                if failure:
                    self.load_failures.append(LoadFailure(carried.record_offset, carried.detail))
            case _:
                raise AssertionError(f"a commit at record offset {record_offset} was not folded")

    def _note_size(self, key: bytes, value: dict[str, Any] | None) -> None:
        """Keep the number of elements of a value whose objects stay, if it is large."""
        elements = 0 if value is None else count_elements(value)
        if elements > _LARGE_ELEMENTS:
            self._large[key] = elements
        else:
            self._large.pop(key, None)

    def _count(self, key_type: int, version: int | None, records: int) -> None:
        self._counts[key_type, version] = self._counts.get((key_type, version), 0) + records
