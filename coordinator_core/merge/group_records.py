"""The newest group record of each key, fold after fold, and the groups that they make.

The proof that they are enough is in :mod:`coordinator_core.kernels.group_records`; here are the rules of a
profile as the kernel takes them, and the way back from its rows to records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.fold.schema import GROUP_RECORDS, SegmentFold
from coordinator_core.groups.model import GroupType
from coordinator_core.groups.modern import (
    ConsumerRecords,
    ModernRecords,
    PartitionEpochs,
    ShareRecords,
    StreamsRecords,
)
from coordinator_core.kernels import GroupRecords
from coordinator_core.kernels.arrays import Array, Bytes, Int64s, array_of, dtype, viewed
from coordinator_core.kernels.layout import COUNTED_VERSIONS, NO_RECORD, ROLES, GroupKind, Role
from coordinator_core.merge.record_shapes import KEY_TYPES, value_shapes
from coordinator_core.records.wire import uuid_text
from coordinator_core.releases import OFFSET_KEY_TYPES, Profile, SubscriptionReading
from coordinator_core.replay.interpret import max_value_version

GROUP_METADATA = 2
"""Key type of classic groups."""

_KINDS: dict[GroupKind, type[ModernRecords]] = {
    GroupKind.CONSUMER: ConsumerRecords,
    GroupKind.SHARE: ShareRecords,
    GroupKind.STREAMS: StreamsRecords,
}
_TYPES: dict[int, GroupType] = {
    GroupKind.CLASSIC: GroupType.CLASSIC,
    **{kind: records.type for kind, records in _KINDS.items()},
}
_EXTRA = {GroupKind.CONSUMER: 4, GroupKind.SHARE: 15, GroupKind.STREAMS: 23}
_REGEX = 16
_NOTHING: Bytes = np.empty(0, np.uint8)
_NO_RECORDS = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in GROUP_RECORDS], schema=GROUP_RECORDS)


def _key_types() -> dict[int, tuple[GroupKind, Role]]:
    found = {
        GROUP_METADATA: (GroupKind.CLASSIC, Role.METADATA),
        _REGEX: (GroupKind.CONSUMER, Role.REGEX),
        ShareRecords.partition_metadata: (GroupKind.SHARE, Role.SECOND_EXTRA),
    }
    for kind, records in _KINDS.items():
        found |= {
            records.metadata: (kind, Role.METADATA),
            records.target_metadata: (kind, Role.TARGET_METADATA),
            _EXTRA[kind]: (kind, Role.EXTRA),
            records.member: (kind, Role.MEMBER),
            records.target_member: (kind, Role.TARGET),
            records.current_assignment: (kind, Role.CURRENT),
        }
    return found


KEY_TYPE_ROLES = _key_types()
"""By key type: the kind of group that has it, and its role."""

_KEY_TYPE_OF = np.zeros((len(GroupKind), 2 * ROLES), np.int64)
for _key_type, _place in KEY_TYPE_ROLES.items():
    _KEY_TYPE_OF[_place] = _key_type


class LeftRecord(NamedTuple):
    """A record that stands: its coordinates and bytes."""

    record_offset: int
    key: bytes
    value: bytes | None


class RestoredGroup(NamedTuple):
    """A group by its newest records, in the order that ``GroupLoader.restore`` asks for.

    ``type`` is ``None`` where no group is left.
    """

    number: int
    type: GroupType | None
    records: list[LeftRecord]
    partition_epochs: PartitionEpochs | None


class Left(NamedTuple):
    """Rows of a fold that are for the loader in Python.

    ``steps`` are, in order, rows of ``fold.group_records`` and, as minus one less the row, of
    ``fold.implicit_group_creations``.
    ``noted`` are groups that are to be restored before.
    """

    steps: Int64s
    noted: Int64s


class NewestGroupRecords:
    """Group records of one offsets partition, as the loader of ``profile`` would apply them.

    Can be pickled: as profile and :meth:`state`.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        steps, shapes = value_shapes(profile)
        replaces = np.zeros(len(GroupKind), np.int64)
        replaces[GroupKind.CONSUMER] = profile.consumer_replaces_simple
        replaces[GroupKind.STREAMS] = profile.streams_replaces_simple
        refuses = np.full(len(GroupKind), not profile.tolerates_missing_groups, np.int64)
        refuses[GroupKind.SHARE] |= not profile.tolerates_missing_share_groups
        self._kernel = GroupRecords(
            viewed(_facts(profile)),
            viewed(shapes),
            viewed(steps),
            viewed(replaces),
            viewed(refuses),
            refuses_owned=not profile.tolerates_owned_partitions,
            refuses_twins=profile.refuses_duplicate_instances,
            reads_unknown=profile.reads_unknown_versions,
            reads_subscriptions=profile.subscription_reading is not SubscriptionReading.HARMLESS,
        )

    def take(self, fold: SegmentFold, groups: int, group_of: Int64s) -> Left:
        """Take in a fold. Its groups have the numbers ``group_of`` (int64), all below ``groups``."""
        creations = fold.implicit_group_creations
        sequences, created = creations["sequence"].to_numpy(), group_of[creations["group"].to_numpy()]
        batches = fold.group_records.to_batches() or [_NO_RECORDS]
        # Commits that create groups are taken with the records before which they came, the last ones with the last.
        lasts = [batch["sequence"][-1].as_py() for batch in batches[:-1]]
        ends = [*np.searchsorted(sequences, lasts).tolist(), len(sequences)]
        steps, noted = [], []
        row = creation = 0
        for batch, end in zip(batches, ends, strict=True):
            numbers = np.full(batch.num_rows, -1, np.int64)
            has_group = batch["group"].is_valid().to_numpy(zero_copy_only=False)
            numbers[has_group] = group_of[batch["group"].drop_null().to_numpy()]
            left = np.empty(batch.num_rows + end - creation, np.int64)
            newly = np.empty(batch.num_rows, np.int64)
            arguments = [
                numbers,
                batch["sequence"].to_numpy(),
                batch["record_offset"].to_numpy(),
                *_bytes(batch["key"]),
                *_bytes(batch["value"]),
                batch["value"].is_null().to_numpy(zero_copy_only=False).astype(np.uint8),
                sequences[creation:end],
                created[creation:end],
                left,
                newly,
            ]
            lefts, notes = self._kernel.take(groups, *map(viewed, arguments))
            found = left[:lefts]
            steps.append(np.where(found < 0, found - creation, found + row))
            noted.append(newly[:notes])
            row, creation = row + batch.num_rows, end
            if self._kernel.is_wasteful():
                self._kernel.compact()
        return Left(np.concatenate(steps), np.concatenate(noted))

    def counts(self) -> dict[tuple[int, int | None], int]:
        """Records taken so far, by key type and value version (``None`` for a tombstone)."""
        counts = array_of(self._kernel.counts).reshape(KEY_TYPES, COUNTED_VERSIONS)
        return {
            (key_type, version - 1 if version else None): int(counts[key_type, version])
            for key_type, version in np.argwhere(counts).tolist()
        }

    def notes(self) -> list[int]:
        """The ``layout.Note`` of each group that has one."""
        notes = self._groups()["note"]
        found: list[int] = notes[notes != 0].tolist()
        return found

    def forget(self, groups: Int64s) -> None:
        """Drop the records of these groups, which have notes."""
        for group in groups.tolist():
            self._kernel.forget(group)

    def without_note(self) -> Int64s:
        """Numbers of the groups that exist and have no note, in the order of their creation."""
        groups = self._groups()
        rows = np.flatnonzero((groups["note"] == 0) & (groups["kind"] != GroupKind.ABSENT))
        found: Int64s = rows[np.argsort(groups["created"][rows])]
        return found

    def are_bare(self, numbers: Int64s) -> npt.NDArray[np.bool_]:
        """Whether each of these groups is a classic one that commits alone made: no record of it stands."""
        groups, subjects, newest = self._groups(), self._subjects(), self._newest()
        has_record = (newest["value_bytes"] != NO_RECORD).reshape(-1, ROLES).any(axis=1)
        stands = has_record & (subjects["generation"] == groups["generation"][subjects["group"]])
        are_bare = groups["kind"] == GroupKind.CLASSIC
        are_bare[subjects["group"][stands]] = False
        found: npt.NDArray[np.bool_] = are_bare[numbers]
        return found

    def groups(self, numbers: Int64s) -> Iterator[RestoredGroup]:
        """These groups, in this order; their records must not be forgotten."""
        kernel, groups, subjects = self._kernel, self._groups(), self._subjects()
        rows, lengths = self._standing(numbers)
        subject = rows // ROLES
        group = subjects["group"][subject]
        role = rows % ROLES + ROLES * subjects["is_named"][subject]
        keys, newest = array_of(kernel.keys.keys)[subject], self._newest()[rows]
        records = [
            LeftRecord(record_offset, key_type.to_bytes(2, "big") + key, value)
            for record_offset, key_type, key, value in zip(
                newest["record_offset"].tolist(),
                _KEY_TYPE_OF[groups["kind"][group], role].tolist(),
                _slices(kernel.keys.data, keys["start"], keys["length"]),
                _slices(kernel.values, newest["value"], lengths),
                strict=True,
            )
        ]
        has_owners = groups["is_shared"] != 0
        has_owners[group[(lengths < 0) & (role == Role.CURRENT)]] = True
        owners = self._owners(has_owners)
        epochs = self._partition_epochs(owners)
        of_group = _by_group(group, numbers)
        owners_of_group = _by_group(array_of(kernel.owners)["group"][owners], numbers)
        has_epochs = has_owners & (groups["kind"] == GroupKind.CONSUMER)
        # Python's own numbers: numpy's take long to compare with an enumeration's.
        facts = (values.tolist() for values in (numbers, groups["kind"][numbers], has_epochs[numbers]))
        for number, kind, tells_epochs, own_records, own_partitions in zip(
            *facts, of_group, owners_of_group, strict=True
        ):
            yield RestoredGroup(
                number,
                _TYPES.get(kind),
                [records[row] for row in own_records],
                dict(epochs[row] for row in own_partitions) if tells_epochs else None,
            )

    @property
    def bytes(self) -> int:
        """Bytes of the records that are kept."""
        return int(self._kernel.values_used)

    def has_more_elements(self, most: int) -> bool:
        """Whether the values that stand have more than ``most`` elements of arrays."""
        if self._kernel.elements > most:
            self._kernel.elements = self._standing_elements()
        return bool(self._kernel.elements > most)

    def _standing_elements(self) -> int:
        groups, subjects, newest = self._groups(), self._subjects(), self._newest()
        stands = subjects["generation"] == groups["generation"][subjects["group"]]
        sizes = newest["value_bytes"]
        has_value = (sizes >= 0) | ((sizes == -1) & (newest["replaced_bytes"] > 0))
        return int(newest["elements"][np.repeat(stands, ROLES) & has_value].sum())

    def compact(self) -> None:
        """Free the memory of records that newer ones replaced."""
        self._kernel.compact()

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (self._profile, self.state())

    def state(self) -> dict[str, Any]:
        """Plain arrays from which :meth:`load` continues."""
        kernel = self._kernel
        kernel.compact()
        keys, partitions = kernel.keys, kernel.partitions
        return {
            "counts": array_of(kernel.counts).copy(),
            "state": [
                kernel.order,
                self._groups().copy(),
                *_keys(keys),
                self._subjects().copy(),
                self._newest().copy(),
                array_of(kernel.values)[: kernel.values_used].copy(),
                *_keys(partitions),
                array_of(kernel.owners)[: partitions.used].copy(),
            ],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._kernel.counts = viewed(state["counts"])
        order, *arrays = state["state"]
        self._kernel.load(order, *map(viewed, arrays))
        self._kernel.elements = self._standing_elements()

    def _groups(self) -> Array:
        return array_of(self._kernel.groups)[: self._kernel.known_groups]

    def _subjects(self) -> Array:
        return array_of(self._kernel.subjects)[: self._kernel.keys.used]

    def _newest(self) -> Array:
        return array_of(self._kernel.newest)[: ROLES * self._kernel.keys.used]

    def _standing(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Rows of the newest records of these groups, in the order in which they are to be applied.

        Members come in the order in which they came to be, each with its own record first. With each row the
        size of its value, negative for a tombstone. Before the tombstone of a current assignment comes the
        value that it replaced: the member keeps the state in it.
        """
        groups, subjects, newest = self._groups(), self._subjects(), self._newest()
        wanted = np.zeros(len(groups), np.bool_)
        wanted[numbers] = True
        stands = wanted[subjects["group"]] & (subjects["generation"] == groups["generation"][subjects["group"]])
        rows = np.flatnonzero(np.repeat(stands, ROLES) & (newest["value_bytes"] != NO_RECORD))
        subject = rows // ROLES
        role = rows % ROLES + ROLES * subjects["is_named"][subject]
        of_member = (role == Role.MEMBER) | (role == Role.CURRENT)
        phase = np.where(role < Role.MEMBER, 0, np.where(of_member, 1, 2))
        created = np.where(of_member, subjects["created"][subject], newest["created"][rows])
        order = np.lexsort((role, created, phase))
        lengths, replaced = newest["value_bytes"][rows], newest["replaced_bytes"][rows]
        is_second = (lengths < 0) & (role == Role.CURRENT) & (replaced > 0)
        twice = np.repeat(order, 1 + is_second[order])
        lengths = lengths[twice]
        lengths[np.flatnonzero(twice[1:] == twice[:-1])] = replaced[twice[:-1]][twice[1:] == twice[:-1]]
        return rows[twice], lengths

    def _owners(self, wanted: npt.NDArray[np.bool_]) -> Int64s:
        """Rows of the owned partitions of the groups that are ``wanted``."""
        groups = self._groups()
        owners = array_of(self._kernel.owners)[: self._kernel.partitions.used]
        stands = wanted[owners["group"]] & (owners["generation"] == groups["generation"][owners["group"]])
        found: Int64s = np.flatnonzero(stands & (owners["owner"] >= 0))
        return found

    def _partition_epochs(self, rows: Int64s) -> list[tuple[tuple[str, int], int]]:
        partitions = self._kernel.partitions
        keys, owners = array_of(partitions.keys)[rows], array_of(self._kernel.owners)[rows]
        found = _slices(partitions.data, keys["start"], keys["length"])
        epochs: list[int] = self._subjects()["epoch"][owners["owner"]].tolist()
        return [
            ((uuid_text(key[4:20]), int.from_bytes(key[20:], "big", signed=True)), epoch)
            for key, epoch in zip(found, epochs, strict=True)
            if key is not None
        ]


def _facts(profile: Profile) -> Array:
    facts = np.zeros(KEY_TYPES, dtype("KeyTypeFacts"))
    facts["newest_version"] = -1
    for key_type in profile.known_key_types - OFFSET_KEY_TYPES:
        facts[key_type] = *KEY_TYPE_ROLES[key_type], max_value_version(key_type, profile)
    return facts


def _bytes(array: pa.Array) -> tuple[Bytes, Int64s]:
    """The bytes of all rows, and where each row starts; a null row has none."""
    _, starts, data = array.buffers()
    whole: Int64s = np.frombuffer(starts, np.int64)[array.offset : array.offset + len(array) + 1]
    return _NOTHING if data is None else np.frombuffer(data, np.uint8), whole


def _keys(table: Any) -> tuple[Bytes, Int64s]:
    """All bytes of a compact key table, and the length of each key."""
    lengths = array_of(table.keys)["length"][: table.used].astype(np.int64)
    return array_of(table.data)[: table.data_used].copy(), lengths


def _slices(data: Any, starts: Int64s, lengths: Int64s) -> list[Any]:
    """Bytes by position and length; ``None`` for a negative length."""
    view = array_of(data).data
    places = zip(starts.tolist(), lengths.tolist(), strict=True)
    return [None if length < 0 else bytes(view[start : start + length]) for start, length in places]


def _by_group(groups: Int64s, numbers: Int64s) -> list[list[int]]:
    """For each of ``numbers`` the rows whose group it is, in their order."""
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    firsts = np.searchsorted(sorted_groups, numbers).tolist()
    lasts = np.searchsorted(sorted_groups, numbers, side="right").tolist()
    rows = order.tolist()
    return [rows[first:last] for first, last in zip(firsts, lasts, strict=True)]


def _loaded(profile: Profile, state: Mapping[str, Any]) -> NewestGroupRecords:
    made = NewestGroupRecords(profile)
    made.load(state)
    return made
