"""Numbers the offset keys of many folds."""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.key_table import KeyTable
    from coordinator_core.kernels.primitives import *


def number_keys(
    groups: Int32s,
    topics: Int32s,
    partitions: Int32s,
    group_of: Int64s,
    topic_of: Int64s,
    table: KeyTable,
    scratch: MutableBytes,
    hashes: MutableInt64s,
    numbers: MutableInt64s,
) -> None:
    """Put the numbers of a fold's offset keys, one a row, into ``numbers``; new keys get the next ones.

    ``group_of`` and ``topic_of`` number the names of the fold. A key in ``table`` is group, topic and
    partition as big-endian int32s. ``scratch`` has room for ``RECORDS_AT_A_TIME`` of them, ``hashes`` for
    their hashes. Folds name keys in much the same order, so the number behind the last one found is tried
    first.
    """
    row: Int = 0
    rows: Int = len(groups)
    last: Int = -1
    if table.used == 0:
        # Later folds name few others.
        table.reserve(rows, rows * MERGED_KEY_BYTES)
    with cython.nogil:
        while row < rows:
            count = min(RECORDS_AT_A_TIME, rows - row)
            table.reserve(count, count * MERGED_KEY_BYTES)
            for index in range(count):
                at = index * MERGED_KEY_BYTES
                put_be(scratch, at, group_of[groups[row + index]], 4)
                put_be(scratch, at + 4, topic_of[topics[row + index]], 4)
                put_be(scratch, at + 8, partitions[row + index], 4)
                hashes[index] = hash_bytes(scratch, at, MERGED_KEY_BYTES)
                table.fetch_index(hashes[index])
            for index in range(count):
                number = table.likely_row(hashes[index])
                if number >= 0:
                    table.fetch_key(number)
            for index in range(count):
                at = index * MERGED_KEY_BYTES
                number = last + 1
                if number >= table.used or not same_bytes(
                    table.data, table.keys[number].start, scratch, at, MERGED_KEY_BYTES
                ):
                    number = table.find(scratch, at, MERGED_KEY_BYTES, hashes[index])
                    if number < 0:
                        number = table.add(scratch, at, MERGED_KEY_BYTES, hashes[index])
                numbers[row + index] = number
                last = number
            row += count
