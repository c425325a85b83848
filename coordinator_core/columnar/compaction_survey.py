"""Compiled first pass of compaction: checks every batch, and notes those that decide about others."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from coordinator_core.columnar import types
from coordinator_core.columnar.batches import Stop, delete_horizon
from coordinator_core.columnar.bytestrings import INVALID, varint, varlong
from coordinator_core.columnar.compiling import inlined, kernel
from coordinator_core.columnar.intrinsics import be16, be32, be64
from coordinator_core.columnar.kernels import sound_size
from coordinator_core.columnar.tables import BYTES_TYPE, Int
from coordinator_core.log.layout import CODEC_BITS, CONTROL_BIT, HEADER_BYTES

NOT_A_MARKER = -(1 << 15) - 1
"""``BatchRow.CONTROL_TYPE`` of a batch that is no control batch, or is empty."""

ASK = -(1 << 15) - 2
"""``BatchRow.CONTROL_TYPE`` of a control batch that takes more than a look."""

_VECTOR = types.Array(types.int64, 1)
_TABLE = types.Array(types.int64, 2)


class Survey(IntEnum):
    """Positions in the state of :func:`survey_log`."""

    POSITION = 0
    EXPECTED = 1
    """Offset behind the last batch."""
    ROWS = 2
    BATCHES = 3
    RECORDS = 4
    LEADER_EPOCH = 5
    """Of the last batch; a batch with another one gets a row."""
    LAST_BASE_OFFSET = 6
    """Base offset of the last batch, -1 for none."""
    SIZE = 7


class BatchRow(IntEnum):
    """Columns of what :func:`survey_log` notes: batches with a producer id, control batches, new epochs."""

    BASE_OFFSET = 0
    LAST_OFFSET = 1
    ATTRIBUTES = 2
    RECORDS = 3
    PRODUCER_ID = 4
    PRODUCER_EPOCH = 5
    MAX_TIMESTAMP = 6
    HORIZON = 7
    """Delete horizon, -1 for none."""
    CONTROL_TYPE = 8
    LEADER_EPOCH = 9
    POSITION = 10
    """In its segment."""
    SEGMENT = 11
    """Filled in by the caller."""
    WIDTH = 12


@inlined
def _control_type(data: Any, position: Int, stop: Int, count: Int, attributes: Int) -> Int:
    """Type of the one control record of a batch, ``ASK`` when it is not as plain as that."""
    if count != 1 or attributes & CODEC_BITS != 0:
        return ASK
    length, at = varint(data, position + HEADER_BYTES, stop)
    if at == INVALID or length < 0 or at + length != stop:
        return ASK
    _, at = varlong(data, at + 1, stop)
    if at == INVALID:
        return ASK
    _, at = varint(data, at, stop)
    if at == INVALID:
        return ASK
    key_bytes, at = varint(data, at, stop)
    if at == INVALID or key_bytes < 4 or at + key_bytes > stop or be16(data, at) < 0:
        return ASK
    return be16(data, at + 2)


@kernel(types.int64(BYTES_TYPE, types.int64, types.int64, _VECTOR, _VECTOR, _TABLE))
def survey_log(data: Any, start: Int, stop: Int, rules: Any, state: Any, rows: Any) -> Int:
    """Check the v2 batches in ``data[start:stop]`` and note in ``rows`` those that decide about others.

    Returns a :class:`Stop`; ``ODD`` at anything but a sound batch.
    """
    position = start
    status = Stop.END
    while position < stop:
        if state[Survey.ROWS] == len(rows):
            status = Stop.GROW
            break
        size = sound_size(data, position, stop, state[Survey.EXPECTED], False, rules)
        if size == 0:
            status = Stop.ODD
            break
        base_offset = be64(data, position)
        last_offset = base_offset + be32(data, position + 23)
        attributes = np.int64(data[position + 22])
        count = be32(data, position + 57)
        leader_epoch = be32(data, position + 12)
        producer_id = be64(data, position + 43)
        if producer_id != -1 or attributes & CONTROL_BIT != 0 or leader_epoch != state[Survey.LEADER_EPOCH]:
            row = state[Survey.ROWS]
            state[Survey.ROWS] = row + 1
            rows[row, BatchRow.BASE_OFFSET] = base_offset
            rows[row, BatchRow.LAST_OFFSET] = last_offset
            rows[row, BatchRow.ATTRIBUTES] = attributes
            rows[row, BatchRow.RECORDS] = count
            rows[row, BatchRow.PRODUCER_ID] = producer_id
            rows[row, BatchRow.PRODUCER_EPOCH] = be16(data, position + 51)
            rows[row, BatchRow.MAX_TIMESTAMP] = be64(data, position + 35)
            rows[row, BatchRow.HORIZON] = delete_horizon(data, position)
            rows[row, BatchRow.CONTROL_TYPE] = NOT_A_MARKER
            if attributes & CONTROL_BIT != 0 and count != 0:
                control = _control_type(data, position, position + size, count, attributes)
                rows[row, BatchRow.CONTROL_TYPE] = control
            rows[row, BatchRow.LEADER_EPOCH] = leader_epoch
            rows[row, BatchRow.POSITION] = position
        state[Survey.LEADER_EPOCH] = leader_epoch
        state[Survey.LAST_BASE_OFFSET] = base_offset
        state[Survey.EXPECTED] = last_offset + 1
        state[Survey.BATCHES] += 1
        state[Survey.RECORDS] += count
        position += size
    state[Survey.POSITION] = position
    return status
