"""The records of folds that are not commits, and the commits that may create groups, to the group model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.columnar.finishing import group_versions
from coordinator_core.columnar.tables import Int64s
from coordinator_core.fold.arrow import column
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.groups.loaders import GroupLoader, LoadError
from coordinator_core.groups.model import CarriedRecord, Group, LoadFailure
from coordinator_core.replay.interpret import GroupRecord, UninterpretedRecord, interpret, unreadable_marker
from coordinator_core.replay.profiles import Profile
from coordinator_core.replay.sequential import group_loader

GROUP_METADATA = 2
"""Key type of classic groups."""

_MOST_MEMBERS = 1 << 14
_NOTHING = np.empty(0, np.uint8)


class GroupReplay:
    """Group state of one offsets partition, fold after fold."""

    def __init__(self, profile: Profile) -> None:
        self.loader: GroupLoader = group_loader(profile)
        self.load_failures: list[LoadFailure] = []
        self.carried: list[CarriedRecord] = []
        self.record_counts: dict[tuple[int, int | None], int] = {}
        self._profile = profile
        # Records that set their group whole, not decoded yet: another one may come.
        self._held: dict[int, tuple[int, bytes, bytes]] = {}

    def apply(self, fold: SegmentFold, group_of: Int64s, touches: Sequence[tuple[int, str]]) -> None:
        """Take in a fold, whose groups have these numbers.

        ``touches`` are the (sequence, group id) of commits that may create a group.
        """
        for counted, records in fold.counts.commits.items():
            self._count(*counted, records)
        groups = np.full(fold.others.num_rows, -1, np.int64)
        known = fold.others["group"].is_valid().to_numpy()
        groups[known] = group_of[fold.others["group"].drop_null().to_numpy()]
        versions = np.where(known, whole_group_versions(fold, self._profile.max_group_value_version), -1)
        for version, records in zip(*np.unique(versions[versions >= 0], return_counts=True), strict=True):
            self._count(GROUP_METADATA, int(version), int(records))
        rows = np.flatnonzero(~_superseded(groups, versions))
        kept = fold.others.take(column(rows))
        names = ("sequence", "record_offset", "key", "value", "control")
        numbers = groups[rows].tolist(), versions[rows].tolist()
        records_of = zip(*numbers, *(kept[name].to_pylist() for name in names), strict=True)
        touch = 0
        for group, version, sequence, record_offset, key, value, is_control in records_of:
            while touch < len(touches) and touches[touch][0] < sequence:
                self.loader.touch(touches[touch][1])
                touch += 1
            if version >= 0:
                self._held[group] = record_offset, key, value
            else:
                self._apply_held(group)
                self._apply_record(record_offset, key, value, is_control=is_control)
        for _, group_id in touches[touch:]:
            self.loader.touch(group_id)

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        """The groups after all folds, see :meth:`GroupLoader.finish`."""
        for group in [*self._held]:
            self._apply_held(group)
        return self.loader.finish(groups_with_offsets)

    def _apply_held(self, group: int) -> None:
        if group in self._held:
            record_offset, key, value = self._held.pop(group)
            match interpret(record_offset, key, value, self._profile):
                case GroupRecord(key_type, version, decoded_key, decoded_value):
                    self.loader.apply(record_offset, key_type, decoded_key, version or 0, decoded_value)
                case interpreted:
                    raise AssertionError(f"not a whole group at record offset {record_offset}: {interpreted}")

    def _apply_record(
        self, record_offset: int, key: bytes | None, value: bytes | None, *, is_control: bool
    ) -> None:
        if is_control:
            interpreted: object = unreadable_marker(record_offset, key)
        else:
            interpreted = interpret(record_offset, key, value, self._profile)
        match interpreted:
            case GroupRecord(key_type, version, decoded_key, decoded_value):
                self._count(key_type, version, 1)
                try:
                    self.loader.apply(record_offset, key_type, decoded_key, version or 0, decoded_value)
                except LoadError as error:
                    self.load_failures.append(LoadFailure(record_offset, str(error)))
            case UninterpretedRecord(carried, failure):
                self.carried.append(carried)
                if failure:
                    self.load_failures.append(LoadFailure(carried.record_offset, carried.detail))
            case _:
                raise AssertionError(f"a commit at record offset {record_offset} was not folded")

    def _count(self, key_type: int, version: int | None, records: int) -> None:
        self.record_counts[key_type, version] = self.record_counts.get((key_type, version), 0) + records


def _superseded(groups: Int64s, versions: Int64s) -> npt.NDArray[np.bool_]:
    """Records that set their group whole, as the next record of that group does again."""
    order = np.argsort(groups, kind="stable")
    is_whole, same_group = versions[order] >= 0, groups[order][1:] == groups[order][:-1]
    found = np.zeros(len(groups), np.bool_)
    found[order[:-1]] = is_whole[:-1] & is_whole[1:] & same_group
    return found


def whole_group_versions(fold: SegmentFold, newest: int) -> Int64s:
    """By record of ``fold.others``: its value version, if it sets a classic group whole and is sure to load.

    Otherwise, and where that would take too long to find out, -1. ``newest`` is the newest value version that
    the loader reads.
    """
    versions = np.empty(fold.others.num_rows, np.int64)
    if len(versions):
        seen = np.zeros((2 * _MOST_MEMBERS, 2), np.int64)
        parts = [part for name in ("key", "value") for part in _bytes(fold.others[name])]
        group_versions(*parts, newest, seen, versions)
    return versions


def _bytes(values: pa.ChunkedArray) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], Int64s]:
    """The bytes of all rows, and where each row starts; a null row has none."""
    array = values.combine_chunks()
    _, starts, data = array.buffers()
    whole = np.frombuffer(starts, np.int64)[array.offset : array.offset + len(array) + 1]
    return _NOTHING if data is None else np.frombuffer(data, np.uint8), whole
