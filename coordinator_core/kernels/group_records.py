"""The newest group record of each key, and the groups for which these are not enough.

A coordinator applies group records one after the other. Nearly all of them are replaced by newer ones, and
their loading has had no effect but that of the newest. :class:`GroupRecords` proves this record by record: it
follows what ``groups.modern`` and ``groups.loaders`` do as far as it decides whether a record is loaded, and
takes a record when the newest records alone, applied to a new group, make the group that the loader has. The
first record of a group of which that is not certain puts a *note* on it. From there on each record of the
group is left to the loader in Python, which first gets the newest records so far.

Groups are independent: a group id has one type at a time, and no record concerns two groups.
"""

import cython

from coordinator_core.kernels.arrays import grown, new_bytes, new_rows, zeros

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.key_table import KeyTable
    from coordinator_core.kernels.primitives import *
    from coordinator_core.kernels.shapes import Shapes

_FIRST_ROWS = 64
_FIRST_BYTES = 4096
_SPARE_SUBJECTS = 1 << 16
_SPARE_VALUE_BYTES = 1 << 24
_CONSUMER = cython.declare(Int, 0x636F6E73756D6572)
"""The protocol type ``consumer``, as a number."""


@cython.final
@cython.cclass
class GroupRecords:
    """Newest records of the groups of one offsets partition, for the loader of one release.

    ``facts`` by key type and ``shapes`` of values (``merge.record_shapes``) say what the loader reads.
    ``refuses_missing`` by ``GroupKind``: whether the tombstone of a group that does not exist stops the load;
    that of a member does as in consumer groups. ``replaces_simple`` by ``GroupKind``: whether a group of that
    kind takes the place of a simple classic one. ``refuses_owned``: a member who takes a partition that
    another one owns stops the load, whatever the epochs.
    ``refuses_twins``: two members with one group instance id stop the load.
    ``reads_unknown``: values of unknown versions are read, too. ``reads_subscriptions``: the load stops at some
    subscriptions of ``consumer`` members.
    """

    facts = cython.declare(KeyTypeFactsRows)
    value_shapes = cython.declare(ValueShapeRows)
    shapes = cython.declare(Shapes)
    replaces_simple = cython.declare(Int64s)
    refuses_missing = cython.declare(Int64s)
    refuses_owned = cython.declare(cython.bint)
    refuses_twins = cython.declare(cython.bint)
    reads_unknown = cython.declare(cython.bint)
    reads_subscriptions = cython.declare(cython.bint)

    order = cython.declare(Int, visibility="public")  # Number of records and implicit group creations so far.
    known_groups = cython.declare(Int, visibility="public")
    groups = cython.declare(LoadedGroupRows, visibility="public")
    keys = cython.declare(KeyTable, visibility="public")
    subjects = cython.declare(SubjectRows, visibility="public")
    newest = cython.declare(NewestRecordRows, visibility="public")
    values = cython.declare(MutableBytes, visibility="public")
    values_used = cython.declare(Int, visibility="public")
    partitions = cython.declare(KeyTable, visibility="public")
    owners = cython.declare(PartitionOwnerRows, visibility="public")
    counts = cython.declare(MutableInt64s, visibility="public")
    """Records taken, by key type and value version (``COUNTED_VERSIONS`` a key type)."""

    elements = cython.declare(Int, visibility="public")  # Of arrays in the values taken, and in some replaced ones.

    _partition_key = cython.declare(MutableBytes)
    _moved = cython.declare(MutableInt64s)
    _moved_used = cython.declare(Int)
    _seen = cython.declare(MutableInt64s)
    _value_elements = cython.declare(Int)  # Of the value at hand.
    _owning_shape = cython.declare(Int)
    _compact_subjects = cython.declare(Int)
    _compact_values = cython.declare(Int)

    def __init__(
        self,
        facts: KeyTypeFactsRows,
        value_shapes: ValueShapeRows,
        steps: ShapeStepRows,
        replaces_simple: Int64s,
        refuses_missing: Int64s,
        refuses_owned: cython.bint,
        refuses_twins: cython.bint,
        reads_unknown: cython.bint,
        reads_subscriptions: cython.bint,
    ) -> None:
        self.facts = facts
        self.value_shapes = value_shapes
        self.shapes = Shapes(steps)
        self.replaces_simple = replaces_simple
        self.refuses_missing = refuses_missing
        self.refuses_owned = refuses_owned
        self.refuses_twins = refuses_twins
        self.reads_unknown = reads_unknown
        self.reads_subscriptions = reads_subscriptions
        self.order = 0
        self.known_groups = 0
        self.groups = new_rows("LoadedGroup", _FIRST_ROWS)
        self.keys = KeyTable()
        self.subjects = new_rows("Subject", _FIRST_ROWS)
        self.newest = new_rows("NewestRecord", ROLES * _FIRST_ROWS)
        self._set_values(new_bytes(_FIRST_BYTES))
        self.values_used = 0
        self.partitions = KeyTable()
        self.owners = new_rows("PartitionOwner", _FIRST_ROWS)
        self.counts = zeros(COUNTED_VERSIONS * len(facts))
        self.elements = 0
        self._value_elements = 0
        self._partition_key = new_bytes(PARTITION_KEY_BYTES)
        self._moved = zeros(_FIRST_ROWS)
        self._moved_used = 0
        self._seen = zeros(4 * _FIRST_ROWS)
        self._compact_subjects = _SPARE_SUBJECTS
        self._compact_values = _SPARE_VALUE_BYTES
        self._owning_shape = 0
        for key_type in range(len(facts)):
            if facts[key_type].kind == GroupKind.CONSUMER and facts[key_type].role == Role.CURRENT:
                self._owning_shape = SHAPE_VERSIONS * key_type

    def take(
        self,
        group_count: Int,
        groups: Int64s,
        sequences: Int64s,
        record_offsets: Int64s,
        keys: Bytes,
        key_starts: Int64s,
        values: Bytes,
        value_starts: Int64s,
        is_tombstone: Bytes,
        creation_sequences: Int64s,
        creation_groups: Int64s,
        left: MutableInt64s,
        noted: MutableInt64s,
    ) -> tuple[int, int]:
        """Take the group records of a fold, and its commits that create groups, by sequence.

        ``groups`` are group numbers below ``group_count``, -1 where a record has no group. The bytes of row
        ``i`` are between ``starts[i]`` and ``starts[i + 1]``. Records that are left to the loader in Python
        are put into ``left``, in order: rows, and for a creation minus one less its row. The groups that get their
        note here are put into ``noted``. Returns how many of both there are.
        """
        group: Int
        left_used: Int = 0
        noted_used: Int = 0
        creation: Int = 0
        rows: Int = len(groups)
        creations: Int = len(creation_groups)
        self._know_groups(group_count)
        with cython.nogil:
            for row in range(rows):
                while creation < creations and creation_sequences[creation] < sequences[row]:
                    if not self._create(creation_groups[creation]):
                        left[left_used] = -1 - creation
                        left_used += 1
                    creation += 1
                self.order += 1
                group = groups[row]
                note = self._taken(
                    group,
                    record_offsets[row],
                    keys,
                    key_starts[row],
                    key_starts[row + 1],
                    values,
                    value_starts[row],
                    value_starts[row + 1],
                    is_tombstone[row] != 0,
                )
                if note != Note.TAKEN:
                    left[left_used] = row
                    left_used += 1
                    if note != Note.CARRIED and note != Note.NOTED:
                        self.groups[group].note = note
                        noted[noted_used] = group
                        noted_used += 1
            while creation < creations:
                if not self._create(creation_groups[creation]):
                    left[left_used] = -1 - creation
                    left_used += 1
                creation += 1
        return left_used, noted_used

    def is_wasteful(self) -> bool:
        """Whether most of the memory may be that of records that no longer stand."""
        return self.keys.used > self._compact_subjects or self.values_used > self._compact_values

    def forget(self, group: Int) -> None:
        """Drop the records of a group that has a note."""
        self.groups[group].generation += 1

    def load(
        self,
        order: Int,
        groups: LoadedGroupRows,
        keys: Bytes,
        key_lengths: Int64s,
        subjects: SubjectRows,
        newest: NewestRecordRows,
        values: MutableBytes,
        partition_keys: Bytes,
        partition_key_lengths: Int64s,
        owners: PartitionOwnerRows,
    ) -> None:
        """Continue from what another object held, which must have been compact.

        ``keys`` and ``partition_keys`` are the bytes of all keys, one behind the other.
        """
        self.order = order
        self.groups = groups
        self.known_groups = len(groups)
        self.keys = _key_table(keys, key_lengths)
        self.subjects = subjects
        self.newest = newest
        self._set_values(values)
        self.values_used = len(values)
        self.partitions = _key_table(partition_keys, partition_key_lengths)
        self.owners = owners

    def compact(self) -> None:
        """Free the memory of all records that newer ones replaced."""
        old_keys: KeyTable = self.keys
        old_subjects: SubjectRows = self.subjects
        old_newest: NewestRecordRows = self.newest
        old_values: MutableBytes = self.values
        old_partitions: KeyTable = self.partitions
        old_owners: PartitionOwnerRows = self.owners
        moved: MutableInt64s = zeros(old_keys.used)
        self.keys = KeyTable()
        self.subjects = new_rows("Subject", _FIRST_ROWS)
        self.newest = new_rows("NewestRecord", ROLES * _FIRST_ROWS)
        self._set_values(new_bytes(_FIRST_BYTES))
        self.values_used = 0
        for row in range(old_keys.used):
            moved[row] = -1
            if not self._stands(old_subjects, old_newest, row):
                continue
            place = self._new_subject(
                old_keys.data, old_keys.keys[row].start, old_keys.keys[row].length, old_keys.keys[row].hash
            )
            moved[row] = place
            self.subjects[place].group = old_subjects[row].group
            self.subjects[place].generation = old_subjects[row].generation
            self.subjects[place].is_named = old_subjects[row].is_named
            self.subjects[place].created = old_subjects[row].created
            self.subjects[place].epoch = old_subjects[row].epoch
            for role in range(ROLES):
                self._move_record(old_newest, ROLES * row + role, old_values, ROLES * place + role)
        self.partitions = KeyTable()
        self.owners = new_rows("PartitionOwner", _FIRST_ROWS)
        for row in range(old_partitions.used):
            record = old_owners[row].owner
            if record < 0 or self.groups[old_owners[row].group].generation != old_owners[row].generation:
                continue
            place = self._new_owner(
                old_partitions.data,
                old_partitions.keys[row].start,
                old_partitions.keys[row].length,
                old_partitions.keys[row].hash,
            )
            self.owners[place].group = old_owners[row].group
            self.owners[place].generation = old_owners[row].generation
            self.owners[place].owner = moved[record]
        self._compact_subjects = 2 * self.keys.used + _SPARE_SUBJECTS
        self._compact_values = 2 * self.values_used + _SPARE_VALUE_BYTES

    @cython.cfunc
    def _stands(self, subjects: SubjectRows, newest: NewestRecordRows, row: Int) -> cython.bint:
        if self.groups[subjects[row].group].generation != subjects[row].generation:
            return False
        for role in range(ROLES):
            if newest[ROLES * row + role].value_bytes != NO_RECORD:
                return True
        return False

    @cython.cfunc
    @cython.exceptval(-1)
    def _move_record(self, old: NewestRecordRows, row: Int, values: MutableBytes, place: Int) -> cython.int:
        length: Int = old[row].value_bytes
        if length == -1:
            length = old[row].replaced_bytes
        length = max(length, 0)
        self._reserve_values(length)
        copy_bytes(values, old[row].value, self.values, self.values_used, length)
        self.newest[place].created = old[row].created
        self.newest[place].record_offset = old[row].record_offset
        self.newest[place].value_bytes = old[row].value_bytes
        self.newest[place].replaced_bytes = old[row].replaced_bytes
        self.newest[place].elements = old[row].elements
        self.newest[place].value = self.values_used
        self.newest[place].room = length
        self.values_used += length
        return 0

    def _know_groups(self, count: Int) -> None:
        """Make rows for ``count`` groups."""
        self.groups = grown(self.groups, self.known_groups, count)
        for row in range(self.known_groups, count):
            self.groups[row].kind = GroupKind.ABSENT
            self.groups[row].note = Note.TAKEN
            self.groups[row].generation = 0
            self._empty_group(row)
        self.known_groups = max(self.known_groups, count)

    @cython.cfunc
    def _empty_group(self, group: Int) -> cython.void:
        self.groups[group].members = 0
        self.groups[group].targets = 0
        self.groups[group].assignment_epoch = 0
        self.groups[group].is_simple = 0
        self.groups[group].is_shared = 0
        self.groups[group].has_topics = 0

    @cython.cfunc
    def _become(self, group: Int, kind: Int) -> cython.void:
        """Let the group be of that kind, without members and records."""
        if self.groups[group].kind == GroupKind.ABSENT:
            self.groups[group].created = self.order
        self.groups[group].kind = kind
        self.groups[group].generation += 1
        self._empty_group(group)

    @cython.cfunc
    def _create(self, group: Int) -> cython.bint:
        """A commit for the group; false where that is for the loader in Python."""
        self.order += 1
        if self.groups[group].note != Note.TAKEN:
            return False
        if self.groups[group].kind == GroupKind.ABSENT:
            self._become(group, GroupKind.CLASSIC)
            self.groups[group].is_simple = 1
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def _taken(
        self,
        group: Int,
        record_offset: Int,
        keys: Bytes,
        key: Int,
        key_stop: Int,
        values: Bytes,
        value: Int,
        value_stop: Int,
        is_tombstone: cython.bint,
    ) -> Int:
        """Take a record, unless the ``Note`` that is returned says otherwise."""
        if group < 0 or key_stop - key < 2:
            return Note.CARRIED
        key_type: Int = be16(keys, key)
        if key_type < 0 or key_type >= len(self.facts) or self.facts[key_type].newest_version < 0:
            return Note.CARRIED
        version: Int = -1
        is_known: cython.bint = True
        if not is_tombstone:
            if value_stop - value < 2:
                return Note.CARRIED
            version = be16(values, value)
            is_known = 0 <= version <= self.facts[key_type].newest_version
            if not is_known and not self.reads_unknown:
                return Note.CARRIED
        if self.groups[group].note != Note.TAKEN:
            return Note.NOTED
        subject: Int = self._subject(group, keys, key + 2, key_stop, self.facts[key_type].role >= Role.MEMBER)
        if subject < 0:
            return Note.KEY
        at: Int = self.values_used
        stop: Int = at
        if not is_tombstone:
            stop = at + value_stop - value
            self._reserve_values(stop - at)
            copy_bytes(values, value, self.values, at, stop - at)
            if not is_known or not self._has_shape(key_type, version, at, stop):
                return Note.VALUE
        else:
            stop = -1
        if self.facts[key_type].kind == GroupKind.CLASSIC:
            note = self._classic(group, subject, record_offset, at, stop, version)
        else:
            note = self._modern(group, subject, key_type, record_offset, at, stop)
        if note == Note.TAKEN:
            if not is_tombstone:
                self.elements += self._value_elements
            self.counts[COUNTED_VERSIONS * key_type + 1 + version] += 1
        return note

    @cython.cfunc
    @cython.exceptval(-1)
    def _has_shape(self, key_type: Int, version: Int, at: Int, stop: Int) -> cython.bint:
        """Whether the copied value is as its schema says. Its marked fields are in ``shapes`` afterwards."""
        shape: Int = SHAPE_VERSIONS * key_type + version
        if version >= SHAPE_VERSIONS or self.value_shapes[shape].behind == 0:
            return False
        self.shapes.used = 0
        self.shapes.elements = 0
        behind: Int = self.shapes.behind(self.value_shapes[shape].first, self.value_shapes[shape].behind, at + 2, stop)
        self._value_elements = self.shapes.elements
        return behind == stop and self._value_elements <= MAX_ELEMENTS

    @cython.cfunc
    @cython.exceptval(-1)
    def _subject(self, group: Int, keys: Bytes, at: Int, stop: Int, is_named: cython.bint) -> Int:
        """Row of what the key is about, ``INVALID`` if it is not just the group id, or that and a name."""
        hashed: Int = hash_bytes(keys, at, stop - at)
        row: Int = self.keys.find(keys, at, stop - at, hashed)
        if row >= 0:
            is_same: cython.bint = self.subjects[row].group == group
            return row if is_same and (self.subjects[row].is_named != 0) == is_named else INVALID
        behind: Int = _behind_plain_text(keys, at, stop)
        if behind != INVALID and is_named:
            behind = _behind_plain_text(keys, behind, stop)
        if behind != stop:
            return INVALID
        row = self._new_subject(keys, at, stop - at, hashed)
        self.subjects[row].group = group
        self.subjects[row].generation = -1
        self.subjects[row].is_named = is_named
        for role in range(ROLES):
            self.newest[ROLES * row + role].room = 0
        return row

    @cython.cfunc
    @cython.exceptval(-1)
    def _new_subject(self, keys: Bytes, at: Int, length: Int, hashed: Int) -> Int:
        self.keys.reserve(1, length)
        if self.keys.used == len(self.subjects):
            with cython.gil:
                self.subjects = grown(self.subjects, self.keys.used, self.keys.used + 1)
                self.newest = grown(self.newest, ROLES * self.keys.used, ROLES * len(self.subjects))
        return self.keys.add(keys, at, length, hashed)

    @cython.cfunc
    @cython.exceptval(-1)
    def _reserve_values(self, length: Int) -> cython.int:
        if self.values_used + length > len(self.values):
            with cython.gil:
                self._set_values(grown(self.values, self.values_used, self.values_used + length))
        return 0

    def _set_values(self, values: MutableBytes) -> None:
        self.values = values
        self.shapes.data = values

    @cython.cfunc
    def _revive(self, group: Int, subject: Int) -> cython.void:
        """Empty the subject if its records are of an earlier life of the group."""
        if self.subjects[subject].generation != self.groups[group].generation:
            self.subjects[subject].generation = self.groups[group].generation
            self.subjects[subject].epoch = 0
            for role in range(ROLES):
                self.newest[ROLES * subject + role].value_bytes = NO_RECORD

    @cython.cfunc
    def _record(self, subject: Int, role: Int) -> Int:
        """Row of the newest record of a role."""
        return ROLES * subject + (role & (ROLES - 1))

    @cython.cfunc
    def _is_value(self, subject: Int, role: Int) -> cython.bint:
        return self.newest[self._record(subject, role)].value_bytes >= 0

    @cython.cfunc
    def _drop(self, subject: Int, role: Int) -> cython.void:
        self.newest[self._record(subject, role)].value_bytes = NO_RECORD

    @cython.cfunc
    def _put(self, subject: Int, role: Int, record_offset: Int, at: Int, stop: Int) -> cython.void:
        """Keep a record: the copied value from ``at`` to ``stop``, or a tombstone if ``stop`` is -1."""
        row: Int = self._record(subject, role)
        # A regular expression that is set again goes to the end.
        if self.newest[row].value_bytes == NO_RECORD or role == Role.REGEX:
            self.newest[row].created = self.order
        self.newest[row].record_offset = record_offset
        if stop < 0:
            if self.newest[row].value_bytes != -1:
                self.newest[row].replaced_bytes = max(self.newest[row].value_bytes, 0)
                self.newest[row].value_bytes = -1
            return
        length: Int = stop - at
        self.newest[row].value_bytes = length
        self.newest[row].elements = self._value_elements
        if length <= self.newest[row].room:
            copy_bytes(self.values, at, self.values, self.newest[row].value, length)
        else:
            self.newest[row].value = at
            self.newest[row].room = length
            self.values_used = stop

    @cython.cfunc
    @cython.exceptval(-1)
    def _classic(self, group: Int, subject: Int, record_offset: Int, at: Int, stop: Int, version: Int) -> Int:
        """A value replaces, and a tombstone removes, a group of whatever type."""
        if self.groups[group].has_topics:
            # The loader keeps these apart from the group.
            return Note.TYPE
        if stop < 0:
            if self.groups[group].kind != GroupKind.ABSENT:
                self._become(group, GroupKind.ABSENT)
            return Note.TAKEN
        if self.refuses_twins and version >= 3 and self._may_have_twins():
            return Note.INSTANCE_ID
        if self.reads_subscriptions and self._may_stop_at_subscriptions():
            return Note.SUBSCRIPTION
        if self.groups[group].kind != GroupKind.CLASSIC:
            self._become(group, GroupKind.CLASSIC)
        self._revive(group, subject)
        self.groups[group].is_simple = 1
        for mark in range(self.shapes.used):
            field = self.shapes.marks[mark].field
            if field <= MarkedField.MEMBERS and self.shapes.marks[mark].length > 0:
                self.groups[group].is_simple = 0
        self._put(subject, Role.METADATA, record_offset, at, stop)
        return Note.TAKEN

    @cython.cfunc
    def _may_stop_at_subscriptions(self) -> cython.bint:
        """Whether a member of the ``consumer`` group at hand has a subscription that is not as clients write it."""
        for mark in range(self.shapes.used):
            field = self.shapes.marks[mark].field
            at = self.shapes.marks[mark].at
            length = self.shapes.marks[mark].length
            if field == MarkedField.PROTOCOL_TYPE and (length != 8 or be64(self.values, at) != _CONSUMER):
                return False
            if field == MarkedField.SUBSCRIPTION and not self._is_subscription(at, at + length):
                return True
        return False

    @cython.cfunc
    def _is_subscription(self, at: Int, stop: Int) -> cython.bint:
        """Whether all topics and the length of the user data can be read. Fewer bytes than for a count stop no load."""
        if stop - at < 6:
            return True
        count: Int = be32(self.values, at + 2)
        at += 6
        if count < 0 or count > stop - at:
            return False
        for _ in range(count):
            if stop - at < 2:
                return False
            length: Int = be16(self.values, at)
            at += 2
            if length < 0 or length > stop - at:
                return False
            at += length
        return stop - at >= 4 and be32(self.values, at) <= stop - at - 4

    @cython.cfunc
    @cython.exceptval(-1)
    def _may_have_twins(self) -> cython.bint:
        """Whether two group instance ids of the value at hand have one hash."""
        places: Int = len(self._seen) // 2
        if 2 * self.shapes.used > places:
            with cython.gil:
                while 2 * self.shapes.used > places:
                    places *= 2
                self._seen = zeros(2 * places)
        for mark in range(self.shapes.used):
            if self.shapes.marks[mark].field != MarkedField.INSTANCE_ID or self.shapes.marks[mark].length < 0:
                continue
            hashed = hash_bytes(self.values, self.shapes.marks[mark].at, self.shapes.marks[mark].length)
            place = hashed & (places - 1)
            # An entry of an earlier record is free.
            while self._seen[2 * place] == self.order:
                if self._seen[2 * place + 1] == hashed:
                    return True
                place = (place + 1) & (places - 1)
            self._seen[2 * place] = self.order
            self._seen[2 * place + 1] = hashed
        return False

    @cython.cfunc
    @cython.exceptval(-1)
    def _modern(self, group: Int, subject: Int, key_type: Int, record_offset: Int, at: Int, stop: Int) -> Int:
        kind: Int = self.facts[key_type].kind
        role: Int = self.facts[key_type].role
        if self.groups[group].kind != kind:
            if self.groups[group].kind == GroupKind.ABSENT:
                if stop < 0:
                    return Note.TOMBSTONE if self.refuses_missing[kind] else Note.TAKEN
            elif not (self.groups[group].is_simple and self.replaces_simple[kind]):
                return Note.TYPE
            elif stop < 0:
                # It makes a group that no record stands for.
                return Note.TOMBSTONE
            self._become(group, kind)
        self._revive(group, subject)
        if stop < 0:
            return self._tombstone(group, subject, kind, role, record_offset)
        if role == Role.CURRENT:
            return self._assign(group, subject, kind, record_offset, at, stop)
        if role == Role.MEMBER:
            self._join(group, subject)
        elif role == Role.TARGET:
            if not self._is_value(subject, role):
                self.groups[group].targets += 1
        elif role == Role.TARGET_METADATA:
            self.groups[group].assignment_epoch = self._epoch()
        elif role == Role.EXTRA and kind == GroupKind.SHARE:
            self.groups[group].has_topics = 1
        self._put(subject, role, record_offset, at, stop)
        return Note.TAKEN

    @cython.cfunc
    def _epoch(self) -> Int:
        """The epoch in the value at hand, which is marked first."""
        return be32(self.values, self.shapes.marks[0].at)

    @cython.cfunc
    def _is_member(self, subject: Int) -> cython.bint:
        return (
            self.newest[self._record(subject, Role.MEMBER)].value_bytes != NO_RECORD
            or self.newest[self._record(subject, Role.CURRENT)].value_bytes != NO_RECORD
        )

    @cython.cfunc
    def _join(self, group: Int, subject: Int) -> cython.void:
        if not self._is_member(subject):
            self.groups[group].members += 1
            self.subjects[subject].created = self.order
            self.subjects[subject].epoch = 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _tombstone(self, group: Int, subject: Int, kind: Int, role: Int, record_offset: Int) -> Int:
        """The tombstone of a key of a group that exists."""
        if role == Role.METADATA:
            if (
                self.groups[group].members > 0
                or (kind != GroupKind.STREAMS and self.groups[group].targets > 0)
                or self.groups[group].assignment_epoch != -1
                or self.groups[group].has_topics
            ):
                return Note.TOMBSTONE
            self._become(group, GroupKind.ABSENT)
        elif role == Role.TARGET_METADATA:
            if self.groups[group].targets > 0:
                return Note.TOMBSTONE
            self.groups[group].assignment_epoch = -1
            self._put(subject, role, record_offset, 0, -1)
        elif role == Role.MEMBER or role == Role.CURRENT:
            if not self._is_member(subject):
                return Note.TOMBSTONE if self.refuses_missing[GroupKind.CONSUMER] else Note.TAKEN
            if not self._is_value(subject, Role.MEMBER):
                # The member would have no record but a tombstone.
                return Note.TOMBSTONE
            if role == Role.CURRENT:
                if kind == GroupKind.CONSUMER:
                    self._release(group, subject)
                self.subjects[subject].epoch = LEAVING_EPOCH
                self._put(subject, role, record_offset, 0, -1)
            elif self.subjects[subject].epoch != LEAVING_EPOCH or self._is_value(subject, Role.TARGET):
                return Note.TOMBSTONE
            else:
                if kind == GroupKind.CONSUMER:
                    self._release(group, subject)
                self._drop(subject, Role.MEMBER)
                self._drop(subject, Role.CURRENT)
                self.groups[group].members -= 1
        else:
            if role == Role.TARGET and self._is_value(subject, role):
                self.groups[group].targets -= 1
            elif role == Role.EXTRA:
                self.groups[group].has_topics = 0
            self._drop(subject, role)
        return Note.TAKEN

    @cython.cfunc
    @cython.exceptval(-1)
    def _assign(self, group: Int, subject: Int, kind: Int, record_offset: Int, at: Int, stop: Int) -> Int:
        """A current assignment; of a consumer group with who owns which partition.

        The loader keeps an epoch for each owned partition (``ConsumerGroup.addPartitionEpochs``): that of the
        member who took it last, which takes all its partitions again with each of its records.
        """
        epoch: Int = self._epoch()
        taken_over: cython.bint = False
        marks: Int = self.shapes.used
        if kind == GroupKind.CONSUMER and not self._owns_the_same(group, subject, at, stop):
            self._find_owned(group, subject)
            released = self._moved_used
            if not self._look_up(group, 0, marks, True):
                return Note.OWNER
            for place in range(released, self._moved_used):
                row = self._moved[place]
                if self.owners[row].taken == self.order:
                    return Note.OWNER
                self.owners[row].taken = self.order
                if self._is_owned(group, row) and self.owners[row].released != self.order:
                    if self.refuses_owned or self._partition_epoch(row) >= epoch:
                        return Note.OWNER
                    taken_over = True
            self._let_go(released)
            for place in range(released, self._moved_used):
                row = self._moved[place]
                self.owners[row].generation = self.groups[group].generation
                self.owners[row].owner = subject
            if taken_over:
                self.groups[group].is_shared = 1
        self._join(group, subject)
        self.subjects[subject].epoch = epoch
        self._put(subject, Role.CURRENT, record_offset, at, stop)
        return Note.TAKEN

    @cython.cfunc
    def _owns_the_same(self, group: Int, subject: Int, at: Int, stop: Int) -> cython.bint:
        """Whether the bytes of all that the member owns are those of its last record.

        Then nothing changes hands, unless a partition had two owners.
        """
        row: Int = self._record(subject, Role.CURRENT)
        if self.groups[group].is_shared or self.newest[row].value_bytes != stop - at:
            return False
        mark: Int = 0
        while self.shapes.marks[mark].field != MarkedField.OWNED:
            mark += 1
        start: Int = self.shapes.marks[mark].start
        return same_bytes(self.values, self.newest[row].value + start - at, self.values, start, stop - start)

    @cython.cfunc
    @cython.exceptval(-1)
    def _find_owned(self, group: Int, subject: Int) -> cython.int:
        """Put the partitions that the member took at its epoch into ``_moved``."""
        record: Int = self._record(subject, Role.CURRENT)
        start: Int = self.newest[record].value
        marks: Int = self.shapes.used
        found: Int = 0
        self._moved_used = 0
        if self.newest[record].value_bytes < 0:
            return 0
        self.shapes.behind(
            self.value_shapes[self._owning_shape].first,
            self.value_shapes[self._owning_shape].behind,
            start + 2,
            start + self.newest[record].value_bytes,
        )
        self._look_up(group, marks, self.shapes.used, False)
        for place in range(self._moved_used):
            row = self._moved[place]
            if self._is_owned(group, row) and self._partition_epoch(row) == self.subjects[subject].epoch:
                self.owners[row].released = self.order
                self._moved[found] = row
                found += 1
        self._moved_used = found
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _look_up(self, group: Int, mark: Int, last: Int, is_new: cython.bint) -> cython.bint:
        """Append the partitions that the marks name to ``_moved``; false if a new list has a topic twice."""
        topics: Int = 0
        lists: Int = 0
        row: Int = -1
        put_be(self._partition_key, 0, group, 4)
        while mark < last:
            field = self.shapes.marks[mark].field
            if field == MarkedField.OWNED:
                topics = self.shapes.marks[mark].length
                lists += 1
            elif field == MarkedField.TOPIC_ID:
                copy_bytes(self.values, self.shapes.marks[mark].at, self._partition_key, 4, 16)
                if is_new and topics > 1:
                    put_be(self._partition_key, TOPIC_KEY_BYTES - 1, lists, 1)
                    row = self._owner(group, TOPIC_KEY_BYTES)
                    if self.owners[row].taken == self.order:
                        return False
                    self.owners[row].taken = self.order
            elif field == MarkedField.PARTITIONS:
                count = self.shapes.marks[mark].length
                at = self.shapes.marks[mark].at
                if self._moved_used + count > len(self._moved):
                    with cython.gil:
                        self._moved = grown(self._moved, self._moved_used, self._moved_used + count)
                for place in range(count):
                    copy_bytes(self.values, at + 4 * place, self._partition_key, 20, 4)
                    # Partitions come in much the same order again.
                    row += 1
                    if row >= self.partitions.used or not self._is_partition(row):
                        row = self._owner(group, PARTITION_KEY_BYTES)
                    self._moved[self._moved_used] = row
                    self._moved_used += 1
            mark += 1
        return True

    @cython.cfunc
    def _is_partition(self, row: Int) -> cython.bint:
        """Whether the row is that of the partition whose key is at hand."""
        return self.partitions.keys[row].length == PARTITION_KEY_BYTES and same_bytes(
            self.partitions.data, self.partitions.keys[row].start, self._partition_key, 0, PARTITION_KEY_BYTES
        )

    @cython.cfunc
    @cython.exceptval(-1)
    def _owner(self, group: Int, length: Int) -> Int:
        """Row of the partition whose key, of ``length`` bytes, is at hand."""
        hashed: Int = hash_bytes(self._partition_key, 0, length)
        row: Int = self.partitions.find(self._partition_key, 0, length, hashed)
        if row < 0:
            row = self._new_owner(self._partition_key, 0, length, hashed)
            self.owners[row].group = group
        return row

    @cython.cfunc
    @cython.exceptval(-1)
    def _new_owner(self, data: Bytes, at: Int, length: Int, hashed: Int) -> Int:
        self.partitions.reserve(1, length)
        if self.partitions.used == len(self.owners):
            with cython.gil:
                self.owners = grown(self.owners, self.partitions.used, self.partitions.used + 1)
        row: Int = self.partitions.add(data, at, length, hashed)
        self.owners[row].owner = -1
        self.owners[row].released = 0
        self.owners[row].taken = 0
        return row

    @cython.cfunc
    def _is_owned(self, group: Int, row: Int) -> cython.bint:
        return self.owners[row].owner >= 0 and self.owners[row].generation == self.groups[group].generation

    @cython.cfunc
    def _partition_epoch(self, row: Int) -> Int:
        return self.subjects[self.owners[row].owner].epoch

    @cython.cfunc
    def _let_go(self, last: Int) -> cython.void:
        """Leave the first partitions in ``_moved`` without an owner."""
        for place in range(last):
            self.owners[self._moved[place]].owner = -1

    @cython.cfunc
    @cython.exceptval(-1)
    def _release(self, group: Int, subject: Int) -> cython.int:
        """Let go of all partitions that the member took at its epoch."""
        self.shapes.used = 0
        self._find_owned(group, subject)
        self._let_go(self._moved_used)
        return 0


@cython.cfunc
def _behind_plain_text(data: Bytes, at: Int, stop: Int) -> Int:
    """Position behind the string at ``at``, ``INVALID`` if it is null, cut or not plain UTF-8."""
    if stop - at < 2:
        return INVALID
    length: Int = be16(data, at)
    if length < 0 or length > stop - at - 2 or not is_plain_utf8(data, at + 2, length):
        return INVALID
    return at + 2 + length


def _key_table(data: Bytes, lengths: Int64s) -> KeyTable:
    table: KeyTable = KeyTable(len(lengths), len(data))
    at: Int = 0
    for row in range(len(lengths)):
        table.reserve(1, lengths[row])
        table.number(data, at, lengths[row])
        at += lengths[row]
    return table
