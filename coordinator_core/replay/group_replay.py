"""The records of folds that are not commits, and the commits that may create groups, to the group model."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_core.groups.loaders import GroupLoader, LoadError
from coordinator_core.groups.model import CarriedRecord, LoadFailure
from coordinator_core.replay.fold import SegmentFold
from coordinator_core.replay.interpret import GroupRecord, UninterpretedRecord, interpret, unreadable_marker
from coordinator_core.replay.profiles import Profile
from coordinator_core.replay.sequential import group_loader


class GroupReplay:
    """Group state of one offsets partition, fold after fold."""

    def __init__(self, profile: Profile) -> None:
        self.loader: GroupLoader = group_loader(profile)
        self.load_failures: list[LoadFailure] = []
        self.carried: list[CarriedRecord] = []
        self.record_counts: dict[tuple[int, int | None], int] = {}
        self._profile = profile

    def apply(self, fold: SegmentFold, touches: Sequence[tuple[int, str]]) -> None:
        """Take in a fold; ``touches`` are the (sequence, group id) of commits that may create a group."""
        for counted, records in fold.counts.commits.items():
            self._count(*counted, records)
        columns = ("sequence", "record_offset", "key", "value", "control")
        others = [fold.others[name].to_pylist() for name in columns]
        touch = 0
        for sequence, record_offset, key, value, is_control in zip(*others, strict=True):
            while touch < len(touches) and touches[touch][0] < sequence:
                self.loader.touch(touches[touch][1])
                touch += 1
            self._apply_record(record_offset, key, value, is_control=is_control)
        for _, group_id in touches[touch:]:
            self.loader.touch(group_id)

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
