"""The fold: batches split into records, commits folded to the last event of each offset key.

:func:`fold_chunk` handles what a healthy offsets log consists of and stops, having changed nothing, at the
first batch that is anything else; the readers of ``coordinator_core.log`` then say what that is. So there is
one implementation of damage, and this one need not know the rules of unusual input, only recognise it.
Sequential rules: ``coordinator_core.replay.sequential``.
"""

import cython

if not cython.compiled:
    from coordinator_core.kernels.commits import commit_value
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.fold_tables import FoldTables
    from coordinator_core.kernels.framing import *
    from coordinator_core.kernels.primitives import *

_COMMIT = cython.declare(Int, 1)
_ABORT = cython.declare(Int, 0)


# Records of a batch, put into `scratch`


@cython.cfunc
def split_records(data: Bytes, at: Int, batch: Header, first: Int, tables: FoldTables) -> cython.bint:
    """Split the records of the batch at ``at`` into ``tables.scratch`` from ``first`` on.

    False if anything about one of them is unusual.
    """
    stop: Int = at + batch.size
    position: Int = at + HEADER_BYTES
    previous_delta: Int = -1
    entries: Int = batch.count
    if batch.count > 0:
        tables.scratch[first].batch_records = batch.count
    for index in range(first, first + batch.count):
        record = next_record(data, position, stop)
        if record.unusual == Unusual.HEADERS:
            headers = header_count(data, record)
            entries += headers
            if headers < 0 or entries > tables.bounds.max_records:
                return False
        elif record.unusual != 0:
            return False
        if not follows(record, previous_delta, batch) or record.key_bytes < 2:
            return False
        previous_delta = record.offset_delta
        tables.scratch[index].offset = batch.base_offset + record.offset_delta
        tables.scratch[index].timestamp = record_timestamp(batch, record)
        tables.scratch[index].key = record.key
        tables.scratch[index].key_bytes = record.key_bytes
        tables.scratch[index].value = record.value
        tables.scratch[index].value_bytes = record.value_bytes
        tables.scratch[index].size_bytes = record.end - position
        tables.scratch[index].index = index - first
        tables.scratch[index].hash = -1
        position = record.end
        if batch.attributes & CONTROL_BIT:
            # The first two bytes are the version, whose later numbers keep the layout.
            if record.key_bytes < 4 or be16(data, record.key) < 0:
                return False
            tables.scratch[index].kind = Kind.CONTROL
            tables.scratch[index].detail = be16(data, record.key + 2)
            continue
        body_bytes = _classify(data, record, index, tables)
        if body_bytes == INVALID:
            return False
        tables.scratch[index].body = record.key + 2
        tables.scratch[index].body_bytes = body_bytes
    return batch.count == 0 or position == stop


@cython.cfunc
def _classify(data: Bytes, record: Record, index: Int, tables: FoldTables) -> Int:
    """Put the kind of the record into ``scratch``; returns the size of its ``body``.

    ``INVALID`` if that takes more than a look at well-formed bytes.
    """
    key: Int = record.key
    key_type: Int = be16(data, key)
    stop: Int = key + record.key_bytes
    group_bytes: Int = -1
    tables.scratch[index].key_type = key_type
    if record.key_bytes >= 4:
        group_bytes = be16(data, key + 2)
    group_stop: Int = key + 4 + group_bytes
    has_group: cython.bint = group_bytes >= 0 and group_stop <= stop
    if has_group and tables.check_utf8 and not is_plain_utf8(data, key + 4, group_bytes):
        return INVALID
    if key_type != 0 and key_type != 1:
        tables.scratch[index].kind = Kind.GROUP
        return group_bytes + 2 if has_group else 0
    if not has_group or group_stop + 2 > stop:
        return INVALID
    topic_bytes: Int = be16(data, group_stop)
    body_stop: Int = group_stop + 2 + topic_bytes + 4
    if topic_bytes < 0 or body_stop > stop:
        return INVALID
    if tables.check_utf8 and not is_plain_utf8(data, group_stop + 2, topic_bytes):
        return INVALID
    if record.value_bytes < 0:
        tables.scratch[index].kind = Kind.TOMBSTONE
        tables.scratch[index].detail = -1
        return body_stop - key - 2
    newest: Int = tables.max_version if key_type == 1 else tables.max_legacy_version
    commit = commit_value(data, record.value, record.value_bytes, newest)
    if commit.version < 0:
        return INVALID
    tables.scratch[index].kind = Kind.VALUE
    tables.scratch[index].detail = commit.version
    return body_stop - key - 2


@cython.cfunc
def put_record(data: Bytes, key_bytes: Int, offset: Int, timestamp: Int, tables: FoldTables) -> cython.bint:
    """Put one record, whose key and value are ``data``, into ``scratch``; false unless it is an ordinary commit."""
    if key_bytes < 2:
        return False
    tables.scratch[0].offset = offset
    tables.scratch[0].timestamp = timestamp
    tables.scratch[0].index = 0
    tables.scratch[0].batch_records = 1
    is_usual: cython.bint = put_split(data, 0, key_bytes, key_bytes, len(data) - key_bytes, 0, tables)
    return is_usual and tables.scratch[0].kind == Kind.VALUE


@cython.cfunc
def put_split(
    data: Bytes, key: Int, key_bytes: Int, value: Int, value_bytes: Int, index: Int, tables: FoldTables
) -> cython.bint:
    """Put key and value at these positions, and what they say, into ``tables.scratch[index]``; false if unusual."""
    record = Record(
        end=value + max(value_bytes, 0),
        unusual=0,
        timestamp_delta=0,
        offset_delta=0,
        tail=0,
        key=key,
        key_bytes=key_bytes,
        value=value,
        value_bytes=value_bytes,
    )
    body_bytes: Int = _classify(data, record, index, tables)
    tables.scratch[index].key = key
    tables.scratch[index].key_bytes = key_bytes
    tables.scratch[index].value = value
    tables.scratch[index].value_bytes = value_bytes
    tables.scratch[index].body = key + 2
    tables.scratch[index].body_bytes = body_bytes
    tables.scratch[index].hash = -1
    return body_bytes != INVALID


# Rows of names, keys and producers


@cython.cfunc
def group_row(data: Bytes, body: Int, length: Int, tables: FoldTables) -> Int:
    """Row of the group whose id, with its int16 length, is at ``body``."""
    before: Int = tables.group_ids.used
    row: Int = tables.group_ids.number(data, body, length)
    if row == before:
        if not is_plain_utf8(data, body + 2, length - 2):
            tables.has_malformed_names = True
        tables.groups[row].touched = 0
        tables.groups[row].stamp = 0
        for key_type in range(KEY_TYPES):
            tables.statistics[KEY_TYPES * row + key_type].records = 0
            tables.statistics[KEY_TYPES * row + key_type].tombstones = 0
            tables.statistics[KEY_TYPES * row + key_type].size_bytes = 0
    return row


@cython.cfunc
def _topic_row(data: Bytes, body: Int, length: Int, tables: FoldTables) -> Int:
    before: Int = tables.topics.used
    row: Int = tables.topics.number(data, body, length)
    if row == before and not is_plain_utf8(data, body + 2, length - 2):
        tables.has_malformed_names = True
    return row


@cython.cfunc
def _new_key(data: Bytes, body: Int, length: Int, hashed: Int, group: Int, topic: Int, tables: FoldTables) -> Int:
    """Row made for the offset key at ``body``; ``group`` and ``topic`` are -1 where not known yet."""
    row: Int = tables.keys.add(data, body, length, hashed)
    if group < 0:
        group_bytes: Int = be16(data, body) + 2
        group = group_row(data, body, group_bytes, tables)
        topic = _topic_row(data, body + group_bytes, length - group_bytes - 4, tables)
    tables.key_states[row].last_tombstone = -1
    tables.key_states[row].producer_id = 0
    tables.events[row].group = group
    tables.events[row].topic = topic
    tables.events[row].partition = be32(data, body + length - 4)
    tables.events[row].next = 0
    tables.events[row].pending = -1
    tables.events[row].kind = EventKind.NONE
    tables.events[row].key_type = 0
    tables.events[row].sequence = -1
    _clear_value(row, tables)
    return row


@cython.cfunc
def _clear_value(row: Int, tables: FoldTables) -> cython.void:
    tables.events[row].value = -1
    tables.events[row].value_bytes = 0
    tables.events[row].record_offset = 0
    tables.events[row].ordering_offset = 0
    tables.events[row].producer_epoch = 0
    tables.events[row].is_committed = 0


@cython.cfunc
def _producer_row(producer_id: Int, tables: FoldTables) -> Int:
    """Row of the producer, made when it is new."""
    put_be(tables.producer_key, 0, producer_id, 8)
    before: Int = tables.producer_ids.used
    row: Int = tables.producer_ids.number(tables.producer_key, 0, 8)
    if row == before:
        tables.producers[row].producer_id = producer_id
        tables.producers[row].first_marker = -1
        tables.producers[row].first_marker_offset = 0
        tables.producers[row].first_marker_commits = 0
        tables.producers[row].pending = -1
        tables.producers[row].is_open = 0
        tables.producers[row].keys = 0
    return row


@cython.cfunc
def _open_keys(producer_id: Int, tables: FoldTables) -> Int:
    """Number of offset keys that the producer's open transaction has pending."""
    put_be(tables.producer_key, 0, producer_id, 8)
    row: Int = tables.producer_ids.find(tables.producer_key, 0, 8, hash_bytes(tables.producer_key, 0, 8))
    return tables.producers[row].keys if row >= 0 else 0


# Offset keys of the records in `scratch`


@cython.cfunc
def _step_over(record: Int, hash_all: cython.bint, tables: FoldTables) -> Int:
    return 1 if hash_all else tables.scratch[record].batch_records


@cython.cfunc
def _hash_keys(data: Bytes, count: Int, hash_all: cython.bint, tables: FoldTables) -> cython.void:
    """Hash the keys of the records in ``scratch`` that no other precedes in their batch, or those of all.

    With more offset keys than fit the caches most of the time goes into waiting for memory: what looking up
    the keys will read is fetched beforehand, so that the waits overlap.
    """
    record: Int = 0
    while record < count:
        if tables.scratch[record].kind <= Kind.TOMBSTONE:
            tables.scratch[record].hash = hash_bytes(
                data, tables.scratch[record].body, tables.scratch[record].body_bytes
            )
            tables.keys.fetch_index(tables.scratch[record].hash)
        record += _step_over(record, hash_all, tables)
    record = 0
    while record < count:
        row = -1
        if tables.scratch[record].hash >= 0:
            row = tables.keys.likely_row(tables.scratch[record].hash)
            if row >= 0:
                tables.keys.fetch_key(row)
                _fetch_event(row, tables)
        tables.scratch[record].row = row
        record += _step_over(record, hash_all, tables)
    record = 0
    while record < count:
        if tables.scratch[record].hash >= 0:
            row = tables.keys.likely_row(tables.scratch[record].hash)
            if row >= 0:
                tables.keys.fetch_data(row)
        record += _step_over(record, hash_all, tables)
    if not hash_all:
        _fetch_chains(count, tables)


@cython.cfunc
def _fetch_chains(count: Int, tables: FoldTables) -> cython.void:
    """Fetch the events of the keys that followed each other the time before.

    Each names the next one, so that a batch would wait for one after the other: here all batches wait side by side.
    """
    step: Int = 1
    more: cython.bint = True
    while more:
        more = False
        first: Int = 0
        while first < count:
            if step < tables.scratch[first].batch_records:
                row = tables.scratch[first + step - 1].row
                if row >= 0:
                    if step == 1:
                        _fetch_statistics(tables.events[row].group, tables.scratch[first].key_type, tables)
                        if tables.events[row].next - 2 == row:
                            for other in range(row + 2, row + tables.scratch[first].batch_records):
                                _fetch_event(other, tables)
                    row = tables.events[row].next - 1
                    _fetch_event(row, tables)
                    more = True
                tables.scratch[first + step].row = row
            first += tables.scratch[first].batch_records
        step += 1


@cython.cfunc
def _fetch_event(row: Int, tables: FoldTables) -> cython.void:
    if cython.compiled:
        if 0 <= row < len(tables.events):
            fetch_ahead(cython.address(tables.events[row]))


@cython.cfunc
def _fetch_statistics(group: Int, key_type: Int, tables: FoldTables) -> cython.void:
    if cython.compiled:
        fetch_ahead(cython.address(tables.statistics[KEY_TYPES * group + key_type]))


@cython.cfunc
def _hash_batch(data: Bytes, record: Int, count: Int, tables: FoldTables) -> cython.void:
    """Hash the keys from ``record`` on to the end of its batch, and fetch their places in the index."""
    while True:
        tables.scratch[record].hash = hash_bytes(data, tables.scratch[record].body, tables.scratch[record].body_bytes)
        tables.keys.fetch_index(tables.scratch[record].hash)
        record += 1
        if (
            record == count
            or tables.scratch[record].index == 0
            or tables.scratch[record].kind > Kind.TOMBSTONE
            or tables.scratch[record].hash >= 0
        ):
            break


@cython.cfunc
def find_keys(data: Bytes, count: Int, tables: FoldTables) -> cython.void:
    """Put the rows of the offset keys of the records in ``scratch`` there, made when they are new.

    A group commits its partitions in much the same order again and again: the key that followed the last one
    the time before is tried first, as long as that is right most of the time (``prediction_score``). Whether
    it is right shows in its event, which is needed anyway, so that the key itself need not be read.
    """
    score: Int = tables.prediction_score
    previous: Int = -1
    last_body: Int = 0
    last_bytes: Int = 0
    _hash_keys(data, count, score <= 0, tables)
    for record in range(count):
        kind = tables.scratch[record].kind
        body = tables.scratch[record].body
        body_bytes = tables.scratch[record].body_bytes
        if tables.scratch[record].index == 0:
            previous = -1
        if kind > Kind.TOMBSTONE:
            if kind == Kind.GROUP and body_bytes > 0:
                tables.scratch[record].row = group_row(data, body, body_bytes, tables)
            previous = -1
            continue
        predicted, group, topic, row = -1, -1, -1, -1
        if previous >= 0:
            predicted = tables.events[previous].next - 1
            if body_bytes == last_bytes and same_bytes(data, last_body, data, body, body_bytes - 4):
                group = tables.events[previous].group
                topic = tables.events[previous].topic
            if predicted >= 0 and tables.events[predicted].partition == be32(data, body + body_bytes - 4):
                if group < 0 and tables.events[predicted].group == tables.events[previous].group:
                    # The same group, another topic?
                    group_bytes = be16(data, last_body) + 2
                    topic_bytes = body_bytes - group_bytes - 4
                    topic = tables.events[predicted].topic
                    if (
                        topic_bytes == tables.topics.keys[topic].length
                        and same_bytes(data, last_body, data, body, group_bytes)
                        and same_bytes(
                            tables.topics.data, tables.topics.keys[topic].start, data, body + group_bytes, topic_bytes
                        )
                    ):
                        group = tables.events[predicted].group
                if group >= 0 and group == tables.events[predicted].group and topic == tables.events[predicted].topic:
                    row = predicted
        if row < 0:
            if tables.scratch[record].hash < 0:
                # No key followed the one before: those behind this one are mostly new too.
                _hash_batch(data, record, count, tables)
            row = tables.keys.find(data, body, body_bytes, tables.scratch[record].hash)
            if row < 0:
                row = _new_key(data, body, body_bytes, tables.scratch[record].hash, group, topic, tables)
        if row == predicted:
            score = min(score + 1, 64)
        elif previous >= 0:
            score = max(score - 8, -64)
            tables.events[previous].next = row + 1
        tables.scratch[record].row = row
        previous, last_body, last_bytes = row, body, body_bytes
    tables.prediction_score = score


# Transactions

_LOOKED_AT = cython.declare(Int, 8)
"""Rows at the beginning of a key's list that are looked at one by one."""


@cython.cfunc
def _pair(key: Int, producer: Int, tables: FoldTables) -> Int:
    """The hash of a pair, which is put into ``tables.pair``."""
    put_be(tables.pair, 0, key, 8)
    put_be(tables.pair, 8, producer, 8)
    return hash_bytes(tables.pair, 0, 16)


@cython.cfunc
def _note_deep(row: Int, tables: FoldTables) -> cython.void:
    """Have :func:`_deep_row` find the row, the last that is looked at, when another one comes before it."""
    hashed: Int = _pair(tables.pending[row].key, tables.pending[row].producer, tables)
    pair: Int = tables.pairs.find(tables.pair, 0, 16, hashed)
    if pair < 0:
        pair = tables.pairs.add(tables.pair, 0, 16, hashed)
    tables.pair_rows[pair] = row


@cython.cfunc
def _deep_row(key: Int, producer: Int, tables: FoldTables) -> Int:
    """The open row of a pair that was noted, -1 for none."""
    pair: Int = tables.pairs.find(tables.pair, 0, 16, _pair(key, producer, tables))
    if pair < 0:
        return -1
    row: Int = tables.pair_rows[pair]
    is_same: cython.bint = tables.pending[row].key == key and tables.pending[row].producer == producer
    return row if is_same and tables.pending[row].phase == Phase.OPEN else -1


@cython.cfunc
def _put_first(row: Int, tables: FoldTables) -> cython.void:
    """Put a pending row at the beginning of the list of its key."""
    key: Int = tables.pending[row].key
    following: Int = tables.events[key].pending
    if following >= 0:
        tables.pending[following].previous_of_key = row
    tables.events[key].pending = row
    tables.pending[row].next_of_key = following
    tables.pending[row].previous_of_key = -1


@cython.cfunc
def _transaction_row(key: Int, producer: Int, tables: FoldTables) -> Int:
    """The pending row of the offset key in the producer's open transaction, made when it is new.

    The list of a key begins with the rows that no tombstone has cleared. Of its first rows each is looked at; those
    behind them are found by ``pairs``.
    """
    following: Int = tables.events[key].pending
    row: Int = following
    last: Int = -1
    looked: Int = 0
    while row >= 0 and looked < _LOOKED_AT:
        looked += 1
        if tables.pending[row].producer == producer:
            break
        last = row
        row = tables.pending[row].next_of_key
    tables.list_steps += looked
    is_deep: cython.bint = looked == _LOOKED_AT and (row < 0 or tables.pending[row].producer != producer)
    if is_deep and row >= 0:
        row = _deep_row(key, producer, tables)
    if row >= 0:
        if tables.tombstone_drops_pending and tables.pending[row].kind == PendingKind.CLEARED:
            # It becomes a value, or is cleared again with the others.
            tables.pending[row].kind = PendingKind.NOTED
            if row != following:
                if is_deep:
                    _note_deep(last, tables)
                _unlink(row, tables)
                _put_first(row, tables)
        return row
    if is_deep:
        _note_deep(last, tables)
    row = tables.pending_free
    if row >= 0:
        tables.pending_free = tables.pending[row].next_of_key
    else:
        row = tables.pending_used
        tables.pending_used = row + 1
    tables.pending[row].key = key
    _put_first(row, tables)
    tables.pending[row].producer = producer
    tables.pending[row].kind = PendingKind.NOTED
    tables.pending[row].phase = Phase.OPEN
    tables.pending[row].next_of_producer = tables.producers[producer].pending
    tables.producers[producer].pending = row
    tables.producers[producer].keys += 1
    return row


@cython.cfunc
def _is_newer(row: Int, tables: FoldTables) -> cython.bint:
    """Whether a pending commit replaces the last event of its key when its transaction commits."""
    key: Int = tables.pending[row].key
    return (
        tables.events[key].kind != EventKind.VALUE
        or tables.ordering == OrderingOffset.NONE
        or tables.events[key].ordering_offset < tables.pending[row].ordering_offset
    )


@cython.cfunc
def _commit_pending(row: Int, sequence: Int, tables: FoldTables) -> cython.void:
    """Make a pending commit the last event of its key."""
    key: Int = tables.pending[row].key
    tables.events[key].kind = EventKind.VALUE
    tables.events[key].key_type = tables.pending[row].key_type
    tables.events[key].is_committed = 1
    tables.events[key].producer_epoch = tables.pending[row].producer_epoch
    tables.events[key].sequence = sequence
    tables.events[key].value = tables.pending[row].value
    tables.events[key].value_bytes = tables.pending[row].value_bytes
    tables.events[key].record_offset = tables.pending[row].record_offset
    tables.events[key].ordering_offset = tables.pending[row].ordering_offset
    tables.key_states[key].producer_id = tables.producers[tables.pending[row].producer].producer_id


@cython.cfunc
def _unlink(row: Int, tables: FoldTables) -> cython.void:
    """Take a pending row out of the list of its key."""
    before: Int = tables.pending[row].previous_of_key
    after: Int = tables.pending[row].next_of_key
    if before >= 0:
        tables.pending[before].next_of_key = after
    else:
        tables.events[tables.pending[row].key].pending = after
    if after >= 0:
        tables.pending[after].previous_of_key = before


@cython.cfunc
def _end_transaction(
    producer: Int, marker_offset: Int, commits: cython.bint, sequence: Int, tables: FoldTables
) -> cython.void:
    """Apply an end marker: resolve what the producer has pending, note the marker if it is the first."""
    first: cython.bint = tables.producers[producer].first_marker < 0
    fragment: Int = tables.fragments_used
    row: Int = tables.producers[producer].pending
    tables.stamp += 1
    while row >= 0:
        if commits and tables.pending[row].kind == PendingKind.VALUE and _is_newer(row, tables):
            _commit_pending(row, sequence, tables)
        _unlink(row, tables)
        group = tables.events[tables.pending[row].key].group
        if tables.groups[group].stamp != tables.stamp:
            tables.groups[group].stamp = tables.stamp
            tables.fragment_groups[tables.fragment_groups_used].fragment = fragment
            tables.fragment_groups[tables.fragment_groups_used].group = group
            tables.fragment_groups_used += 1
        following = tables.pending[row].next_of_producer
        if first:
            tables.pending[row].phase = Phase.CLOSED
        else:
            tables.pending[row].phase = Phase.FREE
            tables.pending[row].next_of_key = tables.pending_free
            tables.pending_free = row
        row = following
    tables.producers[producer].pending = -1
    if tables.producers[producer].is_open:
        tables.fragments[fragment].producer_id = tables.producers[producer].producer_id
        tables.fragments[fragment].producer_epoch = tables.producers[producer].producer_epoch
        tables.fragments[fragment].first_offset = tables.producers[producer].first_offset
        tables.fragments[fragment].last_offset = tables.producers[producer].last_offset
        tables.fragments[fragment].timestamp = tables.producers[producer].timestamp
        tables.fragments[fragment].marker_offset = marker_offset
        tables.fragments[fragment].committed = commits
        tables.fragments[fragment].keys = tables.producers[producer].keys
        tables.fragments[fragment].first = first
        tables.fragments_used = fragment + 1
        tables.producers[producer].is_open = 0
    if first:
        tables.producers[producer].first_marker = sequence
        tables.producers[producer].first_marker_offset = marker_offset
        tables.producers[producer].first_marker_commits = commits


@cython.cfunc
@cython.exceptval(-1)
def reserve_group_records(count: Int, tables: FoldTables) -> cython.int:
    """Make room for the group records among the ``count`` records in ``scratch``."""
    records: Int = 0
    key_bytes: Int = 0
    value_bytes: Int = 0
    for index in range(count):
        if tables.scratch[index].kind == Kind.GROUP:
            records += 1
            key_bytes += max(tables.scratch[index].key_bytes, 0)
            value_bytes += max(tables.scratch[index].value_bytes, 0)
    if records > 0:
        tables.reserve_group_records(records, key_bytes, value_bytes)
    return 0


@cython.cfunc
def _append_group_record(data: Bytes, index: Int, sequence: Int, group: Int, tables: FoldTables) -> cython.void:
    """Keep the record at ``index`` of ``scratch``, whose bytes are in ``data``, whole."""
    row: Int = tables.group_records_used
    key_bytes: Int = tables.scratch[index].key_bytes
    value_bytes: Int = tables.scratch[index].value_bytes
    tables.group_records_used = row + 1
    tables.group_records[row].sequence = sequence
    tables.group_records[row].record_offset = tables.scratch[index].offset
    tables.group_records[row].key_bytes = key_bytes
    tables.group_records[row].value_bytes = value_bytes
    tables.group_records[row].timestamp = tables.scratch[index].timestamp
    tables.group_records[row].size_bytes = tables.scratch[index].size_bytes
    tables.group_records[row].group = group
    tables.group_records[row].key_type = tables.scratch[index].key_type
    copy_bytes(data, tables.scratch[index].key, tables.group_keys, tables.group_keys_used, key_bytes)
    copy_bytes(data, tables.scratch[index].value, tables.group_values, tables.group_values_used, value_bytes)
    tables.group_keys_used += max(key_bytes, 0)
    tables.group_values_used += max(value_bytes, 0)


@cython.cfunc
def _fold_control(data: Bytes, first: Int, count: Int, producer_id: Int, tables: FoldTables) -> cython.void:
    """Apply control records in ``scratch``: Scala looks at the first only, and lets any type end."""
    for index in range(first, first + count):
        sequence = tables.sequence
        tables.sequence += 1
        tables.control_records += 1
        if index > first and not tables.pending_by_producer:
            continue
        if tables.scratch[index].kind == Kind.GROUP:
            _append_group_record(data, index, sequence, -1, tables)
            continue
        control = tables.scratch[index].detail
        if control in (_COMMIT, _ABORT) or not tables.pending_by_producer:
            _end_transaction(
                _producer_row(producer_id, tables), tables.scratch[index].offset, control == _COMMIT, sequence, tables
            )


# Records applied


@cython.cfunc
def _count_commit(index: Int, group: Int, tables: FoldTables) -> cython.void:
    key_type: Int = tables.scratch[index].key_type
    row: Int = KEY_TYPES * group + key_type
    tables.commits[COMMIT_VERSIONS * key_type + 1 + tables.scratch[index].detail] += 1
    if tables.statistics[row].records == 0:
        tables.statistics[row].first_timestamp = tables.scratch[index].timestamp
    tables.statistics[row].records += 1
    tables.statistics[row].size_bytes += tables.scratch[index].size_bytes
    tables.statistics[row].last_timestamp = tables.scratch[index].timestamp
    if tables.scratch[index].kind == Kind.TOMBSTONE:
        tables.statistics[row].tombstones += 1


@cython.cfunc
def _join_transaction(index: Int, producer: Int, producer_epoch: Int, tables: FoldTables) -> Int:
    """The pending row of a commit, or of a tombstone, in the producer's transaction."""
    if not tables.producers[producer].is_open:
        tables.producers[producer].is_open = 1
        tables.producers[producer].keys = 0
        tables.producers[producer].first_offset = tables.scratch[index].offset
    tables.producers[producer].producer_epoch = producer_epoch
    tables.producers[producer].last_offset = tables.scratch[index].offset
    tables.producers[producer].timestamp = tables.scratch[index].timestamp
    return _transaction_row(tables.scratch[index].row, producer, tables)


@cython.cfunc
def _fold_tombstone(
    index: Int, row: Int, sequence: Int, in_transaction: cython.bint, tables: FoldTables
) -> cython.void:
    key: Int = tables.scratch[index].row
    if tables.pending_by_producer or not in_transaction:
        tables.events[key].kind = EventKind.TOMBSTONE
        tables.events[key].sequence = sequence
        _clear_value(key, tables)
        tables.key_states[key].last_tombstone = sequence
    if tables.tombstone_drops_pending:
        other = tables.events[key].pending
        # Behind the first row that is cleared, all are.
        while other >= 0 and tables.pending[other].kind != PendingKind.CLEARED:
            tables.list_steps += 1
            tables.pending[other].kind = PendingKind.CLEARED
            other = tables.pending[other].next_of_key
    elif in_transaction and not tables.pending_by_producer:
        tables.pending[row].kind = PendingKind.CLEARED


@cython.cfunc
def _note_creation(sequence: Int, record_offset: Int, group: Int, tables: FoldTables) -> cython.void:
    """Note that a commit may create its group, once between two group records of the group."""
    if tables.groups[group].touched == 0:
        tables.groups[group].touched = 1
        tables.creations[tables.creations_used].sequence = sequence
        tables.creations[tables.creations_used].record_offset = record_offset
        tables.creations[tables.creations_used].group = group
        tables.creations_used += 1


@cython.cfunc
def _copied(data: Bytes, index: Int, at: Int, room: Int, tables: FoldTables) -> Int:
    """Position of a copy of the value of record ``index``: at that position of the arena where the ``room`` fits."""
    length: Int = tables.scratch[index].value_bytes
    if at < ARENA or room != length:
        at = tables.arena_used + ARENA
        tables.arena_used += length
    copy_bytes(data, tables.scratch[index].value, tables.arena, at - ARENA, length)
    return at


@cython.cfunc
def fold_records(data: Bytes, first: Int, batch: Header, tag: Int, tables: FoldTables) -> cython.void:
    """Apply the records of a batch in ``scratch`` from ``first`` on; ``tag`` goes on positions, or is ``COPIED``."""
    java: cython.bint = tables.pending_by_producer
    in_transaction: cython.bint = (
        batch.producer_id != NO_PRODUCER_ID if java else batch.attributes & TRANSACTIONAL_BIT != 0
    )
    producer: Int = -1
    row: Int = -1
    sequence: Int = tables.sequence - 1
    min_timestamp: Int = tables.min_timestamp
    max_timestamp: Int = tables.max_timestamp
    tables.sequence += batch.count
    for index in range(first, first + batch.count):
        sequence += 1
        min_timestamp = min(min_timestamp, tables.scratch[index].timestamp)
        max_timestamp = max(max_timestamp, tables.scratch[index].timestamp)
        key = tables.scratch[index].row
        if tables.scratch[index].kind == Kind.GROUP:
            group = -1
            if tables.scratch[index].body_bytes > 0:
                group = key
                tables.groups[group].touched = 0
            _append_group_record(data, index, sequence, group, tables)
            continue
        group = tables.events[key].group
        _count_commit(index, group, tables)
        if in_transaction:
            if producer < 0:
                producer = _producer_row(batch.producer_id, tables)
            row = _join_transaction(index, producer, batch.producer_epoch, tables)
        if tables.scratch[index].kind == Kind.TOMBSTONE:
            _fold_tombstone(index, row, sequence, in_transaction, tables)
            continue
        if java:
            _note_creation(sequence, tables.scratch[index].offset, group, tables)
        ordering_offset = tables.scratch[index].offset
        if tables.ordering == OrderingOffset.BATCH_HEADER:
            ordering_offset = batch.base_offset
        elif tables.ordering == OrderingOffset.BATCH_FIRST_RECORD:
            ordering_offset = tables.scratch[first].offset
        if in_transaction:
            value = _copied(data, index, -1, 0, tables) if tag == COPIED else tables.scratch[index].value + tag
            tables.pending[row].kind = PendingKind.VALUE
            tables.pending[row].sequence = sequence
            tables.pending[row].value = value
            tables.pending[row].value_bytes = tables.scratch[index].value_bytes
            tables.pending[row].key_type = tables.scratch[index].key_type
            tables.pending[row].record_offset = tables.scratch[index].offset
            tables.pending[row].ordering_offset = ordering_offset
            tables.pending[row].producer_epoch = batch.producer_epoch
        else:
            value = tables.scratch[index].value + tag
            if tag == COPIED:
                # The value that it replaces is nobody else's: most are as long as the next one.
                value = _copied(data, index, tables.events[key].value, tables.events[key].value_bytes, tables)
            tables.events[key].kind = EventKind.VALUE
            tables.events[key].key_type = tables.scratch[index].key_type
            tables.events[key].is_committed = 0
            tables.events[key].producer_epoch = 0
            tables.events[key].sequence = sequence
            tables.events[key].value = value
            tables.events[key].value_bytes = tables.scratch[index].value_bytes
            tables.events[key].record_offset = tables.scratch[index].offset
            tables.events[key].ordering_offset = ordering_offset
    tables.min_timestamp = min_timestamp
    tables.max_timestamp = max_timestamp


@cython.cfunc
def count_batch(batch: Header, next_offset: Int, tables: FoldTables) -> cython.void:
    if tables.first_offset < 0:
        tables.first_offset = batch.base_offset
    tables.next_offset = next_offset
    tables.batches += 1
    tables.codecs[batch.attributes & CODEC_BITS] += 1


@cython.cfunc
def _fold_batches(data: Bytes, position: Int, stop: Int, tag: Int, tables: FoldTables) -> cython.void:
    """Fold the batches in ``data[position:stop]``, whose records are in ``scratch``."""
    records: Int = 0
    while position < stop:
        batch = header(data, position)
        if batch.attributes & CONTROL_BIT:
            _fold_control(data, records, batch.count, batch.producer_id, tables)
        else:
            fold_records(data, records, batch, tag, tables)
        count_batch(batch, batch.last_offset + 1, tables)
        records += batch.count
        position += batch.size


def fold_chunk(data: Bytes, start: Int, stop: Int, tag: Int, is_unpacked: cython.bint, tables: FoldTables) -> Int:
    """Fold the v2 batches in ``data[start:stop]``, one after the other; returns a :class:`Stop`.

    ``is_unpacked`` says that the CRCs were checked and the records decompressed before. ``tag`` goes on positions, or
    is ``COPIED``, and ``tables.arena`` has the room. ``tables.position``
    is where it stopped; the fold holds all batches before that and nothing of the one there.
    """
    position: Int = start
    status: Int = Stop.END
    tables.position = start
    with cython.nogil:
        while status == Stop.END and position < stop:
            status = _fold_some(data, position, stop, tag, is_unpacked, tables)
            position = tables.position
    return status


@cython.cfunc
@cython.exceptval(-1)
def _fold_some(data: Bytes, position: Int, stop: Int, tag: Int, is_unpacked: cython.bint, tables: FoldTables) -> Int:
    """Fold some batches together; returns a :class:`Stop`, ``tables.position`` is behind them."""
    first: Int = position
    records: Int = 0
    groups: Int = 0
    expected: Int = tables.next_offset
    status: Int = Stop.END
    while position < stop and records < RECORDS_AT_A_TIME:
        size = sound_size(data, position, stop, expected, is_unpacked, tables.bounds)
        if size == 0:
            status = Stop.UNUSUAL_BATCH
            break
        batch = header(data, position)
        if batch.last_offset < tables.bounds.start_offset:
            if records > 0:
                break
            # Nothing came before it.
            position += size
            first, expected = position, batch.last_offset + 1
            tables.next_offset = expected
            continue
        if not is_unpacked and is_compressed(batch):
            status = Stop.COMPRESSED
            break
        if not may_hold_records(batch, tables.bounds.max_records):
            status = Stop.UNUSUAL_RECORDS
            break
        if batch.attributes & CONTROL_BIT:
            # Batches that are folded before may add to its keys.
            groups += _open_keys(batch.producer_id, tables) + records
        tables.reserve(records + batch.count, position + size - first, groups)
        if not split_records(data, position, batch, records, tables):
            status = Stop.UNUSUAL_RECORDS
            break
        records += batch.count
        expected = batch.last_offset + 1
        position += size
    reserve_group_records(records, tables)
    find_keys(data, records, tables)
    _fold_batches(data, first, position, tag, tables)
    tables.position = position
    return status


def fold_split(
    data: Bytes,
    tag: Int,
    data_bytes: Int,
    count: Int,
    base_offset: Int,
    next_offset: Int,
    attributes: Int,
    producer_id: Int,
    producer_epoch: Int,
    tables: FoldTables,
) -> None:
    """Fold one batch whose ``count`` records, of ``data_bytes`` in all, are in ``scratch`` already."""
    batch = Header(
        size=0,
        base_offset=base_offset,
        last_offset=next_offset - 1,
        attributes=attributes,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        count=count,
    )
    is_control: cython.bint = attributes & CONTROL_BIT != 0
    tables.reserve(count, data_bytes, _open_keys(producer_id, tables) if is_control else 0)
    reserve_group_records(count, tables)
    if is_control:
        _fold_control(data, 0, count, producer_id, tables)
    else:
        find_keys(data, count, tables)
        fold_records(data, 0, batch, tag, tables)
    count_batch(batch, next_offset, tables)
